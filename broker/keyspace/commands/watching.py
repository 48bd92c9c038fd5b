"""SLOWLOG, LATENCY, MEMORY, MODULE: looking into a server. Nothing is measured command by command,
so the logs of slow commands and of latencies are empty; the broker's metrics tell more.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from sys import getsizeof
from typing import Final

from delaylog.broker.keyspace.commands.help_texts import help_lines
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.number_texts import to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import OK, Double, Map, Reply, Verbatim
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.stream import StreamValue
from delaylog.broker.keyspace.values import HashValue, Value

_LATENCY: Final = "admin noscript loading stale"
_SLOWLOG: Final = "admin loading stale"
_HELP: Final = "loading stale"
_SAMPLES: Final = 5
_KEY_BYTES: Final = 104
"""What a key takes in its database's table, besides its name."""


# ---------------------------------------------------------------------- SLOWLOG


@command("slowlog|get", -2, _SLOWLOG)
def slowlog_get(run: Run, argv: Args) -> Reply:
    """The slowest commands; none are kept."""
    if len(argv) > 3:
        raise CommandError(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try SLOWLOG HELP."
            % argv[1][:128]
        )
    refusal = b"ERR count should be greater than or equal to -1"
    if len(argv) == 3 and to_int(argv[2], refusal) < -1:
        raise CommandError(refusal)
    return []


@command("slowlog|len", 2, _SLOWLOG)
def slowlog_len(run: Run, argv: Args) -> Reply:
    """How many slow commands are kept: none."""
    return 0


@command("slowlog|reset", 2, _SLOWLOG)
def slowlog_reset(run: Run, argv: Args) -> Reply:
    """Forget them."""
    return OK


@command("slowlog|help", 2, _HELP)
def slowlog_help(run: Run, argv: Args) -> Reply:
    """What SLOWLOG can do."""
    return help_lines(b"slowlog")


# ---------------------------------------------------------------------- LATENCY


@command("latency|latest", 2, _LATENCY)
def latency_latest(run: Run, argv: Args) -> Reply:
    """Events that were slow: none are kept."""
    return []


@command("latency|history", 3, _LATENCY)
def latency_history(run: Run, argv: Args) -> Reply:
    """The times of an event: none are kept."""
    return []


@command("latency|reset", -2, _LATENCY)
def latency_reset(run: Run, argv: Args) -> Reply:
    """Forget events; answers how many."""
    return 0


@command("latency|graph", 3, _LATENCY)
def latency_graph(run: Run, argv: Args) -> Reply:
    """Nothing to draw."""
    raise CommandError(b"ERR No samples available for event '%b'" % argv[2])


@command("latency|histogram", -2, _LATENCY)
def latency_histogram(run: Run, argv: Args) -> Reply:
    """How long commands take: not measured one by one."""
    return Map([])


@command("latency|doctor", 2, _LATENCY)
def latency_doctor(run: Run, argv: Args) -> Reply:
    """Where to look instead."""
    return Verbatim(b"Latencies are not kept by command; see the metrics of the broker.\n")


@command("latency|help", 2, _HELP)
def latency_help(run: Run, argv: Args) -> Reply:
    """What LATENCY can do."""
    return help_lines(b"latency")


# ---------------------------------------------------------------------- MEMORY


@command("memory|usage", -3, "readonly", keys=(2, 2, 1))
def memory_usage(run: Run, argv: Args) -> Reply:
    """About how many bytes a key and what it holds take: [SAMPLES count], 0 = look at all."""
    samples = _SAMPLES
    for at in range(3, len(argv), 2):
        if argv[at].lower() != b"samples" or at + 1 >= len(argv):
            raise syntax()
        samples = to_int(argv[at + 1])
        if samples < 0:
            raise syntax()
    value = run.database.find(argv[2])
    if value is None:
        return None
    return _KEY_BYTES + getsizeof(argv[2]) + _size_of(value, samples)


def _size_of(value: Value, samples: int) -> int:
    """The container as it is, and its elements by the mean of a few."""
    own = getsizeof(value)
    if isinstance(value, bytes | bytearray):
        return own
    if isinstance(value, StreamValue):
        return own
    elements: Iterable[object] = value
    if isinstance(value, HashValue):
        elements = value.items()
    looked, taken = 0, 0
    for element in islice(elements, samples or None):
        looked += 1
        parts = element if isinstance(element, tuple) else (element,)
        taken += sum(map(getsizeof, parts))
    return own + (taken * len(value) // looked if looked else 0)


@command("memory|doctor", 2)
def memory_doctor(run: Run, argv: Args) -> Reply:
    """Where to look instead."""
    return Verbatim(b"Memory is watched by the broker; see its metrics.\n")


@command("memory|malloc-stats", 2)
def memory_malloc_stats(run: Run, argv: Args) -> Reply:
    """The allocator is the system's, which tells nothing."""
    return Verbatim(b"Stats not supported for the current allocator")


@command("memory|purge", 2)
def memory_purge(run: Run, argv: Args) -> Reply:
    """Freed memory goes back to the system by itself."""
    return OK


@command("memory|stats", 2)
def memory_stats(run: Run, argv: Args) -> Reply:
    """What is known of memory, by the names of Redis."""
    facts = run.executor.server.facts()
    now = int(facts.get(b"used_memory", b"0"))
    peak = int(facts.get(b"used_memory_peak", b"0"))
    keys = sum(len(database.values) for database in run.keyspace.databases)
    return Map(
        [
            *(b"peak.allocated", peak, b"total.allocated", now, b"startup.allocated", 0),
            *(b"replication.backlog", 0, b"clients.slaves", 0, b"clients.normal", 0),
            *(b"cluster.links", 0, b"aof.buffer", 0, b"lua.caches", 0, b"functions.caches", 0),
            *(b"overhead.total", 0, b"keys.count", keys),
            *(b"keys.bytes-per-key", now // keys if keys else 0, b"dataset.bytes", now),
            *(b"dataset.percentage", Double(100.0)),
            *(b"peak.percentage", Double(100.0 * now / peak if peak else 0.0)),
        ]
    )


@command("memory|help", 2, _HELP)
def memory_help(run: Run, argv: Args) -> Reply:
    """What MEMORY can do."""
    return help_lines(b"memory")


# ---------------------------------------------------------------------- MODULE


@command("module|list", 2, "admin noscript")
def module_list(run: Run, argv: Args) -> Reply:
    """None."""
    return []


_NO_MODULES: Final = (
    b'ERR MODULE command not allowed. If the enable-module-command option is set to "local", you '
    b"can run it from a local connection, otherwise you need to set this option in the "
    b"configuration file, and then restart the server."
)


def _no_modules(run: Run, argv: Args) -> Reply:
    """Refused."""
    raise CommandError(_NO_MODULES)


command("module|load", -3, "admin noscript no_async_loading")(_no_modules)
command("module|loadex", -3, "admin noscript no_async_loading")(_no_modules)
command("module|unload", 3, "admin noscript no_async_loading")(_no_modules)


@command("module|help", 2, _HELP)
def module_help(run: Run, argv: Args) -> Reply:
    """What MODULE can do."""
    return help_lines(b"module")
