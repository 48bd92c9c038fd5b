"""Index rows of a few single messages, made of integers: what `rows` does for whole columns.

NumPy's fixed cost for a column is up to a microsecond, and rows have twenty of them. The rows made
here are byte for byte those that `place_rows` makes of the same messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from typing import Any, Final

import numpy as np

from delaylog.contract.own_backoff import ARRAY
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    INDEX_ROW,
    NEVER_MS,
)
from delaylog.storage.log.payloads import SendDecision
from delaylog.storage.messages.rows import PlacedRows, hash_u64, tags_mask
from delaylog.storage.messages.singles import Single

FEW_ROWS_MAX: Final = 32
"""Up to this number of rows, columns cost 1.3 to 2 times as much; at 50 both cost the same."""

_NO_NAMES: Final[Set[str]] = frozenset()
_BACKOFF: Final = bytes([ARRAY])
"""Headers that begin with this byte begin with a backoff."""


class FewRows:
    """Rows of one frame, all of which become messages, ordered by (hour, order of sending).

    As in `PlacedRows`, `hours` are the distinct hours, `starts` the first row of each, and the end
    of the last; `order[k]` is the message of row k, None = the same order.
    """

    __slots__ = (
        "_singles",
        "data",
        "decision",
        "due_ms",
        "hours",
        "id_hashes",
        "key_hashes",
        "names",
        "now_ms",
        "order",
        "own_backoffs",
        "position",
        "prioritised",
        "raw",
        "refs",
        "starts",
        "tags",
    )

    def __init__(
        self,
        singles: Sequence[Single],
        due_ms: list[int],
        id_hashes: Sequence[int],
        decision: SendDecision,
        now_ms: int,
        position: int,
    ) -> None:
        """`due_ms` = their due times, none before `now_ms` or the hour floor; `id_hashes` = 0 for a
        message without an id; empty if none has one.
        """
        self._singles = singles
        self.decision = decision
        self.now_ms = now_ms
        self.position = position
        self.due_ms = due_ms
        self.id_hashes = id_hashes
        self.order: list[int] | None = None
        n, first = len(singles), due_ms[0] // HOUR_MS
        if n == 1 or min(due_ms) // HOUR_MS == first == max(due_ms) // HOUR_MS:
            self.hours, self.starts = [first], [0, n]
        else:
            self._sort()
        # `number` sets the rest.
        self.refs: list[int]
        """The ref of each message, in the order of sending."""
        self.raw: bytearray
        """The bytes of the rows."""
        self.data: bytes
        """Their records, in the order of sending."""
        self.names: Set[str] = _NO_NAMES
        """Fields that some message has."""
        self.key_hashes: Sequence[int] = ()
        """Of each message, 0 = no key; empty if no message has fields. So are `tags`."""
        self.tags: Sequence[bytes] = ()
        self.prioritised = self.own_backoffs = False
        """Whether a message has a priority other than 0; whether one has a backoff of its own."""

    def _sort(self) -> None:
        hours = [due // HOUR_MS for due in self.due_ms]
        order = sorted(range(len(hours)), key=hours.__getitem__)
        if order != list(range(len(hours))):
            self.order = order
        self.hours = sorted(set(hours))
        self.starts = [0]
        for hour in self.hours:
            self.starts.append(self.starts[-1] + hours.count(hour))

    def number(self, firsts: Sequence[int]) -> None:
        """Number and make the rows; those of `hours[k]` are numbered from `firsts[k]` on."""
        n, tag = len(self._singles), self.decision.tag << INDEX_BITS
        self.raw = bytearray(n * INDEX_ENTRY_SIZE)
        if len(firsts) == 1:
            ref = self.hours[0] << HOUR_SHIFT | tag | firsts[0]
            self.refs = list(range(ref, ref + n))
            places: Sequence[int] = range(n)
        else:
            order = range(n) if self.order is None else self.order
            places, self.refs = [0] * n, [0] * n
            for k, hour in enumerate(self.hours):
                start, ref = self.starts[k], hour << HOUR_SHIFT | tag | firsts[k]
                for row in range(start, self.starts[k + 1]):
                    places[order[row]], self.refs[order[row]] = row, ref + row - start
        for single in self._singles:
            if single.fields:
                self._pack(places)
                return
        self._pack_plain(places)

    def _pack_plain(self, places: Sequence[int]) -> None:
        """`_pack` for messages that have only a body and a time, at half the cost."""
        decision, now_ms, position = self.decision, self.now_ms, self.position
        topic, tag = decision.topic, decision.tag
        ttl_ms, max_retry = decision.ttl_ms, decision.max_retry
        raw, offset, bodies = self.raw, 0, []
        for single, row, due, ref in zip(
            self._singles, places, self.due_ms, self.refs, strict=True
        ):
            size = len(single.body)
            bodies.append(single.body)
            expires = NEVER_MS if ttl_ms < 0 else due + ttl_ms
            # offset, size, local, global, pre_global; times; position; hashes; topic, group, ...
            INDEX_ROW.pack_into(
                raw, row * INDEX_ENTRY_SIZE,
                offset, size, 0, ref & INDEX_MASK, 0,
                due, expires, now_ms, position,
                0, 0, 0,
                topic, 0, 0, tag, max_retry,
                0, 0, 0, 0,
                ref,
            )  # fmt: skip
            offset += size
        self.data = b"".join(bodies)

    def _pack(self, places: Sequence[int]) -> None:
        """Make the rows and records; `places` = the row of each message."""
        decision, now_ms, position = self.decision, self.now_ms, self.position
        topic, tag, default_ttl_ms = decision.topic, decision.tag, decision.ttl_ms
        id_hashes = self.id_hashes or [0] * len(places)
        raw, offset, records = self.raw, 0, []
        names: set[str] = set()
        key_hashes: list[int] = []
        all_tags: list[bytes] = []
        for at, single in enumerate(self._singles):
            fields: Any = single.fields or {}
            names.update(fields)
            take = fields.get
            id_, key, tags = take("id", b""), take("key", b""), take("tags", b"")
            headers, priority = take("headers", b""), take("priority", 0)
            ttl_ms, due, ref = take("ttl_ms", default_ttl_ms), self.due_ms[at], self.refs[at]
            record = b"".join((id_, key, tags, headers, single.body))
            key_hash = hash_u64(key) if key else 0
            INDEX_ROW.pack_into(
                raw, places[at] * INDEX_ENTRY_SIZE,
                offset, len(record), 0, ref & INDEX_MASK, 0,
                due, NEVER_MS if ttl_ms < 0 else due + ttl_ms, now_ms, position,
                tags_mask(tags) if tags else 0, key_hash, id_hashes[at],
                topic, 0, priority, tag, take("max_retry", decision.max_retry),
                len(id_), len(key), len(tags), len(headers),
                ref,
            )  # fmt: skip
            offset += len(record)
            records.append(record)
            key_hashes.append(key_hash)
            all_tags.append(tags)
            self.prioritised = self.prioritised or priority != 0
            self.own_backoffs = self.own_backoffs or headers[:1] == _BACKOFF
        self.data = b"".join(records)
        self.names, self.key_hashes, self.tags = names, key_hashes, all_tags

    def hour_counts(self) -> dict[int, int]:
        """Number of rows in each hour."""
        lengths = (stop - start for start, stop in itertools.pairwise(self.starts))
        return dict(zip(self.hours, lengths, strict=True))

    def named(self) -> tuple[list[int], list[int]]:
        """(hash of the id, ref) of the messages that have an id."""
        pairs = [pair for pair in zip(self.id_hashes, self.refs, strict=True) if pair[0]]
        return [hashed for hashed, _ in pairs], [ref for _, ref in pairs]

    def placed(self) -> PlacedRows:
        """The rows as columns."""
        order = None if self.order is None else np.array(self.order, np.int64)
        rows = np.frombuffer(self.raw, INDEX_ENTRY)
        tag = self.decision.tag
        return PlacedRows(rows, self.data, self.hours, self.starts, order, self.position, tag)
