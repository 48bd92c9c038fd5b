"""The table of transactions. Frames change it, and checkpoints store it.

A transaction is open until it is decided. A committed one is `Unpublished` until all its rows are
in their hours; then it is remembered for seven days, like aborted and expired ones. Nothing here
checks a call or touches a message.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.transactions.open_transaction import (
    ROW_BYTES,
    OpenTransaction,
    Unpublished,
)
from delaylog.broker.engine.transactions.outstanding import (
    Outstanding,
    OutstandingTable,
    bytes_below,
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
"""How long the outcome of a transaction is remembered."""
ENDED_KEPT_MAX: Final = 100_000
"""Ended transactions that are remembered: about 200 bytes each. The oldest are forgotten first."""


class TransactionTable:
    """All transactions."""

    def __init__(self) -> None:
        self.open: dict[str, OpenTransaction] = {}
        self.unpublished: dict[int, Unpublished] = {}
        """By number, in the order of commit and publication."""
        self._publishing: dict[str, Unpublished] = {}
        self._by_number: dict[int, OpenTransaction] = {}
        self._ended: dict[str, bytes] = {}
        self._ended_names: deque[str] = deque()
        """The oldest first. Not a dict, so that a checkpoint copies this and the next at once."""
        self._ended_saved: deque[bytes] = deque()
        self._outstanding = OutstandingTable()
        self._shifted_ms = 0
        self.next_number = 1
        self.staged_bytes = 0
        """Bytes of the parts of open transactions."""
        self.staged_rows = 0
        self.staged_parts = 0
        self.discarded_rows = 0
        """Rows that were staged and never committed, since the folder was created."""
        self.published_rows = 0
        self.published_bytes = 0
        """Bytes of the parts of published rows, since this start."""
        self.dropped = 0
        """Ended transactions that were forgotten because of `ENDED_KEPT_MAX`."""

    # ------------------------------------------------------------------ look-ups

    def __len__(self) -> int:
        return len(self.open) + len(self.unpublished) + len(self._ended)

    def publishing(self, name: str) -> Unpublished | None:
        """A committed transaction that is not published completely, by id."""
        return self._publishing.get(name)

    def ended(self, name: str) -> EndedTransaction | None:
        """A transaction that has ended, by id."""
        raw = self._ended.get(name)
        return None if raw is None else EndedTransaction.decode(raw)

    def newest_ended(self, count: int) -> list[tuple[str, EndedTransaction]]:
        """The transactions that ended last, newest first."""
        newest = itertools.islice(
            zip(reversed(self._ended_names), reversed(self._ended_saved), strict=True), count
        )
        return [(name, EndedTransaction.decode(raw)) for name, raw in newest]

    @property
    def ended_count(self) -> int:
        """Number of ended transactions that are remembered."""
        return len(self._ended)

    def has_rows_of(self, topic: int) -> bool:
        """Whether a topic has outstanding rows, so that it is in use."""
        return topic in self._outstanding

    def outstanding_of(self, topic: int) -> Outstanding:
        """Outstanding rows of a topic. The caller must not change the result."""
        return self._outstanding.of(topic)

    def on_way(self, topic: int, position: int) -> bool:
        """Whether rows of a topic that were committed before `position` are unpublished."""
        return any(
            one.position < position and bool((one.parts["topic"][one.at :] == topic).any())
            for one in self.unpublished.values()
        )

    @property
    def unpublished_rows(self) -> int:
        """Committed rows that are not in their hours yet."""
        return sum(one.rows - one.published for one in self.unpublished.values())

    def lag_ms(self, now_ms: int) -> int:
        """How long the oldest unpublished transaction has been waiting."""
        first = next(iter(self.unpublished.values()), None)
        return 0 if first is None else max(now_ms - first.decided_ms, 0)

    @property
    def debt_bytes(self) -> int:
        """Approximate disk space that committed rows will still take."""
        # Every send asks, and there is seldom one.
        if not self.unpublished:
            return 0
        return sum(one.debt_bytes for one in self.unpublished.values())

    @property
    def staged_debt_bytes(self) -> int:
        """Approximate disk space that open transactions would take if all were committed."""
        return self.staged_bytes + self.staged_rows * ROW_BYTES

    def log_from(self, position: int) -> int:
        """Position from which the log is needed: that of the first part that may still be read."""
        opened = [int(one.parts.columns["position"][0]) for one in self.open.values() if one.rows]
        return min([position, *opened, *(one.log_from for one in self.unpublished.values())])

    def oldest_open(self) -> OpenTransaction | None:
        """The open transaction with the oldest part in the log."""
        staged = [one for one in self.open.values() if len(one.parts)]
        return min(staged, key=lambda one: int(one.parts.columns["position"][0]), default=None)

    def overdue(self, now_ms: int) -> list[OpenTransaction]:
        """Open transactions past their expiry time."""
        return [one for one in self.open.values() if one.expires_ms <= now_ms]

    def forgets(self, before_ms: int) -> bool:
        """Whether a remembered transaction ended before `before_ms`."""
        return bool(self._ended) and self._kept_from(self._ended_saved[0]) < before_ms

    def _kept_from(self, raw: bytes) -> int:
        return EndedTransaction.decode(raw).kept_from_ms + self._shifted_ms

    # ------------------------------------------------------------------ frames

    def begin(
        self,
        number: int,
        name: str,
        *,
        ttl_ms: int,
        expires_ms: int,
        leader_time_ms: int,
        owner: str = "",
    ) -> None:
        """Begin a transaction, or give it more time."""
        known = self._by_number.get(number)
        if known is not None:
            known.ttl_ms, known.expires_ms = ttl_ms, expires_ms
            return
        self.next_number = max(self.next_number, number + 1)
        made = OpenTransaction(number, name, leader_time_ms, ttl_ms, expires_ms, owner=owner)
        self.open[name] = self._by_number[number] = made

    def stage(self, part: StagedPart, position: int, size: int) -> None:
        """Add a part that the frame at `position` has staged."""
        one = self._by_number[part.transaction]
        one.parts.add(part, position, size)
        one.expires_ms = part.expires_ms
        one.rows += part.rows
        one.bytes += size
        self.staged_rows += part.rows
        self.staged_bytes += size
        self.staged_parts += 1
        self._outstanding.add(part.topic, part.rows, size, staged=part.rows)

    def commit(
        self, number: int, indexes: np.ndarray[Any, Any], leader_time_ms: int, position: int
    ) -> Unpublished:
        """Commit a transaction: the parts at `indexes` have won."""
        one = self._leave(number)
        parts = one.parts.take(indexes)
        rows = int(parts["rows"].sum())
        self._outstanding.add_parts(parts)
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
        """End a transaction that was aborted or has expired."""
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
        """Forget transactions that ended before `before_ms`."""
        while self.forgets(before_ms):
            self._forget_first()

    def published(self, decision: PublishDecision) -> None:
        """Note that a range of rows was published."""
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
        self._outstanding.add(int(part["topic"]), -n, -size)
        if one.row == int(part["rows"]):
            one.at, one.row = one.at + 1, 0
        if one.done:
            del self.unpublished[one.number], self._publishing[one.id]
            self._end_published(one)

    def _leave(self, number: int) -> OpenTransaction:
        """Remove a transaction from the open ones."""
        one = self._by_number.pop(number)
        del self.open[one.id]
        self.staged_bytes -= one.bytes
        self.staged_rows -= one.rows
        self.staged_parts -= len(one.parts)
        self._outstanding.remove_staged(one.parts.columns)
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
        """The clock jumped: open transactions keep their remaining time."""
        self._shifted_ms += step_ms
        for one in self.open.values():
            one.began_ms += step_ms
            one.expires_ms += step_ms
        for decided in self.unpublished.values():
            # Otherwise, after a step back, its time of decision would lie in the future, and delays
            # count from it.
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
            "owners": {one.number: one.owner for one in self.open.values() if one.owner},
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
        """Fill an empty table from a checkpoint."""
        self.next_number, self._shifted_ms = saved["next"], saved["shifted"]
        self.discarded_rows, self.published_rows = saved["discarded"], saved["published"]
        self.dropped = saved["dropped"]
        for number, name, began_ms, ttl_ms, expires_ms, parts in saved["open"]:
            table = PartTable.restored(parts)
            opened = OpenTransaction(number, name, began_ms, ttl_ms, expires_ms, table)
            opened.owner = saved["owners"].get(number, "")
            self._restore_open(opened)
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
        self._outstanding.add_parts(parts, staged=True)

    def _restore_unpublished(self, one: Unpublished) -> None:
        left = one.parts[one.at :]
        self._outstanding.add_parts(left)
        self._outstanding.add(int(left["topic"][0]), -one.row, -bytes_below(left[0], one.row))
        self.unpublished[one.number] = self._publishing[one.id] = one
