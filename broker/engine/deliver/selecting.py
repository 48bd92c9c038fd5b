"""Selection: the messages that one receive finds in the ready queues, and leases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Final, NamedTuple

import numpy as np

from delaylog.broker.engine.apply.state_frames import apply_lease
from delaylog.broker.engine.deliver.deliverable import deliverable, records_of, with_tags
from delaylog.broker.engine.deliver.ready_again import known_rows
from delaylog.broker.engine.late.late_note import late_note
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.model import Delivery, Part, Topic
from delaylog.broker.engine.ready.key_table import TakenKeys
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.watch.lateness import HandOut
from delaylog.storage.columns.questions import alike, among, distinct, some
from delaylog.storage.columns.whole_rows import concat_rows, take_rows
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_ENTRY,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.log.payloads import LeaseDecision
from delaylog.storage.messages.batch import Column

ATTEMPTS_MAX: Final = 65_535
"""A state entry has sixteen bits for the number of attempts."""
RECEIVE_BYTES_MAX: Final = 32 << 20
"""Bodies of one receive, after the first message: they are in memory until they are answered."""
_READY = int(MessageState.READY)
_ROUNDS_MAX = 64
"""Rounds of popping refs in one receive."""
_ROUND_REFS = 4_096
"""Refs popped in one round, at most, when few refs of the round before were handed out."""


class ReceiveRequest(NamedTuple):
    """What a consumer requests from a group, and when."""

    count_max: int
    now_ms: int
    only: TagFilter | None = None
    """Tag filter that messages must match."""
    chosen: Sequence[str] | None = None
    """Ids of the messages to receive."""
    shares: Sequence[int] = ()
    """Several consumers that share the request: the maximum of each. `count_max` is the sum."""
    begin: Sequence[int | None] = ()
    """For each of these consumers: at how many messages, the first ones, an attempt begins at once
    if it is their first. None = at all.
    """
    consumers: Sequence[str] = ()
    """The name of each of these consumers; "" = it says none."""
    addresses: Sequence[str] = ()
    """Where each of them calls from; "" = not known."""
    bytes_max: int | None = None
    """Bytes of the messages, after the first one; None = `RECEIVE_BYTES_MAX`."""

    def limited_bytes(self) -> int:
        """`bytes_max` within the limit of every receive."""
        limit = RECEIVE_BYTES_MAX
        return limit if self.bytes_max is None else min(limit, self.bytes_max)


def shared_out(n: int, shares: Sequence[int]) -> list[int]:
    """How many of `n` messages each consumer gets; empty if the first one gets all."""
    counts: list[int] = []
    for share in shares:
        if n <= 0:
            break
        counts.append(min(share, n))
        n -= share
    return counts if len(counts) > 1 else []


def _untried(attempts: Int64Array, counts: Sequence[int], begin: Sequence[int | None]) -> Column:
    """1 for each message whose attempt does not begin at once; 0 = there are none.

    `attempts` has the number of each message's attempt. `counts` is how many messages each consumer
    gets; empty if the first one gets all.
    """
    if all(begun is None for begun in begin):
        return 0
    n, start = len(attempts), 0
    untried = np.zeros(n, np.uint8)
    for count, begun in zip(counts or [n], begin, strict=False):
        end = start + count
        if begun is not None:
            untried[start:end] = attempts[start:end] > 1
            untried[start + min(begun, count) : end] = 1
        start = end
    return untried if some(untried) else 0


def _taken(part: Part, at: Int64Array) -> Part:
    """The messages at `at`, in order; most often that is all of them."""
    return part if len(at) == len(part.refs) else part.take(at)


class Selection:
    """The messages that one receive has found so far."""

    __slots__ = (
        "addresses",
        "begin",
        "bytes_max",
        "claim",
        "consumers",
        "found",
        "group",
        "left",
        "lot",
        "now_ms",
        "only",
        "shares",
        "state",
        "taken",
        "topic",
    )

    def __init__(
        self,
        state: EngineState,
        topic: Topic,
        group: Group,
        asked: ReceiveRequest,
        count_max: int,
        claim: int = 0,
    ) -> None:
        """`count_max` = how many messages may be found, which may be less than requested."""
        self.state = state
        self.claim = claim
        self.topic = topic
        self.group = group
        self.left = count_max
        self.now_ms = asked.now_ms
        self.only = asked.only
        self.shares = asked.shares
        self.begin = asked.begin
        self.consumers, self.addresses = asked.consumers, asked.addresses
        self.bytes_max = asked.limited_bytes()
        self.found: list[Part] = []
        self.taken = TakenKeys()
        """Keys of the messages found."""
        self.lot = group.gate.parking.any
        """Where messages with locked keys are parked."""

    def run(self) -> None:
        """Find up to `left` messages, in a bounded number of rounds."""
        self.state.hot.drop_read()
        self.lot = self.group.ready.lot(self.only, self.now_ms)
        least = 0
        for number in range(_ROUNDS_MAX):
            if self.lot.freed and self._take_freed(number):
                if self.left == 0:
                    return
                continue
            wanted = self.left
            if self.group.gate.in_use:
                # Some of them will be parked.
                wanted += wanted // 8 + 64
            popped = self._pop(max(wanted, least))
            if len(popped) == 0:
                if self.group.ready.filtered and self.group.ready.unsorted:
                    break
                return
            before = self.left
            self._take(popped)
            if self.left == 0:
                return
            if 2 * (before - self.left) < len(popped):
                least = min(4 * len(popped), _ROUND_REFS)
        # More may be ready behind the refs examined: waiting consumers try again.
        self.state.marks.newly_ready.add((self.topic.number, self.group.number))

    def look_through(self) -> None:
        """Find up to `left` ready messages, ignoring key locks, and leave them in the queue."""
        for _ in range(_ROUNDS_MAX):
            popped = self._pop(self.left)
            if len(popped):
                self._keep(self._wanted(self._look(popped)))
            elif self.only is None or not self.group.ready.unsorted:
                break
            if self.left == 0:
                break
        if self.found:
            self._unpop(np.concatenate([part.refs for part in self.found]))

    def look_for(self, ids: Sequence[str]) -> None:
        """Find messages by id, if they are ready and match the filter."""
        self._keep(self._named(ids).first(self.left))

    def _named(self, ids: Sequence[str]) -> Part:
        found = find_ids(self.state, self.topic, list(ids), self.now_ms, self.group)
        refs = distinct(found.refs[found.states == _READY])
        part, _ = deliverable(self.state, self.topic, self.group, refs, self.now_ms)
        return self._wanted(part)

    def _wanted(self, part: Part) -> Part:
        """The messages that match the filter by their stored tags."""
        if self.only is None or len(part.refs) == 0:
            return part
        wanted, records = with_tags(self.state, part.refs, part.rows, self.only)
        return _taken(part._replace(records=records), np.flatnonzero(wanted))

    def choose(self, ids: Sequence[str]) -> None:
        """Take messages by id, if they are ready and match the filter."""
        part = self._named(ids)
        if len(part.refs):
            hits = self.group.gate.choose(part.rows, self.left)
            # Their refs stay in the ready queue, so those that do not fit need not be returned.
            part = _taken(part, hits[: self.fitting(take_rows(part.rows, hits))])
            self._keep(part)
            self.group.ready.left(self.state.count_released(part.rows))

    def _rows_of(self, refs: Int64Array) -> tuple[Int64Array, RowArray]:
        return known_rows(self.state, refs)

    def _pop(self, count: int) -> Int64Array:
        ready = self.group.ready
        if self.only is None:
            return ready.pop(count, self._rows_of)
        # From now on the filter has its own queue, until it has not been used for a minute.
        self.state.marks.filtered.add((self.topic.number, self.group.number))
        return ready.pop_for(self.only, count, self.now_ms, self._rows_of)

    def _unpop(self, refs: Int64Array) -> None:
        if self.only is None:
            self.group.ready.push_front(refs)
        else:
            self.group.ready.push_front_for(self.only, refs)

    def _look(self, refs: Int64Array) -> Part:
        """Those of the refs that may be handed out and were not found before."""
        looked, stale = deliverable(self.state, self.topic, self.group, refs, self.now_ms)
        if self.only is None:
            self.group.ready.dropped(stale)
        if self.found and len(looked.refs):
            before = np.concatenate([part.refs for part in self.found])
            looked = _taken(looked, np.flatnonzero(~among(looked.refs, before)))
        return looked

    def _take(self, popped: Int64Array) -> None:
        # Refs that do not match are dropped from the filter's queue.
        part = self._wanted(self._look(popped))
        gate = self.group.gate
        if len(part.refs) and (gate.in_use or some(part.rows["key_hash"])):
            hits, looked = gate.admit(part.refs, part.rows, self.left, self.taken, self.lot)
            self._unpop(part.refs[looked:])
            self._take_out(_taken(part, hits))
        else:
            self._unpop(part.refs[self.left :])
            self._take_out(part.first(self.left))

    def _take_freed(self, number: int) -> bool:
        """Take the first parked messages of unlocked keys; False if there are none.

        Each round examines more refs of a key, since the first ones may be stale.
        """
        lot, gate = self.lot, self.group.gate
        parts = lot.first(self.left, 4**number, self.taken, gate)
        if not parts:
            return lot.reading
        parked = list(chain.from_iterable(refs for _, refs in parts))
        part = self._look(np.array(parked, np.int64))
        if len(part.refs) == len(parts) == len(parked):
            # The usual case: one ref of each key, and none is stale.
            keys = [key for key, _ in parts]
            lot.take_first(keys)
            self.taken.add(np.array(keys, np.uint64))
            self._take_out(part)
            return True
        good = set(part.refs.tolist())
        keys, taken = [], []
        for key, mine in parts:
            first = next((ref for ref in mine if ref in good), None)
            if first is None:
                lot.take(key, len(mine), taken=False)
                continue
            lot.take(key, mine.index(first) + 1, taken=True)
            keys.append(key)
            taken.append(first)
        self.taken.add(np.array(keys, np.uint64))
        if len(taken) < len(part.refs):
            part = _taken(part, np.flatnonzero(among(part.refs, np.array(taken, np.int64))))
        self._take_out(part)
        return True

    def _take_out(self, part: Part) -> None:
        """Keep messages whose refs were taken out of the queue or the lot."""
        self._keep(part)
        if self.only is not None:
            # The unfiltered queue contains the same refs, which are stale now.
            self.group.ready.left(len(part.refs))

    def _keep(self, part: Part) -> None:
        if len(part.refs):
            self.found.append(part)
            self.left -= len(part.refs)

    def lease(self, lease_ms: int) -> Delivery | None:
        """Lease the messages found."""
        if not self.found:
            return None
        whole = self.joined()
        if self.claim:
            return self._lease(whole._replace(records=b""), lease_ms)
        fit = self.fitting(whole.rows)
        if fit < len(whole.refs):
            self._put_aside(whole.refs[fit:], whole.rows[fit:])
            return self._lease(whole.first(fit), lease_ms)
        # Part by part, since the records of a part are close together.
        return self._lease(whole._replace(records=self._records()), lease_ms)

    def joined(self) -> Part:
        """All messages found, without records."""
        if len(self.found) == 1:
            return self.found[0]
        if not self.found:
            return Part(np.zeros(0, np.int64), np.zeros(0, INDEX_ENTRY), np.zeros(0, STATE_ENTRY))
        return Part(
            np.concatenate([part.refs for part in self.found]),
            concat_rows([part.rows for part in self.found]),
            concat_rows([part.entries for part in self.found]),
        )

    def _records(self) -> bytes:
        read = [
            records_of(self.state, part.refs, part.rows) if part.records is None else part.records
            for part in self.found
        ]
        return read[0] if len(read) == 1 else b"".join(read)

    def fitting(self, rows: RowArray) -> int:
        """How many of the first rows fit into one answer: at least one."""
        sizes = rows["size"].astype(np.int64)
        if int(sizes.sum()) <= self.bytes_max:
            return len(rows)
        fit = int(np.searchsorted(np.cumsum(sizes), self.bytes_max, side="right"))
        return min(max(fit, 1), len(rows))

    def _put_aside(self, refs: Int64Array, rows: RowArray) -> None:
        """Return messages that do not fit into the answer, in front of later ones of their keys."""
        keys = rows["key_hash"].astype(np.uint64)
        # A message that locks its key for its own retry came from the queue and goes back there:
        # in the lot it would wait for itself.
        holds = self.group.gate.locked(keys)
        stays = ~(self.taken.find(keys) & self.lot.parked_among(keys)) | holds
        for key, ref in zip(keys[~stays].tolist(), refs[~stays].tolist(), strict=True):
            self.lot.give_back(key, ref)
        self._unpop(refs[stays])
        if self.only is not None:
            self.group.ready.left(-len(refs))

    def _lease(self, part: Part, lease_ms: int) -> Delivery:
        state, (refs, rows, entries, records) = self.state, part
        attempts = np.minimum(entries["attempts"].astype(np.int64) + 1, ATTEMPTS_MAX)
        same = int(attempts[0]) if alike(attempts) else None
        counts = shared_out(len(refs), self.shares)
        # Rows are 112 bytes: one pass over them instead of three.
        due_ms = rows["deliver_at"].copy()
        earliest_ms = int(due_ms[due_ms.argmin()])
        number = state.next_lease
        decision = LeaseDecision(
            lease=number,
            topic=self.topic.number,
            group=self.group.number,
            deadline_ms=self.now_ms + lease_ms,
            refs=refs,
            attempts=attempts if same is None else same,
            claim=self.claim,
            counts=counts,
            untried=_untried(attempts, counts, self.begin),
            consumers=list(self.consumers[: max(len(counts), 1)]),
            addresses=list(self.addresses[: max(len(counts), 1)]),
            late=late_note(state, self.topic, self.group, earliest_ms, self.now_ms),
        )
        if records is None:
            records = records_of(state, refs, rows)
        _, end = state.append(FrameKind.LEASE, decision.encode(), self.now_ms)
        origins = apply_lease(state, decision, end, rows)
        out = HandOut(self.now_ms, refs, rows, attempts, records)
        state.series.lateness_of(self.topic).note_handed_out(due_ms, out, retries=same != 1)
        if (tap := state.taps.by_topic.get(self.topic.number)) is not None:
            names = list(chain.from_iterable(map(repeat, self.consumers, counts)))
            names = names or list(self.consumers[:1])
            tap.note(self.group.name, rows, attempts, records, names, self.now_ms)
        return Delivery(
            number, decision.deadline_ms, origins, rows, records, attempts, end, decision.counts
        )
