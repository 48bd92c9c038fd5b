"""Open leases: their rows and deadlines, with expiry in buckets.

Each receive has one lease, whose rows are columns. A receipt names a lease and the origin of a
message; whether it is still valid follows from this table, without reading a state. Deadlines are
in leader time and come from LEASE frames, so they survive a restart.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedDict

from delaylog.broker.engine.snapshot_list import SnapshotList, SnapshotNode
from delaylog.storage.checkpoint import PackedList
from delaylog.storage.columns import among, every, rising, some
from delaylog.storage.layout import Int64Array
from delaylog.storage.log.payloads import LeaseDecision
from delaylog.storage.messages.batch import Column
from delaylog.storage.work import Work

BUCKET_MS: Final = 50
"""Width of the expiry buckets. No lease ends before its deadline."""
_LEASES_A_SLICE: Final = 64
_PACKER: Final = msgpack.Packer()
_COLUMNS: Final = ("origins", "refs", "attempts", "deadlines")


@dataclass(slots=True, eq=False)
class LeaseColumns:
    """The rows of a lease; `open` marks those that are not settled yet."""

    origins: Int64Array
    refs: Int64Array
    attempts: Int64Array
    deadlines: Int64Array
    open: npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Lease(SnapshotNode):
    """Rows under one lease.

    A lease of few messages has no columns while `few` is enough: each receive and each ack of one
    message would create and read seven arrays. Reading a column replaces `few` for good.
    """

    number: int
    topic: int
    group: int
    open_count: int
    made_columns: LeaseColumns | None
    """`columns`, unless the lease has `few`."""
    few: dict[int, tuple[int, int]] | None = None
    """By origin of each open row, its (ref, attempts)."""
    few_deadline_ms: int = 0
    """The deadline of all of `few`."""
    keys: npt.NDArray[np.uint64] | None = None
    """Hashes of the ordering keys, 0 = none; None = no row has one."""
    untried: npt.NDArray[np.bool_] | None = None
    """Rows whose attempt has not begun: it counts only if they are settled; None = there are none.
    """
    consumer: str = ""
    """The name of the consumer that has them; "" = it said none."""
    address: str = ""
    """Where it called from; "" = not known."""
    bucket: int | None = None
    """The expiry bucket that contains this lease."""

    @property
    def columns(self) -> LeaseColumns:
        """Its rows as columns."""
        if self.made_columns is None:
            assert self.few is not None, "a lease has columns or few rows"
            n = len(self.few)
            refs, attempts = zip(*self.few.values(), strict=True)
            self.made_columns = LeaseColumns(
                np.array(list(self.few), np.int64),
                np.array(refs, np.int64),
                np.array(attempts, np.int64),
                np.full(n, self.few_deadline_ms, np.int64),
                np.ones(n, np.bool_),
            )
            self.few = None
        return self.made_columns

    @property
    def origins(self) -> Int64Array:
        return self.columns.origins

    @property
    def refs(self) -> Int64Array:
        return self.columns.refs

    @property
    def attempts(self) -> Int64Array:
        return self.columns.attempts

    @property
    def deadlines(self) -> Int64Array:
        return self.columns.deadlines

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        return self.columns.open

    def is_all(self, origins: Int64Array) -> bool:
        """Whether these are exactly its origins, in order, all distinct and open."""
        mine = self.origins
        n = len(mine)
        return (
            len(origins) == n
            and self.open_count == n
            and (origins is mine or every(origins == mine))
            and rising(mine)
        )

    def find(self, origins: Int64Array) -> Int64Array:
        """Row number of each origin that is open here, -1 for others."""
        mine = self.origins
        order = np.argsort(mine, kind="stable")
        at = np.searchsorted(mine, origins, sorter=order)
        at = np.minimum(at, len(order) - 1)
        rows = order[at]
        good = (mine[rows] == origins) & self.open[rows]
        return np.where(good, rows, -1)

    def pack(self) -> bytes:
        """Open rows, for a checkpoint."""
        members: dict[str, Any] = {
            "number": self.number,
            "topic": self.topic,
            "group": self.group,
        }
        whole = self.few is not None or self.open_count == len(self.refs)
        if self.few is not None:
            members |= self._packed_few(self.few)
        else:
            for name in _COLUMNS:
                column = getattr(self, name)
                members[name] = (column if whole else column[self.open]).tobytes()
        keys = b"" if self.keys is None else (self.keys if whole else self.keys[self.open]).data
        members["keys"] = bytes(keys)
        if self.consumer:
            members["consumer"] = self.consumer
        if self.address:
            members["address"] = self.address
        if self.untried is not None:
            members["untried"] = (self.untried if whole else self.untried[self.open]).tobytes()
        return bytes(_PACKER.pack(members))

    def _packed_few(self, few: Mapping[int, tuple[int, int]]) -> dict[str, bytes]:
        refs, attempts = zip(*few.values(), strict=True)
        columns = few, refs, attempts, repeat(self.few_deadline_ms, len(few))
        return {
            name: array("q", values).tobytes()
            for name, values in zip(_COLUMNS, columns, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Keyed:
    """Ordering keys (hashes) and the origins of the messages that have them."""

    keys: npt.NDArray[np.uint64]
    origins: Int64Array


def _keyed(keys: npt.NDArray[np.uint64], origins: Int64Array) -> Keyed:
    there = keys != 0
    return Keyed(keys, origins) if every(there) else Keyed(keys[there], origins[there])


def _marked(marks: Column, n: int) -> npt.NDArray[np.bool_] | None:
    """A column of 0 and 1 as an array of its own; None if all are 0."""
    if isinstance(marks, int):
        return np.ones(n, np.bool_) if marks else None
    return marks.astype(np.bool_)


class LeaseTable:
    """All open leases of the node."""

    def __init__(self) -> None:
        self._leases: dict[int, Lease] = {}
        self.entries: SnapshotList[Lease] = SnapshotList(Lease.pack)
        """All leases, the oldest first."""
        self._buckets: SortedDict[int, dict[int, None]] = SortedDict()
        """Numbers of leases by bucket, in the order in which they entered it.

        A lease is in one bucket, at or before the first deadline of its open rows. It leaves the
        bucket when it closes or moves, and an empty bucket is removed. So buckets cost memory and
        wake-ups for open leases only.
        """
        self._leased: dict[tuple[int, int], int] = {}
        self._consumers: dict[tuple[int, int], dict[str, int]] = {}
        """Messages under lease in a group, by the name of their consumer."""

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, number: int) -> Lease | None:
        """The lease with this number, if it has open rows."""
        return self._leases.get(number)

    def leased(self, topic: int, group: int) -> int:
        """Messages under lease in a group."""
        return self._leased.get((topic, group), 0)

    def consumers(self, topic: int, group: int) -> dict[str, int]:
        """Messages under lease in a group by the name of their consumer, if they have one."""
        return self._consumers.get((topic, group), {})

    def _count(self, lease: Lease, n: int) -> None:
        """Add `n` rows of a lease to the counts, or remove them if it is negative."""
        key = (lease.topic, lease.group)
        leased = self._leased[key] = self._leased.get(key, 0) + n
        if not leased:
            del self._leased[key]
        if lease.consumer:
            named = self._consumers.setdefault(key, {})
            now = named[lease.consumer] = named.get(lease.consumer, 0) + n
            if not now:
                del named[lease.consumer]
                if not named:
                    del self._consumers[key]

    def add(
        self,
        decision: LeaseDecision,
        origins: Int64Array,
        keys: npt.NDArray[np.uint64] | None = None,
    ) -> None:
        """Apply a LEASE frame: add a lease, or extend rows of one that is open."""
        lease = self._leases.get(decision.lease)
        if lease is not None:
            self.entries.before_change(lease)
            rows = lease.find(origins)
            there = rows >= 0
            lease.deadlines[rows[there]] = decision.deadline_ms
            if lease.untried is not None:
                untried = decision.untried
                lease.untried[rows[there]] = untried if isinstance(untried, int) else untried[there]
            self._file(lease)
            return
        # Copied, since a view would keep a frame of the log, or a queue's refs, in memory.
        refs = decision.refs if decision.refs.flags.owndata else decision.refs.astype(np.int64)
        if origins is decision.refs:
            origins = refs
        n = len(refs)
        attempts = decision.attempts
        columns = LeaseColumns(
            origins,
            refs,
            np.full(n, attempts, np.int64)
            if isinstance(attempts, int)
            else attempts.astype(np.int64),
            np.full(n, decision.deadline_ms, np.int64),
            np.ones(n, np.bool_),
        )
        lease = Lease(
            decision.lease,
            decision.topic,
            decision.group,
            n,
            columns,
            keys=keys,
            untried=_marked(decision.untried, n),
            consumer=decision.consumers[0] if decision.consumers else "",
            address=decision.addresses[0] if decision.addresses else "",
        )
        self._add(lease, decision.deadline_ms)

    def _add(self, lease: Lease, deadline_ms: int) -> None:
        self._leases[lease.number] = lease
        self.entries.append(lease)
        self._count(lease, lease.open_count)
        self._enter(lease, deadline_ms)

    def add_few(
        self,
        place: tuple[int, int],
        number: int,
        few: dict[int, tuple[int, int]],
        *,
        deadline_ms: int,
        consumer: str,
        address: str,
    ) -> None:
        """Add a lease of few messages without keys in a group; see `Lease.few`."""
        topic, group = place
        lease = Lease(
            number,
            topic,
            group,
            len(few),
            None,
            few,
            deadline_ms,
            consumer=consumer,
            address=address,
        )
        self._add(lease, deadline_ms)

    def close_few(self, lease: Lease, origins: Sequence[int]) -> None:
        """Close open rows of a lease that has `few`."""
        few = lease.few
        assert few is not None, "the caller has read its rows there"
        self.entries.before_change(lease)
        closed = len(origins)
        lease.open_count -= closed
        self._count(lease, -closed)
        if lease.open_count == 0:
            self._drop(lease)
        else:
            for origin in origins:
                del few[origin]

    def extend_few(self, lease: Lease, deadline_ms: int) -> None:
        """Change the deadline of all rows of a lease that has `few`."""
        self.entries.before_change(lease)
        lease.few_deadline_ms = deadline_ms
        self._enter(lease, deadline_ms)

    def extend(self, number: int, deadline_ms: int) -> None:
        """Change the deadline of all open rows of a lease."""
        lease = self._leases.get(number)
        if lease is not None:
            self.entries.before_change(lease)
            lease.deadlines[:] = deadline_ms
            self._enter(lease, deadline_ms)

    def open_rows(self, topic: int, group: int) -> tuple[Int64Array, Int64Array]:
        """(refs, origins) of all messages under lease in a group."""
        mine = self._of(topic, group)
        if not mine:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        refs = np.concatenate([lease.refs[lease.open] for lease in mine])
        return refs, np.concatenate([lease.origins[lease.open] for lease in mine])

    def drop(self, topic: int, group: int) -> None:
        """Close every lease of a group; its receipts are gone."""
        for lease in self._of(topic, group):
            self._drop(lease)
        self._leased.pop((topic, group), None)
        self._consumers.pop((topic, group), None)

    def _of(self, topic: int, group: int) -> list[Lease]:
        return [x for x in self._leases.values() if x.topic == topic and x.group == group]

    def leased_keys(self) -> Iterator[tuple[int, int, npt.NDArray[np.uint64]]]:
        """(topic, group, keys) of the messages under each lease."""
        for lease in self._leases.values():
            if lease.keys is not None:
                open_ = _keyed(lease.keys[lease.open], lease.origins[lease.open])
                yield lease.topic, lease.group, open_.keys

    def holding(
        self, topic: int, group: int, keys: set[int]
    ) -> Generator[None, None, dict[int, int]]:
        """By key (hash), origin of the message under lease that has it; in slices."""
        wanted = np.array(sorted(keys), np.uint64)
        out: dict[int, int] = {}
        for at, lease in enumerate(list(self._leases.values()), 1):
            if (lease.topic, lease.group) == (topic, group) and lease.keys is not None:
                hit = lease.open & np.isin(lease.keys, wanted)
                if some(hit):
                    found = lease.keys[hit].tolist(), lease.origins[hit].tolist()
                    out.update(zip(*found, strict=True))
            if at % _LEASES_A_SLICE == 0:
                yield None
        return out

    def shift(self, by_ms: int) -> None:
        """Move every deadline: leader time jumped by `by_ms`."""
        self.entries.before_changes()
        self._buckets.clear()
        for lease in self._leases.values():
            if lease.few is None:
                lease.deadlines[:] += by_ms
            else:
                lease.few_deadline_ms += by_ms
            lease.bucket = None
            self._file(lease)

    def deadline_ms(self, number: int, ref: int) -> int | None:
        """The deadline of a row; None if it is not open."""
        lease = self._leases.get(number)
        if lease is None:
            return None
        if lease.few is not None:
            there = any(ref == each for each, _ in lease.few.values())
            return lease.few_deadline_ms if there else None
        at = np.flatnonzero(lease.open & (lease.refs == ref))
        return int(lease.deadlines[at[0]]) if len(at) else None

    def _file(self, lease: Lease) -> None:
        if lease.few is None:
            self._enter(lease, int(lease.deadlines[lease.open].min()))
        else:
            self._enter(lease, lease.few_deadline_ms)

    def _enter(self, lease: Lease, deadline_ms: int) -> None:
        bucket = -(-deadline_ms // BUCKET_MS)
        if bucket != lease.bucket:
            self._leave(lease)
            lease.bucket = bucket
            numbers = self._buckets.get(bucket)
            if numbers is None:
                numbers = self._buckets[bucket] = {}
            numbers[lease.number] = None

    def _leave(self, lease: Lease) -> None:
        bucket = lease.bucket
        if bucket is not None:
            lease.bucket = None
            numbers = self._buckets[bucket]
            del numbers[lease.number]
            if not numbers:
                del self._buckets[bucket]

    def close(self, number: int, refs: Int64Array) -> Keyed | None:
        """Close rows of a lease; returns the keys of those that have some."""
        lease = self._leases.get(number)
        if lease is None:
            return None
        self.entries.before_change(lease)
        keyed: Keyed | None = None
        if len(refs) == lease.open_count and len(refs) == len(lease.refs):
            closed = len(refs)
            if lease.keys is not None:
                keyed = _keyed(lease.keys, lease.origins)
        else:
            mask = among(lease.refs, refs) & lease.open
            lease.open[mask] = False
            closed = int(np.count_nonzero(mask))
            if lease.keys is not None:
                keyed = _keyed(lease.keys[mask], lease.origins[mask])
        lease.open_count -= closed
        self._count(lease, -closed)
        if lease.open_count == 0:
            self._drop(lease)
        return keyed

    def clear(self) -> Work:
        """Drop all leases, in slices."""
        while (first := self.entries.first) is not None:
            self._drop(first)
            if len(self) % _LEASES_A_SLICE == 0:
                yield None

    def _drop(self, lease: Lease) -> None:
        self._leave(lease)
        self.entries.remove(lease)
        del self._leases[lease.number]

    def next_expiry_ms(self) -> int | None:
        """When `expired` may return something; None if no lease is open."""
        return self._buckets.peekitem(0)[0] * BUCKET_MS if self._buckets else None

    def expired(self, now_ms: int, rows_max: int) -> Iterator[tuple[Lease, Int64Array]]:
        """(lease, row numbers) past their deadlines, about `rows_max` rows.

        Each row comes once: the caller must settle it before it asks for more, or stops.
        """
        # A bucket can be too early for a lease whose first rows were settled. Each row expires at
        # its own deadline, and the lease moves to the bucket of the next one.
        now_ms -= now_ms % BUCKET_MS
        left = rows_max
        while self._buckets and left > 0:
            bucket, numbers = self._buckets.peekitem(0)
            if bucket * BUCKET_MS > now_ms:
                break
            # The latest lease first, since each returned message goes to the front of its queue.
            lease = self._leases[numbers.popitem()[0]]
            lease.bucket = None
            if not numbers:
                del self._buckets[bucket]
            rows = np.flatnonzero(lease.open & (lease.deadlines <= now_ms))
            if len(rows) < lease.open_count:
                rest = lease.deadlines[lease.open & (lease.deadlines > now_ms)]
                self._enter(lease, int(rest.min()))
            if len(rows):
                left -= len(rows)
                yield lease, rows

    def snapshot(self) -> PackedList:
        """For a checkpoint; `entries.work` fills it in slices."""
        return self.entries.snapshot(len(self._leases))

    def restore(self, saved: Iterable[dict[str, Any]]) -> None:
        """Fill the table from a checkpoint."""
        for item in saved:
            columns = {name: np.frombuffer(item[name], np.int64).copy() for name in _COLUMNS}
            n = len(columns["refs"])
            lease = Lease(
                item["number"],
                item["topic"],
                item["group"],
                n,
                LeaseColumns(**columns, open=np.ones(n, np.bool_)),
                keys=np.frombuffer(item["keys"], np.uint64).copy() if item.get("keys") else None,
                untried=(
                    np.frombuffer(item["untried"], np.bool_).copy() if "untried" in item else None
                ),
                consumer=item.get("consumer", ""),
                address=item.get("address", ""),
            )
            self._leases[lease.number] = lease
            self.entries.append(lease)
            self._count(lease, n)
            self._file(lease)
