"""What people build on Redis for the jobs of the section `everyday`.

A delay queue is a hash of bodies and a sorted set of due times, filled by a script that skips ids
it has; a work queue is a list from which RPOPLPUSH takes and LREM settles. The one rule: requests
are laid out with numpy before the clock starts, and only ids are written into them while it runs,
so that the client costs little beside the server.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from clients import Int64Array
from consuming import LEASE_MS, RespVerbs, agree, stamped_body
from load import Buffer, LoadError
from redis_peer import RedisProcess, ask, pack
from sending import spread_dues
from yardstick import resp_of

ID_BYTES: Final = 16
BODIES: Final = b"bodies"
DUE: Final = b"due"
LEASED: Final = b"leased"
READY: Final = b"ready"
WORK: Final = b"work"
FILL_ROWS: Final = 10_000
FILL_CALL_ROWS: Final = 1_000
# Of a consumer that found nothing due.
PAUSE_S: Final = 0.010
STAMP_BYTES: Final = 16

# ARGV: id, due, body, and again; answers how many were new.
SEND: Final = b"""local new = 0
for i = 1, #ARGV, 3 do
  if redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 2]) == 1 then
    redis.call('ZADD', KEYS[2], ARGV[i + 1], ARGV[i])
    new = new + 1
  end
end
return new"""
# ARGV: now, how many, lease until; answers id, body, and again.
TAKE: Final = b"""local due = {'-inf', ARGV[1], 'LIMIT', 0, ARGV[2]}
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], unpack(due))
local taken = {}
for i = 1, #ids do
  redis.call('ZREM', KEYS[2], ids[i])
  redis.call('ZADD', KEYS[3], ARGV[3], ids[i])
  taken[2 * i - 1] = ids[i]
  taken[2 * i] = redis.call('HGET', KEYS[1], ids[i])
end
return taken"""
# ARGV: ids; answers how many were under lease.
SETTLE: Final = b"""local settled = 0
for i = 1, #ARGV do
  if redis.call('ZREM', KEYS[2], ARGV[i]) == 1 then
    redis.call('HDEL', KEYS[1], ARGV[i])
    settled = settled + 1
  end
end
return settled"""


def loaded(redis: RedisProcess, script: bytes) -> bytes:
    """The digest by which the server knows a script from now on."""
    digest = ask(redis.port, b"SCRIPT", b"LOAD", script)
    assert isinstance(digest, bytes)
    return digest


def send(digest: bytes, *words: bytes) -> bytes:
    """A request to `SEND` for id, due and body, and again."""
    return pack([b"EVALSHA", digest, b"2", BODIES, DUE, *words])


class RedisBatches:
    """Requests to `SEND`, alike but for their ids; one buffer a lane."""

    def __init__(self, digest: bytes, rows: int, body: bytes, lanes: int) -> None:
        dues = spread_dues(rows, 1, seed=rows)
        place = b"?" * ID_BYTES
        words = [word for due in dues.tolist() for word in (place, b"%d" % due, body)]
        text = send(digest, *words)
        first = text.index(place)
        width = len(pack(words[:3])) - len(b"*3\r\n")
        self._rows = rows
        self._texts = [bytearray(text) for _ in range(lanes)]
        self._places = []
        for buffer in self._texts:
            cells = np.frombuffer(buffer, np.uint8)[first - len(b"$16\r\n") :]
            at = len(b"$16\r\n")
            self._places.append(cells.reshape(rows, width)[:, at : at + ID_BYTES])

    def request(self, lane: int) -> memoryview:
        """The lane's buffer with new ids in it."""
        ids = secrets.token_hex(self._rows * ID_BYTES // 2).encode()
        self._places[lane][:] = np.frombuffer(ids, np.uint8).reshape(self._rows, ID_BYTES)
        return memoryview(self._texts[lane])


def check_stored(redis: RedisProcess, messages: int) -> None:
    """Raise LoadError unless both halves of the delay queue hold that many."""
    found = ask(redis.port, b"HLEN", BODIES), ask(redis.port, b"ZCARD", DUE)
    if found != (messages, messages):
        raise LoadError(f"{messages} messages were sent to Redis, it has {found}")


# --------------------------------------------------------------------------- an open loop


class DelayFace:
    """The delay queue as the open loop asks for it: one consumer, single sends."""

    def __init__(self, redis: RedisProcess, rows_max: int) -> None:
        self.endpoint = resp_of(redis)
        self._redis = redis
        self._send, self._take, self._settle = (
            loaded(redis, script) for script in (SEND, TAKE, SETTLE)
        )
        self._rows_max = rows_max

    def send(self, number: int, stamp_us: int) -> bytes:
        return send(self._send, *self._words(number, stamp_us))

    def fill(self, stamps_us: Int64Array) -> None:
        for start in range(0, len(stamps_us), FILL_CALL_ROWS):
            part = enumerate(stamps_us[start : start + FILL_CALL_ROWS].tolist(), start)
            words = [word for number, stamp in part for word in self._words(number, stamp)]
            ask(self.endpoint.port, b"EVALSHA", self._send, b"2", BODIES, DUE, *words)

    def consumer(self, lanes: int, until: float) -> DelayConsumer:
        assert lanes == 1, "a pause would hold the others up"
        return DelayConsumer(self._take, self._settle, self._rows_max, until)

    def check(self, sent: int, settled: int) -> None:
        check_stored(self._redis, sent - settled)

    def _words(self, number: int, stamp_us: int) -> tuple[bytes, bytes, bytes]:
        return b"%016d" % number, b"%d" % (stamp_us // 1_000), stamped_body(stamp_us)


class DelayConsumer:
    """Takes what is due and settles it; pauses when nothing was."""

    def __init__(self, take: bytes, settle: bytes, rows_max: int, until: float) -> None:
        self._take, self._settle = take, settle
        self._rows_max = rows_max
        self._until = until
        self._held: list[bytes] = []
        self._settling = 0
        self._names: list[bytes] = []
        self.settled = 0
        self._pausing = False
        self.stamped: list[tuple[float, list[bytes]]] = []

    def request(self, lane: int) -> Sequence[Buffer] | None:  # noqa: ARG002 (a Script)
        if self._held:
            self._settling = len(self._held)
            return (pack([b"EVALSHA", self._settle, b"2", BODIES, LEASED, *self._held]),)
        if time.perf_counter() >= self._until:
            return None
        if self._pausing:
            time.sleep(PAUSE_S)
        now_ms = int(time.time() * 1_000)
        words = (b"%d" % now_ms, b"%d" % self._rows_max, b"%d" % (now_ms + LEASE_MS))
        return (pack([b"EVALSHA", self._take, b"3", BODIES, DUE, LEASED, *words]),)

    def answer(self, lane: int, status: int, body: Any) -> None:  # noqa: ARG002 (a Script)
        at = time.time()
        if self._settling:
            if body != self._settling:
                raise LoadError(f"settled {self._settling} messages, the answer is {body!r}")
            self.settled += body
            self._held, self._settling = [], 0
            return
        self._pausing = not body
        self._held = body[::2]
        self._names += self._held
        if body:
            self.stamped.append((at, [text[:STAMP_BYTES] for text in body[1::2]]))

    def messages(self) -> int:
        """Messages that were received once and settled. Raises LoadError if there are others."""
        agree(len(self._names), self.settled, set(self._names))
        return self.settled


# --------------------------------------------------------------------------- a work queue


def _moved(reply: Any) -> tuple[bytes, bytes] | None:
    return None if reply is None else (reply, pack([b"LREM", WORK, b"1", reply]))


MOVE: Final = RespVerbs(pack([b"RPOPLPUSH", READY, WORK]), _moved)


def fill_list(redis: RedisProcess, messages: int, body_bytes: int) -> None:
    """Put that many different bodies into the list; the count is a multiple of `FILL_ROWS`."""
    for start in range(0, messages, FILL_ROWS):
        bodies = [b"%0*d" % (body_bytes, number) for number in range(start, start + FILL_ROWS)]
        ask(redis.port, b"LPUSH", READY, *bodies)


def check_list(redis: RedisProcess, left: int) -> None:
    """Raise LoadError unless so many wait and nothing is under way."""
    found = ask(redis.port, b"LLEN", READY), ask(redis.port, b"LLEN", WORK)
    if found != (left, 0):
        raise LoadError(f"{left} bodies should be left in Redis, it has {found}")
