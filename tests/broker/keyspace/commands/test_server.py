"""Commands of the server itself: what differs from Redis on purpose, and the table of commands.

The differential tests (traps/server.txt) compare the other replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import hiredis
import pytest

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.running.shared_state import ServerState
from tests.redis_reference import reference

NOW_MS = 1_700_000_000_000

OURS = [
    ("CLIENT SETINFO LIB-NAME redis-py", b"OK"),
    ("CLIENT SETINFO LIB-VER 8.1", b"OK"),
    ("CLIENT SETINFO NOSUCH x", "ERR Unrecognized option 'NOSUCH'"),
    ("CLIENT SETINFO LIB-NAME a|b", "ERR lib-name cannot contain spaces"),
    ("CONFIG GET hz", []),
    ("CONFIG GET notify-keyspace-events", [b"notify-keyspace-events", b""]),
    ("ACL WHOAMI", b"default"),
    ("TIME", [b"1700000000", b"0"]),
    ("SENTINEL GET-MASTER-ADDR-BY-NAME any", [b"127.0.0.1", b"7000"]),
    ("SENTINEL REPLICAS any", []),
    ("SENTINEL SENTINELS any", []),
]


class Ours:
    """One session without a socket."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.session = executor.connect(NOW_MS)
        self.session.address = b"127.0.0.1:%d" % (40_000 + self.session.number)

    def call(self, line: str) -> bytes:
        """The raw reply to a command."""
        return self.run([line])

    def run(self, lines: list[str]) -> bytes:
        """The raw replies to a pipeline."""
        self.executor.begin(NOW_MS)
        argvs = [[word.replace("|", " ").encode() for word in line.split(" ")] for line in lines]
        self.executor.handle(self.session, argvs)
        return self.take()

    def take(self) -> bytes:
        """What came."""
        out, self.session.out = self.session.out, []
        return b"".join(out)

    def value(self, line: str) -> Any:
        """The reply, read; errors are values."""
        return read(self.call(line))


def read(raw: bytes) -> Any:
    reader = hiredis.Reader()
    reader.feed(raw)
    return reader.gets()


@pytest.fixture
def executor() -> Executor:
    server = ServerState(started_ms=NOW_MS, address=(b"127.0.0.1", 7000))
    return Executor(Keyspace(Random(1)), server)


@pytest.fixture
def ours(executor: Executor) -> Ours:
    return Ours(executor)


@pytest.fixture(scope="module")
def redis() -> Iterator[Callable[..., bytes]]:
    """Sends a command to a real redis-server; returns the bytes of the reply."""
    with reference() as server, server.session() as command:
        yield command


@pytest.mark.parametrize(("line", "expected"), OURS)
def test_what_differs_on_purpose(ours: Ours, line: str, expected: Any) -> None:
    reply = ours.value(line)
    if isinstance(expected, str):
        assert isinstance(reply, hiredis.ReplyError), reply
        assert str(reply).startswith(expected)
    else:
        assert reply == expected


@pytest.mark.processes
def test_every_default_is_the_real_one(ours: Ours, redis: Callable[..., bytes]) -> None:
    """Left out is what depends on how a server was started, and what is not done here."""
    here = {"bind", "port", "save", "appendonly", "appendfsync"}
    raw = redis("CONFIG", "GET", "*")
    flat = read(raw)
    real = dict(zip(flat[::2], flat[1::2], strict=True))
    flat = ours.value("CONFIG GET *")
    mine = dict(zip(flat[::2], flat[1::2], strict=True))
    assert not mine.keys() - real.keys()
    skipped = {name.encode() for name in here}
    differ = {k: (v, real[k]) for k, v in mine.items() if v != real[k] and k not in skipped}
    assert not differ


@pytest.mark.processes
def test_command_info_is_the_real_one(ours: Ours, redis: Callable[..., bytes]) -> None:
    """Of each command that both have: arity, flags, places of keys."""
    raw = redis("COMMAND")
    real = _by_name(read(raw))
    mine = _by_name(ours.value("COMMAND"))
    assert len(mine) > 150
    differ = {
        name: (mine[name], real[name])
        for name in mine.keys() & real.keys()
        if mine[name] != real[name]
    }
    assert not differ


def _by_name(entries: list[Any]) -> dict[bytes, tuple[Any, ...]]:
    found = {}
    for entry in entries:
        found[entry[0]] = (entry[1], sorted(entry[2]), entry[3:6])
        found |= _by_name(entry[9])
    return found


def test_every_command_has_a_summary(ours: Ours) -> None:
    docs = ours.value("COMMAND DOCS")
    assert docs[::2] == list(COMMANDS)
    for name, doc in zip(docs[::2], docs[1::2], strict=True):
        members = dict(zip(doc[::2], doc[1::2], strict=True))
        assert members[b"summary"] or b"subcommands" in members, name


@pytest.mark.parametrize("family", ["ACL", "CLIENT", "COMMAND", "CONFIG", "SENTINEL", "XGROUP"])
def test_help(ours: Ours, family: str) -> None:
    lines = ours.value(f"{family} HELP")
    assert lines[0].startswith(family.encode())
    assert b"HELP" in lines
    assert all(line.startswith(b"    ") for line in lines[2::2])


def test_in_a_transaction(ours: Ours) -> None:
    """AUTH waits for EXEC as others do."""
    replies = ours.run(["MULTI", "AUTH x", "EXEC"])
    assert replies.startswith(b"+OK\r\n+QUEUED\r\n*1\r\n-ERR AUTH <password> called without")


# ---------------------------------------------------------------------- clients


def test_list_tells_of_clients(executor: Executor) -> None:
    first, second = Ours(executor), Ours(executor)
    first.run(["CLIENT SETNAME one", "CLIENT SETINFO LIB-NAME redis-py"])
    second.run(["SELECT 3", "SUBSCRIBE c"])
    lines = first.value("CLIENT LIST").decode().splitlines()
    clients = [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines]
    assert [client["id"] for client in clients] == ["1", "2"]
    assert (clients[0]["name"], clients[0]["lib-name"]) == ("one", "redis-py")
    assert clients[0]["cmd"] == "client|list"
    assert (clients[1]["db"], clients[1]["flags"], clients[1]["sub"]) == ("3", "P", "1")
    assert clients[1]["cmd"] == "subscribe"
    assert first.value("CLIENT LIST TYPE pubsub").startswith(b"id=2 ")
    assert first.value("CLIENT LIST ID 2 1 7").startswith(b"id=2 ")


@pytest.mark.parametrize(
    "line",
    [
        "CLIENT KILL 127.0.0.1:40002",
        "CLIENT KILL ID 2",
        "CLIENT KILL ADDR 127.0.0.1:40002 TYPE normal",
        "CLIENT KILL TYPE normal",
    ],
)
def test_kill_ends_a_client_that_waits(executor: Executor, line: str) -> None:
    killer, waiter = Ours(executor), Ours(executor)
    told = []
    waiter.session.on_output = told.append
    waiter.call("BLPOP q 0")
    assert waiter.session.blocked is not None
    assert killer.value(line) in (1, b"OK")
    assert waiter.session.killed
    assert told == [waiter.session]
    assert waiter.session.blocked is None
    assert not executor.waits.sessions
    assert killer.run(["RPUSH q a", "LLEN q"]) == b":1\r\n:1\r\n"
    assert not killer.session.closing


def test_one_ends_oneself_after_the_answer(ours: Ours) -> None:
    assert ours.value("CLIENT KILL ID 1 SKIPME no") == 1
    assert ours.session.closing
    assert not ours.session.killed


# ---------------------------------------------------------------------- information


def info(ours: Ours, *sections: str) -> dict[str, str]:
    text = ours.value(" ".join(["INFO", *sections])).decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split(":", 1) for line in lines)


def test_info_counts(ours: Ours) -> None:
    ours.run(["SET k v PX 5000", "HSET h a 1", "NOSUCH", "SELECT 2", "SET k v"])
    told = info(ours)
    assert told["db0"] == "keys=2,expires=1,avg_ttl=0"
    assert told["db2"] == "keys=1,expires=0,avg_ttl=0"
    assert told["redis_version"] == "7.0.15"
    assert told["redis_mode"] == "standalone"
    assert told["role"] == "master"
    assert told["loading"] == "0"
    assert told["maxmemory_policy"] == "noeviction"
    assert told["total_commands_processed"] == "5"
    assert told["total_error_replies"] == "1"
    assert told["connected_clients"] == "1"


def test_info_sections(ours: Ours) -> None:
    assert ours.value("INFO server").startswith(b"# Server\r\n")
    assert b"\r\n\r\n# Clients\r\n" in ours.value("INFO clients SERVER")
    assert ours.value("INFO keyspace") == b"# Keyspace\r\n"
    assert ours.value("INFO everything").count(b"# ") == ours.value("INFO").count(b"# ") == 10
    assert b"# Delaylog" in ours.value("INFO default")


def test_a_follower_names_its_leader(ours: Ours) -> None:
    server = ours.executor.server
    server.role = lambda: b"slave"
    assert ours.value("ROLE") == [b"slave", b"", 0, b"connect", -1]
    assert ours.value("SENTINEL GET-MASTER-ADDR-BY-NAME x") is None
    assert info(ours, "replication")["master_link_status"] == "down"
    server.leader = lambda: (b"10.0.0.7", 6380)
    assert ours.value("ROLE") == [b"slave", b"10.0.0.7", 6380, b"connected", 0]
    assert ours.value("SENTINEL GET-MASTER-ADDR-BY-NAME x") == [b"10.0.0.7", b"6380"]
    assert info(ours, "replication")["master_host"] == "10.0.0.7"


def test_commands_a_second() -> None:
    server = ServerState(started_ms=1_000)
    assert server.commands_a_second(1_000) == 0
    server.commands_run = 100
    assert server.commands_a_second(2_000) == 100
    server.commands_run = 150
    assert server.commands_a_second(2_500) == 100
    assert server.commands_a_second(3_000) == 50
