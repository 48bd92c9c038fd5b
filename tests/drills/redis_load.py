"""Clients of the Redis-compatible endpoint that know exactly what they must find.

Each owns its keys and sends pipelines of random commands. A keyspace in this process is its model:
every answer must be the model's, and after each failure the keys must hold what was acknowledged
and the first so many of the commands that were not answered, MULTI whole or not at all. A message
that was acknowledged must come, whatever fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import hiredis

from tests.broker.resp.resp_client import RespClient
from tests.redis_in_process import Shared

Unit = list[tuple[Any, ...]]
"""Commands that are answered together: one, or all from MULTI to EXEC."""

REFUSED = ("READONLY", "MASTERDOWN", "EXECABORT")
"""Answers of a node that takes no writes: it was not done."""
FAR_MS, STEP_MS = 4_000_000_000_000, 1_000_000
KEYS = ("s0", "s1", "n0", "l0", "l1", "h0", "t0", "t1", "z0", "z1", "x0")
READ = {
    "s": ("GET",),
    "n": ("GET",),
    "l": ("LRANGE", 0, -1),
    "h": ("HGETALL",),
    "t": ("SMEMBERS",),
    "z": ("ZRANGE", 0, -1, "WITHSCORES"),
    "x": ("XRANGE", "-", "+"),
}


def end(left_s: int) -> int:
    """When a key expires, in steps, whatever time the answer took; -1 = never."""
    return left_s if left_s < 0 else round((time.time() + left_s) * 1_000 / STEP_MS)


def shape(key: str, value: Any) -> Any:
    """A value as it is compared: sets and hashes have no order."""
    if isinstance(value, list) and key[0] == "t":
        return sorted(value)
    if isinstance(value, list) and key[0] == "h":
        return sorted(zip(value[::2], value[1::2], strict=True))
    return value


class OwningClient:
    """One client; `find` connects to whoever takes writes, or returns None."""

    def __init__(self, name: str, seed: int, find: Callable[[], RespClient | None]) -> None:
        self.name = name
        self.problems: list[str] = []
        self.answered = 0
        self.settled = 0
        self.refused = 0
        self.acknowledged: set[bytes] = set()
        self.stopping = False
        self._find = find
        self._random = Random(f"{seed} {name}")
        self._shared = Shared(lambda: int(time.time() * 1000))
        self._model = self._shared.connect()
        self._unanswered: list[Unit] = []
        self._sent = 0
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the load; what is under way is answered, or settled by `check`."""
        self.stopping = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self.stopping and not self.problems:
                self._session()
        except Exception as error:
            self.problems.append(f"{self.name}: {error!r}")

    def _session(self) -> None:
        client = self._find()
        if client is None:
            time.sleep(0.02)
            return
        try:
            if not self.check(client):
                return
            while not self.stopping and not self.problems:
                if not self._pipeline(client):
                    return
        except (ConnectionError, OSError):
            pass
        finally:
            client.close()

    # ------------------------------------------------------------------ sending

    def _pipeline(self, client: RespClient) -> bool:
        """Send some commands, take their answers; False if the node refused some."""
        most = self._random.choice((1, 5, 40))
        units = [self._unit() for _ in range(self._random.randint(1, most))]
        self._unanswered = list(units)
        client.sock.sendall(b"".join(hiredis.pack_command(argv) for unit in units for argv in unit))
        good = True
        for unit in units:
            reply = [client.reply() for _ in unit][-1]
            self._unanswered.pop(0)
            self.answered += 1
            if isinstance(reply, hiredis.ReplyError) and str(reply).startswith(REFUSED):
                self.refused += 1
                good = False
            elif unit[0][0] == "DL.SEND":
                if isinstance(reply, hiredis.ReplyError):
                    self.problems.append(f"{self.name}: {unit}: {reply}")
                else:
                    self.acknowledged.add(unit[0][3])
            elif repr(expected := self._apply(unit)) != repr(reply):
                self.problems.append(f"{self.name}: {unit} gave {reply!r}, not {expected!r}")
        return good

    def _apply(self, unit: Unit) -> Any:
        """What the model answers."""
        if unit[0][0] == "DL.SEND":
            return None
        wire = b"".join(hiredis.pack_command(argv) for argv in unit)
        told = self._model.send(wire)
        while self._model.session.blocked is not None:
            time.sleep(0.002)
            self._shared.turn()
            told += self._model.take()
        return self._decode(told)[-1]

    @staticmethod
    def _decode(wire: bytes) -> list[Any]:
        reader = hiredis.Reader()
        reader.feed(wire)
        found = []
        while (reply := reader.gets()) is not False:
            found.append(reply)
        return found

    # ------------------------------------------------------------------ what is sent

    def _unit(self) -> Unit:
        if self._random.random() < 0.08:
            inner = [self._command() for _ in range(self._random.randint(1, 6))]
            return [("MULTI",), *inner, ("EXEC",)]
        if self._random.random() < 0.08:
            self._sent += 1
            body = f"{self.name}-{self._sent}".encode()
            return [("DL.SEND", self.name, self._random.choice((0, 200, 3_000)), body)]
        return [self._command()]

    def _command(self) -> tuple[Any, ...]:
        random = self._random
        key = random.choice(KEYS)
        owned = f"{self.name}:{key}"
        other = f"{self.name}:{key[0]}1"
        word = f"m{random.randrange(20)}"
        number = random.randrange(-50, 50)
        choices: dict[str, list[tuple[Any, ...]]] = {
            "s": [
                ("SET", owned, word),
                ("SET", owned, word, "PXAT", FAR_MS + number * STEP_MS),
                ("GETSET", owned, word),
                ("SETNX", owned, word),
                ("MSET", owned, word, other, word),
            ],
            "n": [
                ("INCR", owned),
                ("INCRBY", owned, number),
                ("DECR", owned),
                ("INCRBYFLOAT", f"{owned}f", number / 4),
            ],
            "l": [
                ("RPUSH", owned, word, number),
                ("LPUSH", owned, word),
                ("LPOP", owned),
                ("RPOP", owned, 2),
                ("LTRIM", owned, -30, -1),
                ("LMOVE", owned, other, "LEFT", "RIGHT"),
                ("LREM", owned, 1, word),
                ("BLPOP", owned, other, 0.001),
            ],
            "h": [
                ("HSET", owned, word, number, f"{word}x", word),
                ("HINCRBY", owned, f"n{number % 3}", number),
                ("HDEL", owned, word),
                ("HSETNX", owned, word, number),
            ],
            "t": [
                ("SADD", owned, word, number),
                ("SREM", owned, word),
            ],
            "z": [
                ("ZADD", owned, number, word),
                ("ZADD", owned, "GT", "CH", number, word),
                ("ZINCRBY", owned, number / 2, word),
                ("ZREM", owned, word),
                ("ZPOPMIN", owned),
                ("ZREMRANGEBYSCORE", owned, number, number + 5),
            ],
            "x": [
                ("XADD", owned, "MAXLEN", 20, f"{self._next()}-1", word, number),
                ("XTRIM", owned, "MAXLEN", 10),
            ],
        }
        if random.random() < 0.04:
            return random.choice(
                [
                    ("DEL", owned),
                    ("UNLINK", owned),
                    ("PEXPIREAT", owned, FAR_MS + number * STEP_MS),
                    ("PERSIST", owned),
                ]
            )
        return random.choice(choices[key[0]])

    def _next(self) -> int:
        self._sent += 1
        return self._sent

    # ------------------------------------------------------------------ checking

    def _reads(self) -> list[tuple[Any, ...]]:
        reads: list[tuple[Any, ...]] = []
        for key in (*KEYS, "n0f"):
            word, *options = READ[key[0]]
            reads.append((word, f"{self.name}:{key}", *options))
            reads.append(("TTL", f"{self.name}:{key}"))
        return reads

    def check(self, client: RespClient) -> bool:
        """Whether the node takes writes; the keys must hold what they may."""
        reads = self._reads()
        # The write shows that this is no follower, which might lie behind.
        found = client.pipeline(("MULTI",), ("INCR", f"{self.name}:checks"), *reads, ("EXEC",))[-1]
        if not isinstance(found, list):
            return False
        values = self._shaped(found[1:])
        tried = list(self._unanswered)
        self.settled += 1
        while (expected := self._shaped(self._modelled(reads))) != values:
            if not self._unanswered:
                keys = (*KEYS, "n0f")
                wrong = [
                    f"{key}: {got} is not {wanted}"
                    for key, got, wanted in zip(keys, values, expected, strict=True)
                    if got != wanted
                ]
                self.problems.append(f"{self.name} after {len(tried)} unanswered {tried}: {wrong}")
                return False
            self._apply(self._unanswered.pop(0))
        self._unanswered = []
        return True

    def _modelled(self, reads: list[tuple[Any, ...]]) -> list[Any]:
        return self._decode(self._model.send(b"".join(map(hiredis.pack_command, reads))))

    @staticmethod
    def _shaped(replies: list[Any]) -> list[Any]:
        keys = (*KEYS, "n0f")
        pairs = zip(keys, replies[::2], replies[1::2], strict=True)
        return [(shape(key, value), end(left_s)) for key, value, left_s in pairs]

    def drain(self, client: RespClient) -> bool:
        """Whether all acknowledged messages came; more of them with each call.

        As many receives as it takes: each may bring one message only. What has not come when
        none came for 10 s, longer than any delay here, is lost.
        """
        deadline = time.monotonic() + 10
        while self.acknowledged and time.monotonic() < deadline:
            reply = client.call("DL.RECEIVE", self.name, 500, "WAIT", 500)
            if isinstance(reply, hiredis.ReplyError):
                return False
            for _, receipt, body, _, _ in reply:
                self.acknowledged.discard(body)
                client.call("DL.ACK", self.name, receipt)
                deadline = time.monotonic() + 10
        return not self.acknowledged

    def is_held_by(self, client: RespClient) -> bool:
        """Whether a node, perhaps a follower, holds what the model does."""
        reads = self._reads()
        replies = client.pipeline(*reads)
        if any(isinstance(reply, hiredis.ReplyError) for reply in replies):
            return False
        return bool(self._shaped(replies) == self._shaped(self._modelled(reads)))
