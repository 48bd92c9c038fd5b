"""Firings: what happens with schedules whose instants are due, one bounded slice at a time.

A slice appends one MULTI frame: a SEND frame for each topic, with the messages of its firings, and
a SCHEDULE frame with the next instants. So an instant fires in exactly one frame, whatever ends the
process, and a schedule whose frame was lost is where it was before. A `Progress` is computed only
here, from one instant of a schedule to the next.

A message has the schedule's body and fields. Its id is `schedule@instant`. The headers `schedule`,
`due` (the instant in Unix ms) and `n` (the number of the firing) are added, unless the schedule has
headers of these names; in the values of its own headers `{schedule}`, `{due}` and `{n}` are
replaced. The body is bytes and stays as it is.

A schedule that lets its messages overlap sends each up to a second ahead, so that the wheel
releases it on time. A pause, a change or a deletion of the schedule in that second recalls such a
message (cancels it), and so does the end of an outage in which it came due. Afterwards the schedule
waits for the first of those instants again, as if none had been sent ahead, so a resume or a change
before that instant loses nothing, and an instant of an outage obeys the catch-up rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from delaylog.broker.engine.apply.send_frames import Logged, apply_send
from delaylog.broker.engine.changes import cancel
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.schedule import AHEAD_MS, Progress, Schedule
from delaylog.broker.engine.schedules.table import ScheduleTable, moved_rows
from delaylog.broker.engine.send.merge import merge_ids
from delaylog.broker.engine.send.sends import decide_send
from delaylog.broker.engine.state import EngineState
from delaylog.broker.rules.schedules.firings import (
    Action,
    count_instants,
    decide_overlap,
    due_ms,
    first_after_outage,
    newest_from,
    newest_instant,
)
from delaylog.broker.rules.schedules.instants import next_instant, next_instant_after_change, wall_s
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedules import INSTANT_MS_MAX
from delaylog.contract.message_fields import HEADERS, pack_fields, put_columns
from delaylog.storage.layout import NEVER_MS, STATE_ENDED_FIRST, FrameKind, MessageState
from delaylog.storage.log.payloads import encode_multi
from delaylog.storage.messages.batch import Block, MessageBatch, batch_of_columns

# ----------------------------------------------------------------- from one instant to the next


def is_spent(one: Schedule, progress: Progress) -> bool:
    """Whether it has fired as often as its count says."""
    count = one.spec.timing.count
    return count is not None and progress.n >= count


def begin_after(one: Schedule, progress: Progress, after_ms: int, zones: Zones) -> None:
    """Wait for the first instant after a time: an instant, or when a call changed the schedule."""
    timing = one.spec.timing
    progress.last_ms = after_ms
    progress.wall_s = 0 if timing.elapsed else wall_s(timing, after_ms, zones)
    wait_for(one, progress, next_instant(timing, after_ms, zones), zones)


def wait_for(one: Schedule, progress: Progress, instant_ms: int | None, zones: Zones) -> None:
    """Wait for an instant; for none if there is none, or the schedule has fired `count` times."""
    if instant_ms is None or is_spent(one, progress):
        progress.next_ms = progress.due_ms = 0
        return
    progress.next_ms = progress.due_ms = instant_ms
    jitter_ms = one.spec.rules.jitter_ms
    if jitter_ms:
        following = next_instant(one.spec.timing, instant_ms, zones)
        key = f"{one.topic}/{one.name}".encode()
        progress.due_ms = due_ms(key, instant_ms, following, jitter_ms)


def recomputed(one: Schedule, zones: Zones) -> Progress:
    """The progress by other zone data; the same if that changes nothing, or lacks its zone."""
    progress, timing = one.progress.copy(), one.spec.timing
    if progress.next_ms and timing.interval_ms is None and timing.zone in zones.names:
        found = next_instant_after_change(timing, progress.last_ms, progress.wall_s, zones)
        wait_for(one, progress, found, zones)
    return progress


# -------------------------------------------------------------------------- messages of firings

NAMES: Final = ("schedule", "due", "n")
"""The headers of a firing."""
_KEPT_BYTES: Final = 4_096
"""Larger messages are unpacked at each firing, so that memory does not grow with bodies."""


class Firing(NamedTuple):
    """An instant of a schedule that fires."""

    schedule: Schedule
    instant_ms: int
    due_ms: int
    n: int


class _Template(NamedTuple):
    body: bytes
    fields: dict[str, Any]
    """Packed, without headers."""
    backoff: bytes
    headers: dict[str, str]


def is_firing(id_: str, headers: Mapping[str, str]) -> bool:
    """Whether a message with this id and these headers is the one firing of an instant: a backfill
    sends further messages for it.
    """
    schedule, due, n = (headers.get(name) for name in NAMES)
    whole = None not in (schedule, due, n)
    return whole and n != "0" and id_ == f"{schedule}@{due}"


def pack_message(body: bytes, fields: Mapping[str, Any], name: str) -> bytes:
    """A message as a schedule stores it. Raises MemberError that names the field."""
    packed = bytes(msgpack.packb({"body": body, "fields": dict(fields)}))
    # The longest values decide whether the headers of every firing have room.
    _fields_of(_template(packed), name, INSTANT_MS_MAX, 2**53)
    return packed


def unpack_message(packed: bytes) -> tuple[bytes, dict[str, Any]]:
    """(body, fields) of a stored message."""
    members = msgpack.unpackb(packed)
    return members["body"], members["fields"]


def batch_of(firings: Sequence[Firing]) -> MessageBatch:
    """The messages of firings of one topic."""
    rows, bodies = [], []
    for schedule, instant_ms, _, n in firings:
        template = _template(schedule.spec.message)
        row = _fields_of(template, schedule.name, instant_ms, n)
        row["id"] = schedule.id_at(instant_ms).encode()
        rows.append(row)
        bodies.append(template.body)
    columns: dict[str, Any] = {
        "n": len(firings),
        "deliver_at_ms": np.array([firing.due_ms for firing in firings], np.int64),
        "body_size": np.array(list(map(len, bodies)), np.int64),
        "bodies": b"".join(bodies),
    }
    put_columns(columns, rows)
    return batch_of_columns(columns)


def _template(packed: bytes) -> _Template:
    return _made(packed) if len(packed) > _KEPT_BYTES else _kept(packed)


@lru_cache(maxsize=1_024)
def _kept(packed: bytes) -> _Template:
    return _made(packed)


def _made(packed: bytes) -> _Template:
    body, fields = unpack_message(packed)
    headers = HEADERS.check(fields.pop("headers", None) or {})
    made = pack_fields(fields)
    return _Template(body, made, made.pop("headers", b""), headers)


def _fields_of(template: _Template, name: str, instant_ms: int, n: int) -> dict[str, Any]:
    values = dict(zip(NAMES, (name, str(instant_ms), str(n)), strict=True))
    headers = dict(values)
    for header, text in template.headers.items():
        if "{" in text:
            for word, value in values.items():
                text = text.replace(f"{{{word}}}", value)
        headers[header] = text
    packed = pack_fields({"headers": headers})["headers"]
    return {**template.fields, "headers": template.backoff + packed}


# --------------------------------------------------------------------------------------- slices

# Next instants by other zone data: after a start of a program with another release of tzdata.
#
# Schedules are computed in the order of their due times, and what has been computed may fire. So a
# million of them take a minute of work, and what is due waits only for what is due before it or in
# the same millisecond.

SLICE_SCHEDULES: Final = 64


class Recomputing:
    """The schedules that are left, in order."""

    def __init__(self, table: ScheduleTable) -> None:
        self._table = table
        self._times, self._numbers = table.in_order()
        self._at = 0

    @property
    def upto_ms(self) -> int:
        """Everything due before this is computed."""
        return int(self._times[self._at]) if self._at < len(self._times) else NEVER_MS

    def step(self, zones: Zones) -> dict[int, Progress]:
        """Compute a slice; returns what changes."""
        moved: dict[int, Progress] = {}
        part = self._numbers[self._at : self._at + SLICE_SCHEDULES].tolist()
        self._at += len(part)
        for number in part:
            one = self._table.get(number)
            if one is not None and (progress := recomputed(one, zones)) != one.progress:
                moved[number] = progress
        return moved


# Which of the schedules that are due is next: topics take turns.
#
# Due times alone are unfair: a topic whose schedules fire more often than the broker can is always
# behind, so its instants are always the oldest, and those of all other topics wait for ever. Here
# the topics with something due take turns, however much each has; within a topic the oldest is
# first.


class DueByTopic:
    """Schedules whose time has come and that have not been looked at yet."""

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        """(time, number) of a topic's schedules; no heap is empty."""
        self._turns: deque[int] = deque()
        """The topics of `_heaps`; the next one is at the left."""
        self.numbers: set[int] = set()
        """Those that are due, of all topics."""

    def add(self, topic: int, number: int, due_ms: int) -> None:
        """A schedule is due since `due_ms`. One that is there already keeps its place.

        A topic that has nothing due takes its first turn after all others.
        """
        if number in self.numbers:
            return
        self.numbers.add(number)
        heap = self._heaps.get(topic)
        if heap is None:
            heap = self._heaps[topic] = []
            self._turns.append(topic)
        heappush(heap, (due_ms, number))

    def take(self) -> int | None:
        """The number of the schedule that is next; None if none is due."""
        if not self._turns:
            return None
        topic = self._turns.popleft()
        heap = self._heaps[topic]
        _, number = heappop(heap)
        self.numbers.discard(number)
        if heap:
            self._turns.append(topic)
        else:
            del self._heaps[topic]
        return number


SLICE_FIRINGS: Final = 64
"""Firings of one frame: about three milliseconds."""
SLICE_STEPS: Final = 4 * SLICE_FIRINGS
"""Schedules looked at in one slice."""
SLICE_BYTES: Final = 4 << 20
"""Bodies of one frame, after the first one."""
GATHER: Final = 4
"""Due schedules that the table gives up for each that is looked at: so those of other topics are
found behind many of one.
"""
GATHERED_MAX: Final = 65_536
"""Due schedules that wait for the turns of their topics: 12 MB. Beyond it the oldest go first."""
FULL_RETRY_MS: Final = 1_000
"""Time between looks at a full disk."""


class ScheduleRunner:
    """The firings of one leadership."""

    def __init__(self, state: EngineState, zones: Zones = PACKAGED) -> None:
        self._state = state
        self._zones = zones
        self._outage_ms = 0
        """What was due before this time was missed, and obeys the catch-up rule."""
        self._held_until_ms = 0
        self._due = DueByTopic()
        self._recomputing: Recomputing | None = None
        self._lacking: set[str] = set()
        """Zones of due schedules that this node's tzdata does not have."""
        self.warnings: list[str] = []
        """What the host has yet to log; it removes them."""

    def start(self, now_ms: int) -> None:
        """Fire from now on: the outage that may have been ends here. A held broker fires nothing
        until it is released, which is another start.
        """
        table = self._state.schedules
        self._due, self._recomputing = DueByTopic(), None
        if self._state.holding.now is not None:
            table.follow()
            return
        table.lead()
        self._outage_ms = now_ms
        newer = self._zones.version > table.zones
        again = newer or (table.mixed and self._zones.version == table.zones)
        # An earlier leadership may have left some, which another leader has computed since.
        self._recomputing = Recomputing(table) if again and len(table) else None

    def clock_stepped(self, now_ms: int) -> None:
        """The clock jumped ahead, which is an outage, or was set back, after which none was."""
        self._outage_ms = now_ms
        self._held_until_ms = 0

    def next_wake_ms(self) -> int | None:
        """When `run_due` has something to do next; None: nothing is known to come."""
        if self._recomputing is not None or self._due.numbers:
            return self._held_until_ms
        wake = self._state.schedules.wakes.next_ms()
        return None if wake is None else max(wake, self._held_until_ms)

    def run_due(self, now_ms: int) -> None:
        """Fire what is due, one bounded slice."""
        wake = self.next_wake_ms()
        state = self._state
        if wake is None or wake > now_ms or state.retired or not state.may_append():
            return
        if self._state.short_of_space:
            # As sends are refused then. What is due fires when there is room: it is no outage.
            self._held_until_ms = now_ms + FULL_RETRY_MS
            return
        upto_ms = now_ms
        if self._recomputing is not None:
            # Nothing fires by an instant that may be that of an older release.
            upto_ms = min(self._recompute_some(self._recomputing, now_ms) - 1, now_ms)
        table, one_slice = self._state.schedules, _Slice(upto_ms)
        table.look_ahead(upto_ms)
        while one_slice.room:
            one = self._next(one_slice)
            if one is None:
                break
            if one.spec.rules.overlap != "allow" and one.number in one_slice.moved:
                # Its last message is not in the state before this slice is applied.
                table.wake(one, one_slice.moved[one.number])
                break
            self._look_at(one, one_slice, now_ms)
        if one_slice.moved:
            append_firings(
                self._state, one_slice.firings, one_slice.moved, now_ms, by=self._zones.version
            )

    def _next(self, one_slice: _Slice) -> Schedule | None:
        """The schedule whose turn it is, None if none is due."""
        table = self._state.schedules
        for _ in range(GATHER if len(self._due.numbers) < GATHERED_MAX else 0):
            one = table.pop_due(one_slice.upto_ms, one_slice.moved)
            if one is None:
                break
            progress = one_slice.moved.get(one.number, one.progress)
            # A buffered firing has waited longest.
            due_ms = 0 if progress.buffered_ms else one.wake_ms(progress)
            self._due.add(one.topic, one.number, due_ms)
        while (number := self._due.take()) is not None:
            one = table.get(number)
            # It may have been changed since it was found; `_judge` sees the rest.
            if one is not None and not one.paused:
                return one
        return None

    def _look_at(self, one: Schedule, one_slice: _Slice, now_ms: int) -> None:
        """Judge a schedule that is due, or whose buffered firing may be."""
        before = one_slice.moved.get(one.number, one.progress)
        progress = before.copy()
        one_slice.steps += 1
        zone = one.spec.timing.zone
        if zone not in self._zones.names:
            # It stays as it is, and nothing wakes it in this leadership. For the next leader with
            # the zone the time until then is an outage.
            if zone not in self._lacking:
                self._lacking.add(zone)
                self.warnings.append(self._zones.lack(zone))
            return
        self._judge(one, progress, one_slice, now_ms)
        if progress != before:
            one_slice.moved[one.number] = progress
        self._state.schedules.wake(one, progress)

    def _judge(self, one: Schedule, progress: Progress, one_slice: _Slice, now_ms: int) -> None:
        rules = one.spec.rules
        open_last = (
            [] if rules.overlap == "allow" else living_last(self._state, one, progress, now_ms)
        )
        if progress.buffered_ms and not open_last:
            if is_spent(one, progress):
                progress.give_up_buffered()
            else:
                one_slice.fire(one, progress, progress.buffered_ms, now_ms)
                progress.buffered_ms = 0
            # It may have been the last one.
            wait_for(one, progress, progress.next_ms or None, self._zones)
            return
        instant = progress.next_ms
        if not instant or one.wake_ms(progress) > one_slice.upto_ms:
            self._await(one, progress, open_last)
            return
        kept = self._after_outage(one, progress)
        if kept != instant:
            wait_for(one, progress, kept, self._zones)
            self._await(one, progress, open_last)
            return
        buffered = progress.buffered_ms != 0
        action = decide_overlap(rules.overlap, open_last=bool(open_last), buffered=buffered)
        if action is Action.SKIP:
            progress.skipped += 1
        elif action is Action.BUFFER:
            progress.buffered_ms = instant
        else:
            if action is Action.REPLACE:
                topic = self._state.by_number[one.topic]
                for found in open_last:
                    # Before the frame of the firing: a crash between the two leaves none, and
                    # this instant fires after it.
                    cancel(self._state, topic, found, now_ms, force=True)
            one_slice.fire(one, progress, instant, progress.due_ms)
        begin_after(one, progress, instant, self._zones)
        self._await(one, progress, open_last)

    def _after_outage(self, one: Schedule, progress: Progress) -> int | None:
        """The first instant from the next one on that may fire; those before it are counted."""
        if progress.due_ms >= self._outage_ms:
            return progress.next_ms
        timing, rules = one.spec.timing, one.spec.rules
        first_ms, end_ms, zones = progress.next_ms, self._outage_ms, self._zones
        if rules.jitter_ms and rules.catch_up != "all":
            # The newest may be due after the outage: then it was not missed.
            newest = progress.copy()
            wait_for(one, newest, newest_from(timing, first_ms, end_ms - 1, zones), zones)
            if newest.due_ms >= end_ms:
                end_ms = newest.next_ms
        kept = first_after_outage(timing, first_ms, end_ms, rules.after_outage, zones)
        until_ms = end_ms if kept is None else kept
        progress.skipped += count_instants(timing, first_ms, until_ms, zones)
        return next_instant(timing, end_ms - 1, zones) if kept is None else kept

    def _await(self, one: Schedule, progress: Progress, open_last: list[FoundMessages]) -> None:
        """Have a buffered firing looked at when the message before it ends."""
        if progress.buffered_ms:
            for found in open_last:
                self._state.schedules.awaited.add(int(found.origins[0]), one.number)

    def _recompute_some(self, left: Recomputing, now_ms: int) -> int:
        """Compute next instants by this node's zone data, for a slice of schedules.

        Returns the time up to which all are computed.
        """
        state, version = self._state, self._zones.version
        moved = left.step(self._zones)
        if moved:
            append_firings(state, [], moved, now_ms, by=version)
            for number, progress in moved.items():
                one = state.schedules.get(number)
                assert one is not None, "it was moved"
                state.schedules.wake(one, progress)
        if left.upto_ms == NEVER_MS:
            append_schedule(state, {"zones": version}, now_ms)
            self._recomputing = None
        return left.upto_ms


class _Slice:
    """What one slice has decided."""

    def __init__(self, upto_ms: int) -> None:
        self.upto_ms = upto_ms
        """What is due by this time may fire."""
        self.firings: list[Firing] = []
        self.moved: dict[int, Progress] = {}
        self.steps = 0
        self._bytes = 0

    @property
    def room(self) -> bool:
        """Whether the slice may go on."""
        few = len(self.firings) < SLICE_FIRINGS and self.steps < SLICE_STEPS
        return few and self._bytes < SLICE_BYTES

    def fire(self, one: Schedule, progress: Progress, instant_ms: int, due_ms: int) -> None:
        """An instant fires."""
        progress.n += 1
        progress.fired_ms = instant_ms
        self.firings.append(Firing(one, instant_ms, due_ms, progress.n))
        self._bytes += len(one.spec.message)


def living_last(
    state: EngineState, one: Schedule, progress: Progress, now_ms: int
) -> list[FoundMessages]:
    """The message of the newest firing in each group where it is pending or leased."""
    topic, out = state.by_number[one.topic], []
    if progress.fired_ms:
        for group in topic.groups.values():
            found = find_ids(state, topic, [one.id_at(progress.fired_ms)], now_ms, group)
            if found.known[0] and found.states[0] < STATE_ENDED_FIRST:
                out.append(found)
    return out


def append_firings(
    state: EngineState,
    firings: list[Firing],
    moved: dict[int, Progress],
    now_ms: int,
    *,
    by: str,
) -> int:
    """One frame: the messages of firings, and where their schedules are now; returns its end."""
    parts: list[tuple[FrameKind, list[Block]]] = []
    sends = []
    for number in dict.fromkeys(firing.schedule.topic for firing in firings):
        topic = state.by_number[number]
        batch = batch_of([firing for firing in firings if firing.schedule.topic == number])
        # An id that a living message has is the firing already: it is not sent again.
        merge = merge_ids(state, topic, batch, "keep", now_ms)
        decision = decide_send(state, topic, merge, now_ms)
        if merge.accepted is None or len(merge.accepted):
            parts.append((FrameKind.SEND, decision.encode(batch.wire)))
            sends.append((batch, decision))
    members = {"moved": moved_rows(moved), "by": by}
    parts.append((FrameKind.SCHEDULE, [msgpack.packb(members)]))
    position, end = state.append(FrameKind.MULTI, encode_multi(parts), now_ms)
    for batch, decision in sends:
        apply_send(state, batch, decision, Logged(position, end, now_ms))
    state.schedules.apply(members, position)
    return end


def append_schedule(state: EngineState, members: dict[str, object], now_ms: int) -> int:
    """One SCHEDULE frame; returns its end."""
    position, end = state.append(FrameKind.SCHEDULE, [msgpack.packb(members)], now_ms)
    state.schedules.apply(members, position)
    return end


# ------------------------------------------------------- recall of firings that were sent ahead


class Recall(NamedTuple):
    """What a recall does."""

    one: Schedule
    """The schedule as it is afterwards."""
    messages: list[FoundMessages]
    """Its messages that are cancelled, in each group."""


def plan_recall(
    state: EngineState, topic: Topic, one: Schedule, now_ms: int, zones: Zones = PACKAGED
) -> Recall:
    """What `recall_ahead` would do; nothing changes.

    An instant whose message somebody has cancelled has fired, and so have those before it.
    """
    progress, timing = one.progress.copy(), one.spec.timing
    instants: list[int] = []
    # The newest was sent at most AHEAD_MS before it was due, so older ones were due then. After
    # the clock was set back, those between now and then have fired.
    from_ms = max(now_ms, progress.last_ms - AHEAD_MS)
    # Without its zone nobody knows what was sent ahead; a take-over takes longer than a second.
    if one.spec.rules.overlap == "allow" and timing.zone in zones.names:
        at = next_instant(timing, from_ms, zones)
        while at is not None and at <= progress.last_ms:
            instants.append(at)
            at = next_instant(timing, at, zones)
    if not instants:
        return Recall(one, [])
    ids = [one.id_at(at) for at in instants]
    seen = [find_ids(state, topic, ids, group=group) for group in topic.groups.values()]
    wait = [
        any(each.known[n] and each.states[n] == MessageState.WAITING for each in seen)
        for n in range(len(ids))
    ]
    # Up to the last instant whose message does not wait any more.
    kept = max((n + 1 for n, waits in enumerate(wait) if not waits), default=0)
    if kept == len(ids):
        return Recall(one, [])
    progress.n -= len(ids) - kept
    before_ms = instants[kept - 1] if kept else from_ms
    # A firing by hand is behind those that were sent ahead, and stays the newest.
    if progress.fired_ms in instants:
        # What fired before is not stored: it is the instant before, unless that was in a pause,
        # whose message does not exist then.
        progress.fired_ms = newest_instant(timing, before_ms, zones) if progress.n else 0
    begin_after(one, progress, before_ms, zones)
    return Recall(one.at(progress), [found.take(np.arange(kept, len(ids))) for found in seen])


def recall_missed(state: EngineState, down_ms: int, now_ms: int) -> None:
    """Recall what was sent ahead of an outage and came due in it, between the two times.

    `down_ms` is the last time at which a leader is known to have been there. Under `all` such an
    instant fires anyway, so its message stays.
    """
    for number in state.schedules.sent_ahead(down_ms) if down_ms < now_ms else ():
        one = state.schedules.get(number)
        if one is not None and not one.paused and one.spec.rules.catch_up != "all":
            plan = plan_recall(state, state.by_number[one.topic], one, down_ms)
            _carry_out(state, one, plan, now_ms)


def recall_ahead(
    state: EngineState, topic: Topic, one: Schedule, now_ms: int, zones: Zones = PACKAGED
) -> Schedule:
    """Cancel the messages of instants after `now_ms`; returns the schedule as it is now."""
    return _carry_out(state, one, plan_recall(state, topic, one, now_ms, zones), now_ms, zones)


def _carry_out(
    state: EngineState, one: Schedule, plan: Recall, now_ms: int, zones: Zones = PACKAGED
) -> Schedule:
    after, messages = plan
    if after is one:
        return one
    # The schedule before the messages: if a crash comes between the two, an instant whose message
    # still lives is not sent again.
    append_firings(state, [], {one.number: after.progress}, now_ms, by=zones.version)
    state.schedules.wake(one, after.progress)
    for found in messages:
        cancel(state, state.by_number[one.topic], found, now_ms)
    return after
