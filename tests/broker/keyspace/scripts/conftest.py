"""Scripts over a keyspace of a few commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from delaylog.broker.keyspace.errors import WRONG_TYPE, CommandError
from delaylog.broker.keyspace.replies import (
    OK,
    PONG,
    Double,
    ErrorReply,
    Map,
    Members,
    Reply,
)
from delaylog.broker.keyspace.scripts import FunctionLibraries, ScriptLimits, Scripts

_WRITES = {b"set", b"del", b"hset", b"sadd", b"zadd"}
_NOT_ALLOWED = {b"auth", b"multi", b"blpop", b"eval", b"debug", b"subscribe"}
_LEAST = {b"set": 3, b"get": 2, b"del": 2, b"hset": 4, b"hgetall": 2, b"zscore": 3}


class Toy:
    """Enough commands for scripts to have something to call, and the scripts over them."""

    def __init__(self, limits: ScriptLimits | None = None) -> None:
        self.data: dict[bytes, Any] = {}
        self.calls: list[list[bytes]] = []
        self.extra: dict[bytes, Callable[[list[bytes]], Reply]] = {}
        self.scripts = Scripts(self.call, time.monotonic, limits)
        self.functions = FunctionLibraries(self.scripts)

    def call(self, argv: list[bytes]) -> Reply:
        self.calls.append(argv)
        name, data = argv[0].lower(), self.data
        if name in self.extra:
            return self.extra[name](argv)
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
    ) -> Reply:
        """EVAL; a refusal is an ErrorReply here, which tells it from a script's string."""
        text = source.encode() if isinstance(source, str) else source
        try:
            keys, sha = keys or [], self.scripts.load(text)
            return self.scripts.run(sha, len(keys), keys + (args or []))
        except CommandError as problem:
            return ErrorReply(problem.text)


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
