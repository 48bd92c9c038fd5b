"""Merges the sends of one turn of the loop into one batch, one frame and one fsync.

A send that is alone is sent at once. Single messages merge with each other, and so do batches with
the same columns. A caller that is refused, for example by a quota, is refused alone: merged sends
that were refused together are split, and an error never affects the messages of other callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np

from delaylog.broker.calls.turn.askers import Asker, Awaited, Part, frames, refuse
from delaylog.broker.calls.turn.writes import send_parts
from delaylog.broker.engine.errors import DiskFullRefusal, EngineError, NotLeadingError
from delaylog.broker.engine.model import SendResult
from delaylog.broker.engine.send.quotas import QuotaError
from delaylog.broker.engine.send.sends import check_batch
from delaylog.broker.host.waiters import TopicKey
from delaylog.replication.leader import Acks
from delaylog.storage.messages.batch import MessageBatch, Single

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


# ------------------------------------------------------------- sends that were refused together

Item = TypeVar("Item")

_ALIKE: Final = ("rate", "pending")
"""Quotas that refuse every new message of a turn once they have refused one."""


def send_apart(
    items: list[Item],
    send: Callable[[list[Item]], SendResult],
    rows: Callable[[Item], int] = lambda _: 1,
) -> Iterator[tuple[list[Item], SendResult | Exception]]:
    """Send merged items; on a refusal send the halves, until the items at fault are isolated.

    `rows` returns the number of rows of an item in the batch. Yields each part that was sent with
    its result, and each refused part with its error, in order.
    """
    parts = [items]
    # The refusal of one new message by a quota, and whether items may need no quota.
    full: Exception | None = None
    repeats = False
    while parts:
        part = parts.pop()
        try:
            result = send(part)
        except Exception as error:
            alike = isinstance(error, QuotaError) and error.facts.get("quota") in _ALIKE
            repeats = repeats or getattr(error, "fresh", None) is not None
            if alike and (split := _apart(part, error, rows)):
                # Items without new messages need no quota: send them first and separately.
                parts += split
                continue
            known = full if alike and all(rows(item) == 1 for item in part) else None
            if len(part) > 1 and _may_be_of_one(error) and known is None:
                half = len(part) // 2
                parts += [part[half:], part[:half]]
                continue
            # Not that of the part, which may be that it is too large to be sent together.
            refusal = known or error
            yield part, refusal
            if alike and rows(part[0]) == 1:
                full = refusal
                if not repeats:
                    for rest in parts:
                        yield rest, refusal
                    return
            continue
        yield part, result


def _apart(items: list[Item], error: Exception, rows: Callable[[Item], int]) -> list[list[Item]]:
    """Split items into those with new messages, which a quota refused, and those without.

    Empty if the items are all of one kind.
    """
    fresh = getattr(error, "fresh", None)
    if fresh is None:
        return []
    owners = np.repeat(np.arange(len(items)), [rows(item) for item in items])
    new = set(owners[fresh].tolist())
    if not 0 < len(new) < len(items):
        return []
    return [
        [item for at, item in enumerate(items) if at in new],
        [item for at, item in enumerate(items) if at not in new],
    ]


def _may_be_of_one(error: Exception) -> bool:
    """Whether a refusal may be due to a few messages; others refuse every message."""
    of_all = (DiskFullRefusal, NotLeadingError)
    return isinstance(error, EngineError) and not isinstance(error, of_all)


# ----------------------------------------------------------------------------------- the merger

PART_BYTES_MAX: Final = 64 << 10
FRAME_BYTES_MAX: Final = 256 << 10
"""Merging copies every body a few times, so larger ones cost more together than apart."""
SentRows: TypeAlias = tuple[SendResult, int]
"""The frame's result, and where this caller's rows begin in it."""
_Item: TypeAlias = tuple[Part, Asker[SentRows]]


class SendMerger:
    """Collects the sends of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[tuple[TopicKey, Hashable, Acks | None], list[_Item]] = {}
        self._under_way = 0
        """Sends that are not answered yet."""
        self._came_last = 1
        """Number of sends in the last turn that had any."""

    async def send(self, key: TopicKey, part: Part, acks: Acks | None = None) -> SentRows:
        """Send one caller's part; returns when it is as safe as `acks` says (None = as configured).

        A batch must not name a producer: the repeats of a producer are detected batch by batch.
        """
        crowded = self._node.engine.housekeeping.crowded()
        if crowded:
            await self._node.room()
        asker: Awaited[SentRows] = Awaited()
        # All waiting sends continue in one turn: each must see the room that earlier ones took.
        self.add(key, part, acks, asker, apart=crowded)
        return await asker.future

    def add(
        self,
        key: TopicKey,
        part: Part,
        acks: Acks | None,
        asker: Asker[SentRows],
        *,
        apart: bool = False,
    ) -> None:
        """As `send`, without waiting for room; `apart` = the part is not merged with others."""
        # A send that is alone does not wait for others. If the last turn had several sends, their
        # clients were answered together and probably send again, so this send is not alone.
        alone = not self._under_way and self._came_last == 1
        if isinstance(part, Single):
            self._node.turns.note_single_send()
            alike: Hashable = part.merge
        else:
            alike = part.shape
        self._under_way += 1
        if apart or alone or part.size_bytes > PART_BYTES_MAX:
            self._send_some([(part, asker)], key, acks)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.setdefault((key, alike, acks), []).append((part, asker))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._came_last = sum(map(len, waiting.values()))
        limits = self._node.engine.limits
        bytes_max = min(FRAME_BYTES_MAX, limits.request_bytes_max)
        for (key, _, acks), items in waiting.items():
            if len(items) > 1 and isinstance(items[0][0], MessageBatch):
                items = list(self._sound(items))
            for some in frames(items, bytes_max, limits.bulk_rows_max, itemgetter(0)):
                self._send_some(some, key, acks)

    def _sound(self, items: list[_Item]) -> Iterator[_Item]:
        """Items with a valid batch; the others are refused. Single messages are checked already."""
        state, now_ms = self._node.engine.state, self._node.clock.now_ms()
        for part, asker in items:
            try:
                if isinstance(part, MessageBatch):
                    check_batch(state, part, now_ms)
            except Exception as error:
                self._under_way -= 1
                asker.refuse(error)
            else:
                yield part, asker

    def _send_some(self, items: list[_Item], key: TopicKey, acks: Acks | None) -> None:
        outcomes: Iterable[tuple[list[_Item], SendResult | Exception]]
        if len(items) == 1:
            # There are no others to keep it apart from.
            outcomes = [(items, self._tried(items, key))]
        else:
            outcomes = send_apart(items, partial(self._send, key=key), lambda item: item[0].n)
        for some, sent in outcomes:
            if isinstance(sent, Exception):
                self._under_way -= len(some)
                refuse([asker for _, asker in some], sent)
            else:
                self._node.role.when_safe(sent.position, acks, _WhenSafe(self, some, sent))

    def _tried(self, items: list[_Item], key: TopicKey) -> SendResult | Exception:
        try:
            return self._send(items, key)
        except Exception as error:
            return error

    def _send(self, items: list[_Item], key: TopicKey) -> SendResult:
        node = self._node
        node.role.check()
        result = send_parts(node, key, [part for part, _ in items])
        node.appended()
        return result


class _WhenSafe:
    """A callback: the frame of some sends is safe, or will not be."""

    __slots__ = ("_items", "_merger", "_result")

    def __init__(self, merger: SendMerger, items: list[_Item], result: SendResult) -> None:
        self._merger = merger
        self._items = items
        self._result = result

    def __call__(self, error: BaseException | None) -> None:
        self._merger._under_way -= len(self._items)
        first = 0
        for part, asker in self._items:
            if error is None:
                asker.tell((self._result, first))
                first += part.n
            else:
                asker.refuse(error)
