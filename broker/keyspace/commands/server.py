"""The server as a whole: clock, saving, replication's words, and what is refused here.

What is written is durable in the log before it is answered, so saving has nothing to do. Who leads
is decided by elections, so nobody is told to follow or to take over by a client.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.commands.connection import REDIS_VERSION
from delaylog.broker.keyspace.commands.objects import encoding_of
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError, syntax
from delaylog.broker.keyspace.number_texts import to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import OK, Reply, Status, Verbatim
from delaylog.broker.keyspace.run import Run

_ADMIN: Final = "admin noscript loading stale"
_ELECTED: Final = b"ERR %b is refused: the nodes of a delaylog cluster elect who leads"
_NO_CLUSTER: Final = b"ERR This instance has cluster support disabled"
_NO_DEBUG: Final = (
    b'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you '
    b"can run it from a local connection, otherwise you need to set this option in the "
    b"configuration file, and then restart the server."
)
_SHUTDOWN_WORDS: Final = {b"nosave", b"save", b"now", b"force"}


@command("time", 1, "loading stale fast")
def time(run: Run, argv: Args) -> Reply:
    """The time of the server: seconds, and microseconds (that go by whole milliseconds)."""
    seconds, rest_ms = divmod(run.now_ms, 1000)
    return [b"%d" % seconds, b"%d" % (rest_ms * 1000)]


@command("lastsave", 1, "loading stale fast")
def lastsave(run: Run, argv: Args) -> Reply:
    """When SAVE or BGSAVE was last asked for; before that, when the server started."""
    server = run.executor.server
    return (server.saved_ms or server.started_ms) // 1000


@command("save", 1, "admin noscript no_async_loading no_multi")
def save(run: Run, argv: Args) -> Reply:
    """Done already: all that was answered is in the log."""
    run.executor.server.saved_ms = run.now_ms
    return OK


@command("bgsave", -1, "admin noscript no_async_loading")
def bgsave(run: Run, argv: Args) -> Reply:
    """Likewise: [SCHEDULE]."""
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() != b"schedule"):
        raise syntax()
    run.executor.server.saved_ms = run.now_ms
    return Status(b"Background saving started")


@command("bgrewriteaof", 1, "admin noscript no_async_loading")
def bgrewriteaof(run: Run, argv: Args) -> Reply:
    """Likewise: the log is compacted by checkpoints of the broker's own."""
    return Status(b"Background append only file rewriting started")


@command("shutdown", -1, "admin noscript loading stale no_multi allow_busy")
def shutdown(run: Run, argv: Args) -> Reply:
    """Refused: the broker serves more than Redis clients."""
    words = [word.lower() for word in argv[1:]]
    if words == [b"abort"]:
        raise CommandError(b"ERR No shutdown in progress.")
    if not _SHUTDOWN_WORDS.issuperset(words) or {b"save", b"nosave"} <= set(words):
        raise syntax()
    raise CommandError(b"ERR SHUTDOWN is refused: end the delaylog process with SIGTERM")


# Redis refuses it before it would be queued, which spoils a MULTI.
@command("debug", -2, _ADMIN + " now")
def debug(run: Run, argv: Args) -> Reply:
    """What tests ask for: OBJECT key, SET-ACTIVE-EXPIRE 0|1; all else is refused."""
    if run.session.queue is not None:
        run.session.failed_multi = True
        raise CommandError(_NO_DEBUG)
    what = argv[1].lower()
    if what == b"object" and len(argv) == 3:
        value = run.database.find(argv[2])
        if value is None:
            raise CommandError(NO_SUCH_KEY)
        return Status(
            b"Value at:0x%x refcount:1 encoding:%b serializedlength:%d lru:0 lru_seconds_idle:0"
            % (id(value), encoding_of(value), len(value))
        )
    if what == b"set-active-expire" and len(argv) == 3:
        return OK
    raise CommandError(_NO_DEBUG)


@command("lolwut", -1, "readonly fast")
def lolwut(run: Run, argv: Args) -> Reply:
    """The version, without a picture: [VERSION number ...]."""
    if len(argv) > 2 and argv[1].lower() == b"version":
        to_int(argv[2])
    return Verbatim(b"Redis ver. %b\n" % REDIS_VERSION)


@command("monitor", 1, _ADMIN)
def monitor(run: Run, argv: Args) -> Reply:
    """Refused: it would slow every command down."""
    raise CommandError(b"ERR MONITOR is not supported: see the metrics of the broker")


# ---------------------------------------------------------------------- replication and clusters


@command("role", 1, "noscript loading stale fast")
def role(run: Run, argv: Args) -> Reply:
    """Whether this node takes writes, and otherwise who does."""
    server = run.executor.server
    if server.role() == b"master":
        return [b"master", 0, []]
    leader = server.leader()
    if leader is None:
        return [b"slave", b"", 0, b"connect", -1]
    return [b"slave", leader[0], leader[1], b"connected", 0]


@command("replicaof", 3, "admin noscript stale no_async_loading")
def replicaof(run: Run, argv: Args) -> Reply:
    """Refused: the cluster elects."""
    raise CommandError(_ELECTED % argv[0].upper()[:16])


@command("slaveof", 3, "admin noscript stale no_async_loading")
def slaveof(run: Run, argv: Args) -> Reply:
    """Refused: the cluster elects."""
    return replicaof(run, argv)


@command("failover", -1, "admin noscript stale")
def failover(run: Run, argv: Args) -> Reply:
    """Refused: the cluster elects."""
    if len(argv) == 2 and argv[1].lower() == b"abort":
        raise CommandError(b"ERR No failover in progress.")
    raise CommandError(_ELECTED % b"FAILOVER")


@command("readonly", 1, "loading stale fast")
def readonly(run: Run, argv: Args) -> Reply:
    """Refused: there are no slots."""
    raise CommandError(_NO_CLUSTER)


@command("readwrite", 1, "loading stale fast")
def readwrite(run: Run, argv: Args) -> Reply:
    """Refused: there are no slots."""
    raise CommandError(_NO_CLUSTER)


@command("asking", 1, "fast")
def asking(run: Run, argv: Args) -> Reply:
    """Refused: there are no slots."""
    raise CommandError(_NO_CLUSTER)


def _no_cluster(run: Run, argv: Args) -> Reply:
    """Refused: there are no slots, a delaylog cluster has one leader."""
    raise CommandError(_NO_CLUSTER)


_CLUSTER_WORDS: Final = {
    "stale": "info 2 slots 2 shards 2 nodes 2 myid 2 links 2 keyslot 3 countkeysinslot 3 "
    "getkeysinslot 4",
    "admin stale": "replicas 3 slaves 3 count-failure-reports 3",
    "admin stale no_async_loading": "replicate 3 forget 3 meet -4 failover -2 addslots -3 "
    "addslotsrange -4 delslots -3 delslotsrange -4 setslot -4 flushslots 2 saveconfig 2 "
    "bumpepoch 2 set-config-epoch 3",
    "admin noscript stale": "reset -2",
}
"""Names and arities by flags."""
for _flags, _words in _CLUSTER_WORDS.items():
    for _name, _arity in zip(_words.split()[::2], _words.split()[1::2], strict=True):
        command(f"cluster|{_name}", int(_arity), _flags)(_no_cluster)
