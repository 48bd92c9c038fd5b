"""Single sends of one turn of the loop become one batch, one frame and one fsync.

Each message was checked by itself before it came here, so one caller's mistake never touches
another's message. What is refused all the same (a quota is used up) is refused message by message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np

from delaylog.broker.engine.errors import DiskFullRefusal, EngineError, NotLeadingError
from delaylog.broker.engine.model import SendResult
from delaylog.broker.engine.quotas import QuotaError
from delaylog.broker.engine.sending import send
from delaylog.broker.node import Node
from delaylog.broker.waiters import TopicKey
from delaylog.broker.web.shapes import Single
from delaylog.replication.leader import Acks
from delaylog.storage.batch import decode_send, encode_send

Answer: TypeAlias = tuple[SendResult, int]
"""The batch's result and this message's row in it."""
Items: TypeAlias = "list[tuple[Single, asyncio.Future[Answer]]]"
_ALIKE: Final = ("rate", "pending")
"""Quotas that refuse every new message of a turn once they have refused one."""


def build_wire(singles: list[Single], now_ms: int, merge: str | None, **scalars: object) -> bytes:
    """A bulk body of single messages."""
    n = len(singles)
    columns: dict[str, object] = {
        "n": n,
        "deliver_at_ms": np.array(
            [s.due_ms + now_ms if s.relative else s.due_ms for s in singles], np.int64
        ),
        "body_size": np.array([len(s.body) for s in singles], np.int64),
        "bodies": b"".join([s.body for s in singles]),
        **scalars,
    }
    if merge is not None:
        columns["merge"] = merge
    if not all(s.plain for s in singles):
        for name in ("id", "key", "tags", "headers"):
            values = [getattr(s, name) for s in singles]
            if any(values):
                columns[f"{name}_size"] = np.array([len(v) for v in values], np.int64)
                columns[name] = b"".join(values)
        columns["priority"] = np.array([s.priority for s in singles], np.int64)
        columns["ttl_ms"] = np.array([s.ttl_ms for s in singles], np.int64)
        columns["max_retry"] = np.array([s.max_retry for s in singles], np.int64)
    return encode_send(columns)


class SingleMerger:
    """Collects the singles of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[TopicKey, str | None, Acks | None], Items] = {}

    async def send(self, key: TopicKey, single: Single, acks: Acks | None = None) -> Answer:
        """Send one message; returns when it is as safe as `acks` says (None = as configured)."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.setdefault((key, single.merge, acks), []).append((single, future))
        return await future

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (key, merge, acks), items in waiting.items():
            for part in self._frames(items):
                self._send_part(part, key, merge, acks)

    def _frames(self, items: Items) -> Iterator[Items]:
        """What together is no more than one request may be: a frame has its limit too."""
        limits = self._node.engine.limits
        part: Items = []
        size = 0
        for item in items:
            size += len(item[0].body)
            if part and (size > limits.request_bytes_max or len(part) >= limits.bulk_rows_max):
                yield part
                part, size = [], len(item[0].body)
            part.append(item)
        yield part

    def _send_part(self, items: Items, key: TopicKey, merge: str | None, acks: Acks | None) -> None:
        """Send what was merged; halves of it where it is refused, until it is clear whose it is."""
        parts = [items]
        while parts:
            part = parts.pop()
            try:
                result = self._send([single for single, _ in part], key, merge)
            except Exception as error:
                alike = isinstance(error, QuotaError) and error.facts.get("quota") in _ALIKE
                if alike and (split := _apart(part, error)):
                    # What is no new message needs no quota: it goes first, and by itself.
                    parts += split
                    continue
                if len(part) > 1 and _may_be_of_one(error):
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                    continue
                _refuse(part, error)
                if alike:
                    for rest in parts:
                        _refuse(rest, error)
                    return
                continue
            futures = [future for _, future in part]
            self._node.standing.when_safe(result.position, acks, _Answers(result, futures))

    def _send(self, singles: list[Single], key: TopicKey, merge: str | None) -> SendResult:
        node = self._node
        node.standing.check()
        now_ms = node.clock.now_ms()
        topic = node.engine.make_topic(key[1], now_ms, key[0])
        batch = decode_send(build_wire(singles, now_ms, merge), rows_max=len(singles))
        result = send(node.engine.state, topic, batch, now_ms, free_bytes=node.free_bytes())
        node.appended()
        return result


class _Answers:
    """Answers the callers of one merged batch."""

    __slots__ = ("_futures", "_result")

    def __init__(self, result: SendResult, futures: list[asyncio.Future[Answer]]) -> None:
        self._result = result
        self._futures = futures

    def __call__(self, error: BaseException | None) -> None:
        for row, future in enumerate(self._futures):
            if future.done():
                continue
            if error is None:
                future.set_result((self._result, row))
            else:
                future.set_exception(error)


def _apart(items: Items, error: Exception) -> list[Items]:
    """The new messages of what a quota refused, and the others; nothing unless there are both."""
    fresh = getattr(error, "fresh", None)
    if fresh is None or not 0 < len(fresh) < len(items):
        return []
    new = set(fresh.tolist())
    return [
        [item for at, item in enumerate(items) if at in new],
        [item for at, item in enumerate(items) if at not in new],
    ]


def _may_be_of_one(error: Exception) -> bool:
    """Whether a refusal may be about some of the messages only."""
    of_all = (DiskFullRefusal, NotLeadingError)
    return isinstance(error, EngineError) and not isinstance(error, of_all)


def _refuse(items: Items, error: Exception) -> None:
    for _, future in items:
        if not future.done():
            future.set_exception(error)
