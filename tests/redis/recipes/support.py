"""What the tests of the recipes share: a clock moved by hand, and the data of a server."""

from __future__ import annotations

from typing import Any

import redis

NOW_MS = 1_658_492_212_132


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
