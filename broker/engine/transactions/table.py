"""The table of transactions: what frames say about each, and what a checkpoint keeps.

A transaction is open, then decided. One that was committed stays `Unpublished` until all its rows
stand in their hours; then it is remembered like the others that ended, for seven days. Nothing
here judges a call or touches a message.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.transactions.held import Held, HeldTable, bytes_below
from delaylog.broker.engine.transactions.open_transaction import (
    ROW_BYTES,
    OpenTransaction,
    Unpublished,
)
from delaylog.broker.engine.transactions.parts import PartTable
from delaylog.storage.log.transaction_frames import (
    PART,
    RESULTS,
    EndedTransaction,
    PublishDecision,
    StagedPart,
)

ENDED_KEPT_MS: Final = 7 * 86_400_000
"""So long it can be asked what became of a transaction."""
ENDED_KEPT_MAX: Final = 100_000
"""Ended ones that are remembered: about 200 bytes each. The oldest go first, and are counted."""


class TransactionTable:
    """All transactions."""

    def __init__(self) -> None:
        self.open: dict[str, OpenTransaction] = {}
        self.unpublished: dict[int, Unpublished] = {}
        """By number, in the order they were committed and are published in."""
        self._publishing: dict[str, Unpublished] = {}
        self._by_number: dict[int, OpenTransaction] = {}
        self._ended: dict[str, bytes] = {}
        self._ended_names: deque[str] = deque()
        """The oldest first. A checkpoint takes this and the next in one go, so they are no dict."""
        self._ended_saved: deque[bytes] = deque()
        self._held = HeldTable()
        self._shifted_ms = 0
        self.next_number = 1
        self.staged_bytes = 0
        """Of the parts of open transactions."""
        self.staged_rows = 0
        self.staged_parts = 0
        self.discarded_rows = 0
        """Rows that were staged and never committed, since the folder's birth."""
        self.published_rows = 0
        self.published_bytes = 0
        """Of the parts they were in, since this start: what PUBLISH frames stand for."""
        self.dropped = 0
        """Ended ones that were forgotten for lack of room."""

    # ------------------------------------------------------------------ looking

    def __len__(self) -> int:
        return len(self.open) + len(self.unpublished) + len(self._ended)

    def publishing(self, name: str) -> Unpublished | None:
        """A committed one that is not all through yet, by id."""
        return self._publishing.get(name)

    def ended(self, name: str) -> EndedTransaction | None:
        """One that has ended, by id."""
        raw = self._ended.get(name)
        return None if raw is None else EndedTransaction.decode(raw)

    def newest_ended(self, count: int) -> list[tuple[str, EndedTransaction]]:
        """The ones that ended last, newest first."""
        newest = itertools.islice(
            zip(reversed(self._ended_names), reversed(self._ended_saved), strict=True), count
        )
        return [(name, EndedTransaction.decode(raw)) for name, raw in newest]

    @property
    def ended_count(self) -> int:
        """How many ended ones are remembered."""
        return len(self._ended)

    def holds(self, topic: int) -> bool:
        """Whether rows of a topic are staged or on their way: it is in use."""
        return topic in self._held

    def held_for(self, topic: int) -> Held:
        """What is staged or on its way of a topic; not to be changed."""
        return self._held.of(topic)

    def on_way(self, topic: int, position: int) -> bool:
        """Whether rows of a topic that were committed in front of `position` are not through."""
        return any(
            one.position < position and bool((one.parts["topic"][one.at :] == topic).any())
            for one in self.unpublished.values()
        )

    @property
    def unpublished_rows(self) -> int:
        """Committed rows that are not in their hours yet."""
        return sum(one.rows - one.published for one in self.unpublished.values())

    def lag_ms(self, now_ms: int) -> int:
        """Since when the oldest of them waits."""
        first = next(iter(self.unpublished.values()), None)
        return 0 if first is None else max(now_ms - first.decided_ms, 0)

    @property
    def debt_bytes(self) -> int:
        """About what committed rows will still take on disk."""
        return sum(one.debt_bytes for one in self.unpublished.values())

    @property
    def staged_debt_bytes(self) -> int:
        """About what open transactions would take if all of them were committed."""
        return self.staged_bytes + self.staged_rows * ROW_BYTES

    def log_from(self, position: int) -> int:
        """From where on the log is needed: the first part that may still be read."""
        opened = [int(one.parts.columns["position"][0]) for one in self.open.values() if one.rows]
        return min([position, *opened, *(one.log_from for one in self.unpublished.values())])

    def oldest_open(self) -> OpenTransaction | None:
        """The one whose parts hold the oldest log."""
        staged = [one for one in self.open.values() if len(one.parts)]
        return min(staged, key=lambda one: int(one.parts.columns["position"][0]), default=None)

    def overdue(self, now_ms: int) -> list[OpenTransaction]:
        """Open ones whose time is over."""
        return [one for one in self.open.values() if one.expires_ms <= now_ms]

    def forgets(self, before_ms: int) -> bool:
        """Whether one ended before a time."""
        return bool(self._ended) and self._kept_from(self._ended_saved[0]) < before_ms

    def _kept_from(self, raw: bytes) -> int:
        return EndedTransaction.decode(raw).kept_from_ms + self._shifted_ms

    # ------------------------------------------------------------------ frames

    def begin(
        self, number: int, name: str, *, ttl_ms: int, expires_ms: int, leader_time_ms: int
    ) -> None:
        """A transaction begins, or gets more time."""
        known = self._by_number.get(number)
        if known is not None:
            known.ttl_ms, known.expires_ms = ttl_ms, expires_ms
            return
        self.next_number = max(self.next_number, number + 1)
        made = OpenTransaction(number, name, leader_time_ms, ttl_ms, expires_ms)
        self.open[name] = self._by_number[number] = made

    def stage(self, part: StagedPart, position: int, size: int) -> None:
        """A part is staged by the frame at `position`."""
        one = self._by_number[part.transaction]
        one.parts.add(part, position, size)
        one.expires_ms = part.expires_ms
        one.rows += part.rows
        one.bytes += size
        self.staged_rows += part.rows
        self.staged_bytes += size
        self.staged_parts += 1
        self._held.add(part.topic, part.rows, size, staged=part.rows)

    def commit(
        self, number: int, places: np.ndarray[Any, Any], leader_time_ms: int, position: int
    ) -> Unpublished:
        """A transaction is decided: these parts have won."""
        one = self._leave(number)
        parts = one.parts.take(places)
        rows = int(parts["rows"].sum())
        self._held.add_parts(parts)
        lost = one.rows - rows
        self.discarded_rows += lost
        decided = Unpublished(
            number,
            one.id,
            leader_time_ms,
            position,
            parts,
            rows,
            int(parts["bytes"].sum()),
            lost,
        )
        if decided.done:
            self._end_published(decided)
        else:
            self.unpublished[number] = self._publishing[one.id] = decided
        return decided

    def end(self, number: int, state: str, leader_time_ms: int) -> None:
        """A transaction is aborted, or has expired."""
        one = self._leave(number)
        self.discarded_rows += one.rows
        none = (0,) * len(RESULTS)
        kept_from = leader_time_ms - self._shifted_ms
        self._remember(
            one.id,
            EndedTransaction(
                state,
                len(one.parts),
                one.rows,
                one.bytes,
                one.rows,
                none,
                leader_time_ms,
                kept_from,
            ),
        )

    def forget(self, before_ms: int) -> None:
        """What ended before that is not remembered any more."""
        while self.forgets(before_ms):
            self._forget_first()

    def published(self, decision: PublishDecision) -> None:
        """A range of rows is through."""
        one = self.unpublished[decision.transaction]
        part = one.parts[one.at]
        assert decision.part == int(part["position"]), "parts are published in order"
        assert decision.first == one.row, "so are their rows"
        n = decision.stop - decision.first
        size = bytes_below(part, decision.stop) - bytes_below(part, decision.first)
        one.published += n
        self.published_rows += n
        self.published_bytes += size
        one.row = decision.stop
        one.counts = [a + b for a, b in zip(one.counts, decision.counts, strict=True)]
        self._held.add(int(part["topic"]), -n, -size)
        if one.row == int(part["rows"]):
            one.at, one.row = one.at + 1, 0
        if one.done:
            del self.unpublished[one.number], self._publishing[one.id]
            self._end_published(one)

    def _leave(self, number: int) -> OpenTransaction:
        """It is open no more."""
        one = self._by_number.pop(number)
        del self.open[one.id]
        self.staged_bytes -= one.bytes
        self.staged_rows -= one.rows
        self.staged_parts -= len(one.parts)
        self._held.remove_staged(one.parts.columns)
        return one

    def _end_published(self, one: Unpublished) -> None:
        kept_from = one.decided_ms - self._shifted_ms
        self._remember(
            one.id,
            EndedTransaction(
                "committed",
                len(one.parts),
                one.rows,
                one.bytes,
                one.discarded_rows,
                tuple(one.counts),
                one.decided_ms,
                kept_from,
            ),
        )

    def _remember(self, name: str, ended: EndedTransaction) -> None:
        raw = ended.encode()
        if name in self._ended:
            self._ended_saved[self._ended_names.index(name)] = raw
        else:
            self._ended_names.append(name)
            self._ended_saved.append(raw)
        self._ended[name] = raw
        while len(self._ended) > ENDED_KEPT_MAX:
            self._forget_first()
            self.dropped += 1

    def _forget_first(self) -> None:
        del self._ended[self._ended_names.popleft()]
        self._ended_saved.popleft()

    def shift(self, step_ms: int) -> None:
        """The clock made a step: what is left of each transaction's time stays."""
        self._shifted_ms += step_ms
        for one in self.open.values():
            one.began_ms += step_ms
            one.expires_ms += step_ms
        for decided in self.unpublished.values():
            # Set back, it would be decided in a time to come, and its rows due then.
            decided.decided_ms += min(step_ms, 0)

    # ------------------------------------------------------------------ checkpoints

    def snapshot(self, position: int) -> dict[str, Any]:
        """For a checkpoint at `position`."""
        return {
            "log_from": self.log_from(position),
            "next": self.next_number,
            "shifted": self._shifted_ms,
            "discarded": self.discarded_rows,
            "published": self.published_rows,
            "dropped": self.dropped,
            "open": [
                [
                    one.number,
                    one.id,
                    one.began_ms,
                    one.ttl_ms,
                    one.expires_ms,
                    one.parts.snapshot(),
                ]
                for one in self.open.values()
            ],
            "unpublished": [
                [
                    one.number,
                    one.id,
                    one.decided_ms,
                    one.position,
                    one.parts.tobytes(),
                    one.discarded_rows,
                    one.published,
                    one.at,
                    one.row,
                    list(one.counts),
                ]
                for one in self.unpublished.values()
            ],
            "ended_ids": list(self._ended_names),
            "ended": b"".join(self._ended_saved),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Of a checkpoint, into an empty table."""
        self.next_number, self._shifted_ms = saved["next"], saved["shifted"]
        self.discarded_rows, self.published_rows = saved["discarded"], saved["published"]
        self.dropped = saved["dropped"]
        for number, name, began_ms, ttl_ms, expires_ms, parts in saved["open"]:
            table = PartTable.restored(parts)
            self._restore_open(OpenTransaction(number, name, began_ms, ttl_ms, expires_ms, table))
        for number, name, decided_ms, position, parts, lost, published, at, row, counts in saved[
            "unpublished"
        ]:
            columns = np.frombuffer(parts, PART)
            one = Unpublished(
                number,
                name,
                decided_ms,
                position,
                columns,
                int(columns["rows"].sum()),
                int(columns["bytes"].sum()),
                lost,
                published,
                at,
                row,
                counts,
            )
            self._restore_unpublished(one)
        size = len(saved["ended"]) // max(len(saved["ended_ids"]), 1)
        for number, name in enumerate(saved["ended_ids"]):
            raw = saved["ended"][number * size : (number + 1) * size]
            self._ended[name] = raw
            self._ended_names.append(name)
            self._ended_saved.append(raw)

    def _restore_open(self, one: OpenTransaction) -> None:
        parts = one.parts.columns
        one.rows, one.bytes = int(parts["rows"].sum()), int(parts["bytes"].sum())
        self.open[one.id] = self._by_number[one.number] = one
        self.staged_bytes += one.bytes
        self.staged_rows += one.rows
        self.staged_parts += len(parts)
        self._held.add_parts(parts, staged=True)

    def _restore_unpublished(self, one: Unpublished) -> None:
        left = one.parts[one.at :]
        self._held.add_parts(left)
        self._held.add(int(left["topic"][0]), -one.row, -bytes_below(left[0], one.row))
        self.unpublished[one.number] = self._publishing[one.id] = one
