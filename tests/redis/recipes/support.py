"""What the tests of the recipes share: servers, a clock moved by hand, and the data of a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from tests.redis.recipes.connection import Argument, Command, Connection, EndpointUnreachable

NOW_MS = 1_658_492_212_132


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server under test."""

    name: str
    port: int

    def client(self, *, protocol: int = 2, decode_responses: bool = False) -> redis.Redis:
        """A client that does not retry by itself."""
        return redis.Redis(
            port=self.port, protocol=protocol, decode_responses=decode_responses, retry=None
        )


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port that nobody listens on, nor can until the end of the block."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


class HandClock:
    """A clock that stands until it is moved; sleeping moves it, too."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms
        self.slept_ms: list[float] = []

    def __call__(self) -> int:
        return self.now_ms

    def sleep(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        self.now_ms += int(duration_ms)


class FaultyConnection:
    """Breaks the next so many calls, before or after they are carried out."""

    def __init__(self, inner: Connection) -> None:
        self.inner = inner
        self.breaks = 0
        self.carried_out = False
        self.calls = 0

    def execute(self, *args: Argument) -> Any:
        return self._call(lambda: self.inner.execute(*args))

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        return self._call(lambda: self.inner.pipeline(commands))

    def _call(self, call: Any) -> Any:
        self.calls += 1
        if self.breaks == 0:
            return call()
        self.breaks -= 1
        if self.carried_out:
            call()
        raise EndpointUnreachable("broken by the test")


def contents(client: redis.Redis) -> dict[str, tuple[str, Any]]:
    """Everything a server holds: of each key its type and what is in it, in a form that does not
    depend on the protocol or on the order of hashes and sets.
    """
    data: dict[str, tuple[str, Any]] = {}
    for raw_key in client.scan_iter(count=1000):
        key = _text(raw_key)
        kind = _text(client.type(key))
        if kind == "string":
            value: Any = _text(client.get(key))
        elif kind == "hash":
            value = {_text(field): _text(v) for field, v in client.hgetall(key).items()}
        elif kind == "zset":
            value = [(_text(m), score) for m, score in client.zrange(key, 0, -1, withscores=True)]
        elif kind == "list":
            value = [_text(item) for item in client.lrange(key, 0, -1)]
        else:
            value = sorted(_text(item) for item in client.smembers(key))
        data[key] = (kind, value)
    return data


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
