"""Scripts over a keyspace of a few commands, and a real redis-server to compare with."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delaylog.broker.keyspace.errors import WRONG_TYPE, CommandError
from delaylog.broker.keyspace.replies import (
    OK,
    PONG,
    BigNumber,
    Double,
    ErrorReply,
    Map,
    Members,
    Reply,
    Status,
    Verbatim,
)
from delaylog.broker.keyspace.scripts import FunctionLibraries, ScriptLimits, Scripts
from tests.redis_reference import reference

_WRITES = {b"set", b"del", b"hset", b"sadd", b"zadd"}
_NOT_ALLOWED = {b"auth", b"multi", b"blpop", b"eval", b"debug", b"subscribe"}
_LEAST = {b"set": 3, b"get": 2, b"del": 2, b"hset": 4, b"hgetall": 2, b"zscore": 3}


class Toy:
    """Enough commands for scripts to have something to call, and the scripts over them."""

    def __init__(self, limits: ScriptLimits | None = None) -> None:
        self.data: dict[bytes, Any] = {}
        self.calls: list[list[bytes]] = []
        self.extra: dict[bytes, Callable[[list[bytes], int], Reply]] = {}
        self.scripts = Scripts(
            self.call,
            time.monotonic,
            limits,
            check=lambda argv: None if argv[0] == b"nosuch" else True,
        )
        self.functions = FunctionLibraries(self.scripts)

    def call(self, argv: list[bytes], resp: int) -> Reply:
        self.calls.append(argv)
        name, data = argv[0].lower(), self.data
        if name in self.extra:
            return self.extra[name](argv, resp)
        if name in _NOT_ALLOWED:
            return ErrorReply(b"ERR This Redis command is not allowed from script")
        if len(argv) < _LEAST.get(name, 0) or (name == b"get" and len(argv) > 2):
            return ErrorReply(b"ERR Wrong number of args calling Redis command from script")
        if name in _WRITES:
            if self.scripts.read_only:
                return ErrorReply(b"ERR Write commands are not allowed from read-only scripts.")
            self.scripts.note_write()
        match name:
            case b"ping":
                return PONG
            case b"echo":
                return argv[1]
            case b"get":
                return data.get(argv[1])
            case b"set":
                if b"NX" in argv and argv[1] in data:
                    return None
                data[argv[1]] = argv[2]
                return OK
            case b"del":
                return int(data.pop(argv[1], None) is not None)
            case b"hset":
                data.setdefault(argv[1], {})[argv[2]] = argv[3]
                return 1
            case b"hget":
                return data.get(argv[1], {}).get(argv[2])
            case b"lpush":
                return ErrorReply(WRONG_TYPE)
            case b"hgetall":
                return Map([part for pair in data.get(argv[1], {}).items() for part in pair])
            case b"sadd":
                data[argv[1]] = set(argv[2:])
                return len(argv) - 2
            case b"smembers":
                return Members(sorted(data[argv[1]]))
            case b"zadd":
                data[argv[1]] = {argv[3]: float(argv[2])}
                return 1
            case b"zscore":
                score = data.get(argv[1], {}).get(argv[2])
                return None if score is None else Double(score)
        return ErrorReply(b"ERR Unknown Redis command called from script")

    def eval(
        self,
        source: str | bytes,
        keys: list[bytes] | None = None,
        args: list[bytes] | None = None,
        *,
        read_only: bool = False,
    ) -> Reply:
        """EVAL; a refusal is an ErrorReply here, which tells it from a script's string."""
        text = source.encode() if isinstance(source, str) else source
        try:
            keys, sha = keys or [], self.scripts.load(text)
            return self.scripts.run(sha, len(keys), keys + (args or []), read_only=read_only)
        except CommandError as problem:
            return ErrorReply(problem.text)


def encode(reply: Reply, resp: int) -> bytes:
    """The bytes of a reply, plainly."""
    old = resp == 2

    def bulk(text: bytes) -> bytes:
        return b"$%d\r\n%s\r\n" % (len(text), text)

    def many(mark: bytes, count: int, items: Any) -> bytes:
        return b"%s%d\r\n" % (mark, count) + b"".join(encode(item, resp) for item in items)

    match reply:
        case Status():
            return b"+" + bytes(reply) + b"\r\n"
        case bytes():
            return bulk(reply)
        case None:
            return b"$-1\r\n" if old else b"_\r\n"
        case bool():
            return b":%d\r\n" % reply if old else b"#%s\r\n" % (b"t" if reply else b"f")
        case Double():
            text = b"%.17g" % reply
            return bulk(text) if old else b"," + text + b"\r\n"
        case int():
            return b":%d\r\n" % reply
        case ErrorReply():
            return b"-" + reply.text + b"\r\n"
        case Map():
            count = len(reply.flat)
            return many(b"*", count, reply.flat) if old else many(b"%", count // 2, reply.flat)
        case Members():
            return many(b"*" if old else b"~", len(reply.items), reply.items)
        case BigNumber():
            return bulk(reply.digits) if old else b"(" + reply.digits + b"\r\n"
        case Verbatim():
            if old:
                return bulk(reply.text)
            return b"=%d\r\n%s:%s\r\n" % (len(reply.text) + 4, reply.form, reply.text)
        case list() | tuple():
            return many(b"*", len(reply), reply)
    raise AssertionError(reply)


class RealRedis:
    """A connection to a real redis-server; replies as bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def command(self, *words: str | bytes) -> bytes:
        argv = [word.encode() if isinstance(word, str) else word for word in words]
        self._socket.sendall(
            b"*%d\r\n" % len(argv) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in argv)
        )
        return self._reply()

    def _reply(self) -> bytes:
        line = self._file.readline()
        kind = line[:1]
        assert kind, "the server closed the connection"
        if kind in b"$=":
            size = int(line[1:])
            return line if size < 0 else line + self._file.read(size + 2)
        if kind in b"*~>%":
            count = max(0, int(line[1:])) * (2 if kind == b"%" else 1)
            return line + b"".join(self._reply() for _ in range(count))
        return line


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture(scope="module")
def shared() -> Toy:
    """One for all examples of a property."""
    return Toy()


@pytest.fixture
def make_toy() -> Callable[..., Toy]:
    return Toy


@pytest.fixture(name="encode")
def encode_fixture() -> Callable[[Reply, int], bytes]:
    return encode


@pytest.fixture(scope="module")
def real_redis() -> Iterator[Callable[[], RealRedis]]:
    """Connections to a redis-server of its own."""
    connections: list[RealRedis] = []
    with reference() as redis:

        def connect() -> RealRedis:
            connections.append(RealRedis(redis.port))
            return connections[-1]

        yield connect
        for connection in connections:
            connection.close()
