"""Sessions with rules, without sockets: pipelines, odd arguments, scripts, waits.

The user may use keys that begin with `in`. Whatever it sends, keys that begin with `out` stay as
they are, and no reply shows what is in them.
"""

from __future__ import annotations

from random import Random
from typing import Any

import hiredis
import pytest

from delaylog.broker.keyspace.access.rights import rights_of
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.server_state import ServerState

NOW_MS = 1_700_000_000_000
RULES = ("+@all", "-@dangerous", "-scan", "-randomkey", "-pubsub", "-publish", "~in*", "&in*")
FILL = [
    "SET {0}s hidden",
    "RPUSH {0}l hidden hidden",
    "HSET {0}h hidden hidden",
    "SADD {0}e hidden",
    "ZADD {0}z 1 hidden 2 hidden2",
    "XADD {0}x 1-1 hidden hidden",
    "XGROUP CREATE {0}x g 0",
]
VOCABULARY = [
    *("in", "ins", "inl", "inh", "ine", "inz", "inx", "outs", "outl", "outh", "oute", "outz"),
    *("outx"),
    *("0", "1", "2", "3", "-1", "1-1", ">", "$", "*", "x", "0.01", "streams"),
    *("group", "g", "count", "block", "noack", "limit", "weights", "aggregate", "sum"),
    *(
        "left",
        "right",
        "min",
        "max",
        "get",
        "nx",
        "xx",
        "ex",
        "keepttl",
        "withscores",
        "store",
        "replace",
    ),
    *("db", "before", "match", "byscore", "rev"),
    "return redis.call('GET', KEYS[1])",
]


class Client:
    """One session."""

    def __init__(self, executor: Executor, rules: tuple[str, ...] | None = None) -> None:
        self.executor = executor
        self.session = executor.connect(NOW_MS)
        if rules is not None:
            self.session.rights = rights_of(rules)
            self.session.update_special()

    def run(self, *commands: list[str]) -> list[Any]:
        """The replies to commands that arrive together."""
        argvs = [[word.encode() for word in command] for command in commands]
        while argvs and self.session.blocked is None:
            del argvs[: self.executor.handle(self.session, argvs)]
        reader = hiredis.Reader()
        reader.feed(b"".join(self.session.out))
        self.session.out = []
        replies = []
        while (reply := reader.gets()) is not False:
            replies.append(reply)
        return replies

    def call(self, line: str) -> Any:
        """The reply to one command."""
        (reply,) = self.run(line.split(" "))
        return reply


@pytest.fixture
def executor() -> Executor:
    executor = Executor(Keyspace(Random(1)), ServerState(started_ms=NOW_MS))
    executor.begin(NOW_MS)
    admin = Client(executor)
    for prefix in ("in", "out"):
        admin.run(*(line.format(prefix).split(" ") for line in FILL))
    return executor


def outside(executor: Executor) -> list[Any]:
    """What the user must not change."""
    admin = Client(executor)
    found = admin.run(
        *(["PTTL", f"out{kind}"] for kind in "slhezx"),
        ["GET", "outs"],
        ["LRANGE", "outl", "0", "-1"],
        ["HGETALL", "outh"],
        ["SMEMBERS", "oute"],
        ["ZRANGE", "outz", "0", "-1", "WITHSCORES"],
        ["XRANGE", "outx", "-", "+"],
        ["XINFO", "GROUPS", "outx"],
        ["XPENDING", "outx", "g"],
        ["EXISTS", "out"],
    )
    executor.disconnect(admin.session)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_odd_arguments_reach_no_other_key(executor: Executor, seed: int) -> None:
    random = Random(seed)
    names = [
        entry.name.decode().split("|")
        for command in COMMANDS.values()
        for entry in ([command] if not command.subcommands else command.subcommands.values())
        if command.group in ("string", "list", "hash", "set", "sorted-set", "stream", "generic")
        or command.name in (b"eval", b"eval_ro", b"object", b"memory")
    ]
    # What the user may read does not count as shown.
    admin = Client(executor)
    admin.run(*(["DEL", f"in{kind}"] for kind in "slhezx"))
    admin.run(*(line.format("in").replace("hidden", "seen").split(" ") for line in FILL))
    before = outside(executor)
    for name in names:
        for _ in range(60):
            client = Client(executor, RULES)
            argv = [*name, *random.choices(VOCABULARY, k=random.randint(1, 8))]
            replies = client.run(argv)
            assert "hidden" not in str(replies), argv
            executor.disconnect(client.session)
    assert outside(executor) == before


def test_the_words_before_streams_are_no_keys(executor: Executor) -> None:
    """A group or a consumer may be called `streams`; the keys follow the word that is none."""
    client = Client(executor, ("+@all", "~s*"))
    for line in (
        "XREADGROUP GROUP streams s1 streams outx >",
        "XREADGROUP GROUP g streams streams outx >",
        "XREADGROUP NOACK GROUP streams s COUNT 1 streams outx >",
        "XREAD COUNT 1 streams outx 0",
    ):
        assert str(client.call(line)).startswith("NOPERM"), line


def test_pipelines(executor: Executor) -> None:
    """Runs of one command are checked one by one, and run at once if all are allowed."""
    client, full = Client(executor, RULES), Client(executor)
    for count in (3, 20):
        allowed = [["SET", f"in{n}", "v"] for n in range(count)]
        assert client.run(*allowed) == full.run(*allowed)
        mixed = [["SET", f"{'in' if n % 3 else 'out'}{n}", "v"] for n in range(count)]
        replies = client.run(*mixed)
        assert [str(reply).startswith("NOPERM") for reply in replies] == [
            n % 3 == 0 for n in range(count)
        ]
        assert full.run(*(["EXISTS", f"out{n}"] for n in range(count))) == [0] * count
        reads = [["GET", key] for key in ("in1", "outs", "in2")] * (count // 3)
        assert client.run(*reads)[:3][0] == b"v"
        assert all(str(reply).startswith("NOPERM") for reply in client.run(*reads)[1::3])


def test_a_connection_keeps_its_other_states(executor: Executor) -> None:
    """Rules do not hide that a client subscribes, or queues commands."""
    client = Client(executor, RULES)
    assert client.call("SUBSCRIBE inner") == [b"subscribe", b"inner", 1]
    assert str(client.call("GET ins")).startswith("ERR Can't execute 'get'")
    client.call("UNSUBSCRIBE")
    assert client.call("MULTI") == b"OK"
    assert client.call("GET ins") == b"QUEUED"
    assert str(client.call("GET outs")).startswith("NOPERM")
    assert str(client.call("EXEC")).startswith("EXECABORT")
    assert client.call("GET ins") == b"hidden"


def test_scripts_have_the_rights_of_their_caller(executor: Executor) -> None:
    """One after the other: each for itself, also after a script of another user."""
    client, full = Client(executor, RULES), Client(executor)
    script = "return redis.pcall('GET', 'outs')"
    for _ in range(2):
        (reply,) = full.run(["EVAL", script, "0"])
        assert reply == b"hidden"
        (reply,) = client.run(["EVAL", script, "0"])
        assert str(reply).startswith("ERR The user executing the script can't access")
    check = "return redis.acl_check_cmd('SET', ARGV[1], 1)"
    assert full.run(["EVAL", check, "0", "out1"]) == [1]
    assert client.run(["EVAL", check, "0", "out1"], ["EVAL", check, "0", "in1"]) == [None, 1]


def test_a_wait_is_for_allowed_keys(executor: Executor) -> None:
    client, full = Client(executor, RULES), Client(executor)
    assert str(client.call("BLPOP in9 out9 0")).startswith("NOPERM")
    assert client.run(["BLPOP", "in9", "0"]) == []
    full.call("RPUSH in9 a")
    assert client.run() == [[b"in9", b"a"]]
