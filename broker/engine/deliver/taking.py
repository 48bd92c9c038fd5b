"""Taking: what one receive finds among the ready messages, and puts under a lease."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from delaylog.broker.engine.apply.state_frames import apply_lease
from delaylog.broker.engine.control.finding import find_ids
from delaylog.broker.engine.deliver.deliverable import Part, deliverable, records_of, with_tags
from delaylog.broker.engine.deliver.filters import TagFilter
from delaylog.broker.engine.deliver.waking import known_rows
from delaylog.broker.engine.model import Delivery, Topic
from delaylog.broker.engine.ready.key_table import Claims
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
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

_READY = int(MessageState.READY)
_ROUNDS_MAX = 64
"""Rounds of ended refs that one call works through before it lets others run."""
_ROUND_REFS = 4_096
"""At most so many refs are looked at in a round when few of those before were handed out."""


class Asked(NamedTuple):
    """What a consumer asks a group for, and when."""

    count_max: int
    now_ms: int
    only: TagFilter | None = None
    """The filter that messages must match."""
    chosen: Sequence[str] | None = None
    """The ids that messages must have."""
    shares: Sequence[int] = ()
    """Of several consumers: how many each takes at most. `count_max` is the sum of them."""


def _shared_out(n: int, shares: Sequence[int]) -> list[int]:
    """How many of `n` messages each consumer gets, in their order, until there are none left.

    Empty if one gets all of them.
    """
    counts: list[int] = []
    for share in shares:
        if n <= 0:
            break
        counts.append(min(share, n))
        n -= share
    return counts if len(counts) > 1 else []


def _taken(part: Part, at: Int64Array) -> Part:
    """What stands at some places, in their order; most often that is all of it."""
    return part if len(at) == len(part.refs) else part.take(at)


class Taking:
    """One receive call: what it has found so far."""

    __slots__ = (
        "claim",
        "claimed",
        "found",
        "group",
        "left",
        "lot",
        "now_ms",
        "only",
        "shares",
        "state",
        "topic",
    )

    def __init__(
        self,
        state: EngineState,
        topic: Topic,
        group: Group,
        asked: Asked,
        count_max: int,
        claim: int = 0,
    ) -> None:
        """`count_max`: how many of the messages that were asked for may be found."""
        self.state = state
        self.claim = claim
        self.topic = topic
        self.group = group
        self.left = count_max
        self.now_ms = asked.now_ms
        self.only = asked.only
        self.shares = asked.shares
        self.found: list[Part] = []
        self.claimed = Claims()
        """Keys of what was found."""
        self.lot = group.gate.parking.any
        """Where what it meets and may not hand out is parked."""

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
            if self.group.gate.holding:
                # Some of them will have to wait for their keys.
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
        # More may be ready behind what is not handed out: whoever waits is to ask again.
        self.state.woken.add((self.topic.number, self.group.number))

    def look_through(self) -> None:
        """Find up to `left` ready messages, whatever their keys, and leave them where they are."""
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
        """Find messages by their ids, as far as they are ready and, with a filter, wanted."""
        self._keep(self._named(ids).first(self.left))

    def _named(self, ids: Sequence[str]) -> Part:
        found = find_ids(self.state, self.topic, list(ids), self.now_ms, self.group)
        refs = distinct(found.refs[found.states == _READY])
        part, _ = deliverable(self.state, self.topic, self.group, refs, self.now_ms)
        return self._wanted(part)

    def _wanted(self, part: Part) -> Part:
        """What a filter wants: by mask before, now exactly."""
        if self.only is None or len(part.refs) == 0:
            return part
        wanted, records = with_tags(self.state, part.refs, part.rows, self.only)
        return _taken(part._replace(records=records), np.flatnonzero(wanted))

    def choose(self, ids: Sequence[str]) -> None:
        """Take messages by their ids, as far as they are ready and, with a filter, wanted."""
        part = self._named(ids)
        if len(part.refs):
            places = self.group.gate.choose(part.rows, self.left)
            # They stay in the ready queue as well, so what does not fit is not put back.
            part = _taken(part, places[: self.fitting(take_rows(part.rows, places))])
            self._keep(part)
            self.group.ready.left(self.state.count_released(part.rows))

    def _rows_of(self, refs: Int64Array) -> tuple[Int64Array, RowArray]:
        return known_rows(self.state, refs)

    def _pop(self, count: int) -> Int64Array:
        ready = self.group.ready
        if self.only is None:
            return ready.pop(count, self._rows_of)
        # The filter has a queue from now on, until nobody asks or peeks with it any more.
        self.state.filtered.add((self.topic.number, self.group.number))
        return ready.pop_for(self.only, count, self.now_ms, self._rows_of)

    def _unpop(self, refs: Int64Array) -> None:
        if self.only is None:
            self.group.ready.push_front(refs)
        else:
            self.group.ready.push_front_for(self.only, refs)

    def _look(self, refs: Int64Array) -> Part:
        """Of refs those that may be handed out and were not found before."""
        looked, stale = deliverable(self.state, self.topic, self.group, refs, self.now_ms)
        if self.only is None:
            self.group.ready.dropped(stale)
        if self.found and len(looked.refs):
            before = np.concatenate([part.refs for part in self.found])
            looked = _taken(looked, np.flatnonzero(~among(looked.refs, before)))
        return looked

    def _take(self, popped: Int64Array) -> None:
        # One that does not match is never looked at again here.
        part = self._wanted(self._look(popped))
        gate = self.group.gate
        if len(part.refs) and (gate.holding or some(part.rows["key_hash"])):
            places, looked = gate.admit(part.refs, part.rows, self.left, self.claimed, self.lot)
            self._unpop(part.refs[looked:])
            self._take_out(_taken(part, places))
        else:
            self._unpop(part.refs[self.left :])
            self._take_out(part.first(self.left))

    def _take_freed(self, number: int) -> bool:
        """Take the first parked messages of free keys; False if there was none.

        In each round it looks further into what is parked: what others took stands there still.
        """
        lot, gate = self.lot, self.group.gate
        parts = lot.first(self.left, 4**number, self.claimed, gate)
        if not parts:
            return lot.reading
        parked = list(chain.from_iterable(refs for _, refs in parts))
        part = self._look(np.array(parked, np.int64))
        if len(part.refs) == len(parts) == len(parked):
            # As it is most often: one of each, and each is good.
            keys = [key for key, _ in parts]
            lot.take_first(keys)
            self.claimed.add(np.array(keys, np.uint64))
            self._take_out(part)
            return True
        good = set(part.refs.tolist())
        keys, taken = [], []
        for key, mine in parts:
            first = next((ref for ref in mine if ref in good), None)
            if first is None:
                lot.take(key, len(mine), claimed=False)
                continue
            lot.take(key, mine.index(first) + 1, claimed=True)
            keys.append(key)
            taken.append(first)
        self.claimed.add(np.array(keys, np.uint64))
        if len(taken) < len(part.refs):
            part = _taken(part, np.flatnonzero(among(part.refs, np.array(taken, np.int64))))
        self._take_out(part)
        return True

    def _take_out(self, part: Part) -> None:
        """These were in the queue, or the lot, and are not any more."""
        self._keep(part)
        if self.only is not None:
            # Those who take any have them too.
            self.group.ready.left(len(part.refs))

    def _keep(self, part: Part) -> None:
        if len(part.refs):
            self.found.append(part)
            self.left -= len(part.refs)

    def lease(self, lease_ms: int) -> Delivery | None:
        """Put what was found under a lease."""
        if not self.found:
            return None
        whole = self.joined()
        if self.claim:
            return self._lease(whole._replace(records=b""), lease_ms)
        fit = self.fitting(whole.rows)
        if fit < len(whole.refs):
            self._put_aside(whole.refs[fit:], whole.rows[fit:])
            return self._lease(whole.first(fit), lease_ms)
        # Part by part: what stands close together is read together.
        return self._lease(whole._replace(records=self._records()), lease_ms)

    def joined(self) -> Part:
        """All that was found, without the records."""
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
        """How many of the first rows one answer holds: at least one."""
        sizes = rows["size"].astype(np.int64)
        most = self.state.limits.receive_bytes_max
        if int(sizes.sum()) <= most:
            return len(rows)
        fit = int(np.searchsorted(np.cumsum(sizes), most, side="right"))
        return min(max(fit, 1), len(rows))

    def _put_aside(self, refs: Int64Array, rows: RowArray) -> None:
        """What does not fit into the answer goes back, before what was parked behind it."""
        keys = rows["key_hash"].astype(np.uint64)
        # Who holds its key for a retry came from the queue and is not behind what is parked; in
        # the lot it would wait for itself.
        holds = self.group.gate.held(keys)
        stays = ~(self.claimed.find(keys) & self.lot.held(keys)) | holds
        for key, ref in zip(keys[~stays].tolist(), refs[~stays].tolist(), strict=True):
            self.lot.give_back(key, ref)
        self._unpop(refs[stays])
        if self.only is not None:
            self.group.ready.left(-len(refs))

    def _lease(self, part: Part, lease_ms: int) -> Delivery:
        state, (refs, rows, entries, records) = self.state, part
        attempts = np.minimum(entries["attempts"].astype(np.int64) + 1, 65_535)
        same = int(attempts[0]) if alike(attempts) else None
        number = ((state.epoch_counter & 0xFFFFFF) << 40) | (state.lease_number + 1)
        decision = LeaseDecision(
            lease=number,
            topic=self.topic.number,
            group=self.group.number,
            deadline_ms=self.now_ms + lease_ms,
            refs=refs,
            attempts=attempts if same is None else same,
            claim=self.claim,
            counts=_shared_out(len(refs), self.shares),
        )
        if records is None:
            records = records_of(state, refs, rows)
        _, end = state.append(FrameKind.LEASE, decision.encode(), self.now_ms)
        origins = apply_lease(state, decision, end, rows)
        return Delivery(
            number,
            decision.deadline_ms,
            origins,
            rows,
            records,
            attempts,
            end,
            decision.counts,
        )
