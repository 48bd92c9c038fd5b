"""Receive: pop ready refs, check their states, and lease the messages that may be handed out.

Begin with `receive`. Refs in the queues are hints, so `deliverable` checks states and rows. A
message past its ttl that is still in a queue is ended in the same turn: `end_due` may be busy with
others. The LEASE frame is appended before the delivery is returned, and the host writes it before
it answers.

`Selection` finds and leases many messages, in columns. `lease_few` leases few of them one by one,
as integers, since the fixed cost of columns is that of about sixteen messages. Its frames, state
and messages are those that `Selection` would make. It returns None, and has changed nothing, if a
message needs what is rare; `Selection` does that.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.apply.lease_frames import FewLeases, apply_lease, apply_lease_few
from delaylog.broker.engine.deliver.expiry import end_by_ttl
from delaylog.broker.engine.deliver.ready_again import known_rows
from delaylog.broker.engine.late.causes import late_note
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.model import Delivery, FewDelivery, Part, Topic
from delaylog.broker.engine.ready.key_table import TakenKeys
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.watch.histogram import HandOut
from delaylog.storage.columns import (
    alike,
    among,
    concat_rows,
    distinct,
    every,
    gather,
    put_rows,
    rising,
    scatter_back,
    some,
    take_rows,
)
from delaylog.storage.hours.hour_store import FoundRow, find_few
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_ENTRY,
    STATE_NONE,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
    ref_to_id,
)
from delaylog.storage.log.payloads import LeaseDecision, lease_payload
from delaylog.storage.messages.batch import Column
from delaylog.storage.messages.rows import heads_of

# ----------------------------------------------------------------- which refs may be handed out

WHOLE_BYTES_MAX: Final = 1 << 20
"""Records up to this size in all are read whole to check their tags."""


def deliverable(
    state: EngineState, topic: Topic, group: Group, refs: Int64Array, now_ms: int
) -> tuple[Part, int]:
    """Those of the refs that may be handed out, each once; ends those past their ttl.

    Also returns the number of stale refs: repeated ones, and those that had ended or moved.
    """
    asked = len(refs)
    if len(refs) > 1 and not rising(refs):
        _, first = np.unique(refs, return_index=True)
        if len(first) != len(refs):
            refs = refs[np.sort(first)]
    known = state.hours.known(refs)
    if not every(known):
        refs = refs[known]
    entries = state.hours.get_states(refs, group.number)
    free = entries["state"] == STATE_NONE
    if not every(free):
        refs, entries = refs[free], take_rows(entries, free)
    if len(refs) == 0:
        return Part(refs, np.zeros(0, INDEX_ENTRY), entries), asked
    part = Part(refs, _rows_or_copies(state, topic, refs, now_ms), entries)
    if topic.number in state.marks.special:
        free = group.free(part.rows, entries)
        if not every(free):
            part = part.take(free)
    stale = asked - len(part.refs)
    over = part.rows["expires_at"] <= now_ms
    if some(over):
        end_by_ttl(state, topic, group, part.take(over), now_ms)
        part = part.take(~over)
    return part, stale


def _rows_or_copies(state: EngineState, topic: Topic, refs: Int64Array, now_ms: int) -> RowArray:
    """Rows of refs, from copies of hot seconds where possible."""
    found = state.hot.rows(topic.number, refs, now_ms) if len(state.hot) else None
    if found is None:
        return state.hours.rows(refs)
    mask, rows = found
    if mask is None:
        return rows
    out = np.empty(len(refs), INDEX_ENTRY)
    put_rows(out, mask, rows)
    put_rows(out, ~mask, state.hours.rows(refs[~mask]))
    return out


def records_of(state: EngineState, refs: Int64Array, rows: RowArray) -> bytes:
    """Records of rows that `deliverable` has returned."""
    if len(refs) == 0 or len(state.hot) == 0:
        return state.hours.records(refs, rows)
    copied = state.hot.copied(rows)
    if not some(copied):
        return state.hours.records(refs, rows)
    if every(copied):
        return state.hot.records(rows)
    return scatter_back(
        [
            state.hot.records(take_rows(rows, copied)),
            state.hours.records(refs[~copied], take_rows(rows, ~copied)),
        ],
        [np.flatnonzero(copied), np.flatnonzero(~copied)],
        rows["size"].astype(np.int64),
    )


def with_tags(
    state: EngineState, refs: Int64Array, rows: RowArray, only: TagFilter
) -> tuple[npt.NDArray[np.bool_], bytes | None]:
    """Which rows match a filter by their stored tags; also their records, if read whole."""
    # Most rows that match by mask are handed out, and then their whole records are needed.
    whole = int(rows["size"].sum()) <= WHOLE_BYTES_MAX
    heads = rows if whole else heads_of(rows, "id_size", "key_size", "tags_size")
    records = records_of(state, refs, heads)
    sizes = rows["tags_size"].astype(np.int64)
    starts = np.cumsum(heads["size"].astype(np.int64)) - heads["size"]
    starts += rows["id_size"].astype(np.int64) + rows["key_size"]
    return _tags_match(records, starts, sizes, only), records if whole else None


def _tags_match(
    records: bytes, starts: Int64Array, sizes: Int64Array, only: TagFilter
) -> npt.NDArray[np.bool_]:
    size = int(sizes[0])
    if size == 0 or not alike(sizes):
        ends = (starts + sizes).tolist()
        return only.exact_match([records[a:b] for a, b in zip(starts.tolist(), ends, strict=True)])
    tags = gather(records, starts, sizes)
    if tags == tags[:size] * len(sizes):
        return np.full(len(sizes), only.exact_match([tags[:size]])[0])
    return only.exact_match(np.frombuffer(tags, f"V{size}").tolist())


# -------------------------------------------------------------------- many messages, in columns

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


# -------------------------------------------------------------------- few messages, as integers

FEW_LEASED_MAX: Final = 16
"""Messages of one consumer that are leased one by one. Measured in processor time: 16 take
110 us, and 135 us in columns; 32 take 195 and 166 us."""
FEW_SHARED_MAX: Final = 64
"""The same for several consumers. Each has its own lease, and in columns each of these leases would
cost several arrays, so columns pay later."""
_due_ms = attrgetter("row.deliver_at")


def lease_few(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
    count_max: int,
    lease_ms: int,
) -> FewDelivery | None:
    """Lease up to `count_max` messages for a request without a filter, ids or a claim.

    None if there is none, if there are more than a few, or if one of them needs more: it has a key,
    is not ready any more, has expired, or belongs to a far hour.
    """
    ready, gate = group.made_ready, group.made_gate
    if ready is None or (gate is not None and not gate.idle):
        return None
    if len(state.hot):
        state.hot.drop_read()
        if len(state.hot):
            return None
    if topic.number in state.taps.by_topic:
        return None
    refs = ready.pop_few(count_max, FEW_SHARED_MAX if len(asked.shares) > 1 else FEW_LEASED_MAX)
    if not refs:
        return None
    few = find_few(state.hours, refs, group.number)
    attempts = _few_attempts(state, topic, group, few, asked) if few else ()
    counts = shared_out(len(refs), asked.shares) if len(asked.shares) > 1 else ()
    if not few or not attempts or not _all_begin(attempts, counts, asked.begin):
        ready.push_front(np.array(refs, np.int64))
        return None
    # A queue that is empty now has no stale refs.
    ready.dropped(0)
    return _append_few(state, topic, group, asked, few, attempts, counts, lease_ms)


def _few_attempts(
    state: EngineState, topic: Topic, group: Group, few: Sequence[FoundRow], asked: ReceiveRequest
) -> Sequence[int]:
    """The number of each row's attempt; empty unless all of these rows may be handed out, none has
    a key, and one answer has room for all.
    """
    special, size, now_ms = topic.number in state.marks.special, 0, asked.now_ms
    attempts: list[int] = []
    for _, _, row, entry, _ in few:
        if row.key_hash or row.expires_at <= now_ms:
            return ()
        if special and not group.has_one(row, entry):
            return ()
        size += row.size
        attempts.append(min(entry.attempts + 1, ATTEMPTS_MAX))
    if len(few) > 1:
        # The queue contains hints: a ref may be there twice.
        if size > asked.limited_bytes() or len({one.ref for one in few}) < len(few):
            return ()
    return attempts


def _all_begin(attempts: Sequence[int], counts: Sequence[int], begin: Sequence[int | None]) -> bool:
    """Whether all attempts begin at once; see `ReceiveRequest.begin`."""
    start = 0
    for count, begun in zip(counts or [len(attempts)], begin, strict=False):
        mine = attempts[start : start + count]
        start += count
        if begun is not None and (begun < count or max(mine) > 1):
            return False
    return True


def _append_few(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
    few: Sequence[FoundRow],
    attempts: Sequence[int],
    counts: Sequence[int],
    lease_ms: int,
) -> FewDelivery:
    now_ms, n = asked.now_ms, len(few)
    first, same = min(few, key=_due_ms) if n > 1 else few[0], attempts.count(attempts[0]) == n
    refs: list[int] = []
    origins: list[int] = []
    for one in few:
        refs.append(one.ref)
        origins.append(one.row.origin)
    sharers = max(len(counts), 1)
    consumers, addresses = asked.consumers[:sharers], asked.addresses[:sharers]
    leases = FewLeases(
        state.next_lease,
        topic.number,
        group.number,
        now_ms + lease_ms,
        refs,
        origins,
        attempts,
        counts,
        consumers,
        addresses,
    )
    payload = lease_payload(
        leases.number,
        (topic.number, group.number),
        leases.deadline_ms,
        array("q", refs).tobytes(),
        attempts[0] if same else array("H", attempts).tobytes(),
        counts=counts,
        consumers=consumers,
        addresses=addresses,
        late=late_note(state, topic, group, first.row.deliver_at, now_ms),
    )
    _, end = state.append(FrameKind.LEASE, payload, now_ms)
    apply_lease_few(state, leases, end)
    _note_few(state, topic, few, attempts, now_ms)
    return FewDelivery(leases.number, leases.deadline_ms, few, attempts, end, counts)


def _note_few(
    state: EngineState,
    topic: Topic,
    few: Sequence[FoundRow],
    attempts: Sequence[int],
    now_ms: int,
) -> None:
    """Note how late the messages are; see `Lateness.note_handed_out`."""
    pairs = zip(few, attempts, strict=True)
    fresh: list[FoundRow] = []
    size = 0
    for one, attempt in pairs:
        size += one.row.size
        # A message that was given back without a new due time was late before, or was not.
        if attempt == 1 or one.row.origin != one.ref:
            fresh.append(one)
    if not fresh:
        return
    late = state.series.lateness_of(topic)
    for one in fresh:
        late.handed_out.note(now_ms - one.row.deliver_at)
    if size and late.handed_out.wants_example(now_ms):
        first = min(fresh, key=_due_ms)
        text = first.record[: first.row.id_size].decode("utf-8", "replace")
        late.keep_example(
            now_ms - first.row.deliver_at, text or ref_to_id(first.row.origin), now_ms
        )


# ----------------------------------------------------------------------------- receive and peek


def receive(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
    *,
    lease_ms: int,
    claim: int = 0,
) -> Delivery | None:
    """Messages for a request under a new lease, or None.

    If several consumers share the request, each has its own lease. Messages for a claim come
    without records, which are read with the claim's rows later. Raises HeldError while the broker
    is held.
    """
    state.holding.check()
    now_ms = asked.now_ms
    topic.used_ms = group.used_ms = now_ms
    group.delivered_rate.look(now_ms, group.counts.delivered)
    room = state.limits.leased_max - state.leases.leased(topic.number, group.number)
    count_max = min(asked.count_max, room)
    if count_max <= 0:
        state.marks.lease_full.add((topic.number, group.number))
        if group.has_ready:
            key = topic.namespace, topic.name, group.name
            state.timeline.last(key, "leased_max", now_ms)
        return None
    if topic.paused:
        return None
    bucket = group.bucket
    if bucket is not None:
        count_max = bucket.take(now_ms, count_max)
        if count_max == 0:
            ready_ms = bucket.ready_at_ms(now_ms)
            state.marks.rate_limited[topic.number, group.number] = ready_ms
            if group.has_ready:
                key = topic.namespace, topic.name, group.name
                state.timeline.group(key, "rate_limit", now_ms, ready_ms)
            return None
    delivery: Delivery | None = None
    if asked.chosen is None and asked.only is None and not claim:
        delivery = lease_few(state, topic, group, asked, count_max, lease_ms)
    if delivery is None:
        selection = Selection(state, topic, group, asked, count_max, claim)
        if asked.chosen is None:
            selection.run()
        else:
            selection.choose(asked.chosen)
        delivery = selection.lease(lease_ms)
    if bucket is not None:
        bucket.give_back(count_max - (0 if delivery is None else delivery.count))
    return delivery


def peek(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
) -> tuple[Int64Array, RowArray, StateArray, bytes]:
    """Read ready messages without leasing them: their refs go back to the front."""
    selection = Selection(state, topic, group, asked, asked.count_max)
    if asked.chosen is None:
        selection.look_through()
    else:
        selection.look_for(asked.chosen)
    part = selection.joined()
    part = part.first(selection.fitting(part.rows))
    return part.refs, part.rows, part.entries, records_of(state, part.refs, part.rows)
