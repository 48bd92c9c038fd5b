"""Traces of messages: what happened to each, when, why and on which node.

A message's rows tell when it was sent, when it was due and how it ended, for as long as they are
kept. The steps between are in the physical log: from the message's SEND frame on, all frames are
skipped except those that lease, settle or move, which are decoded. Steps that the log does not
contain any more are missing, and `complete` is false then.

The state of a row that moved points to the next one. But the state of the origin points to the
newest row, so the row after the origin is searched for in its second (`moved_row`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack
import numpy as np

from delaylog.broker.engine.late.causes import Decision, Evidence, Wait
from delaylog.broker.engine.late.timeline import SPAN_MIN_MS
from delaylog.broker.engine.model import FoundMessage, Topic, cause_name, empty_refs, shown_kind
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.hours.far.far_tier import FarHour
from delaylog.storage.layout import (
    EPOCH_NODE_BITS,
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    Cause,
    FrameHeader,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.log_reader import FrameHops
from delaylog.storage.log.payloads import (
    LeaseDecision,
    MoveDecision,
    SendDecision,
    SettleDecision,
    unpack,
)
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.rows import seconds_of
from delaylog.storage.work import IoJob, ReadJob, Work

TRACE_SECONDS: Final = 2.0
"""Time limit for reading the log, which contains some hundred MiB of frames."""
_FRAMES_A_SLICE: Final = 1_000
_MOVES: Final = {
    Cause.NACK: "nacked",
    Cause.LEASE_EXPIRED: "lease_expired",
    Cause.RESCHEDULE: "rescheduled",
    Cause.REPLAY: "replayed",
}
EVENTS: Final = (
    "sent",
    "due",
    "ready",
    "leased",
    "lease_extended",
    "begun",
    *_MOVES.values(),
    "moved",
    "acked",
    "expired",
    "dead",
    "cancelled",
    "replaced",
)
"""All events; `due` is one to come."""

Step = dict[str, Any]


@dataclass(slots=True)
class Trace:
    """The steps of one message, oldest first."""

    found: FoundMessage
    sent_at_ms: int
    sent_position: int
    steps: list[Step] = field(default_factory=list)
    complete: bool = True
    """Whether the log still contained every step."""
    due_ms: int | None = None
    """When it becomes ready, while no `ready` step was added for that."""
    lease: int = 0
    untried: bool = False
    """Whether it is under lease and no attempt has begun."""
    refs: set[int] = field(default_factory=set)
    waits: list[Wait] = field(default_factory=list)
    """What kept it from being handed out while it was ready, in order."""

    def add(self, event: str, at_ms: int, **members: Any) -> None:
        """Add a step, and before it a `ready` step if the message was due by then."""
        if self.due_ms is not None and self.due_ms <= at_ms:
            self.steps.append({"event": "ready", "at_ms": self.due_ms})
            self.due_ms = None
        self.steps.append({"event": event, "at_ms": at_ms, **members})


class Traces:
    """Traces of a few messages of one topic, made in one pass over the log by `work`."""

    def __init__(
        self,
        state: EngineState,
        topic: Topic,
        found: Sequence[FoundMessage],
        *,
        group: Group | None = None,
        now_ms: int,
        clock: Callable[[], float],
    ) -> None:
        """As `group` saw them, or the default group if None. `clock` returns seconds."""
        self._state = state
        self._topic = topic
        self._place = topic.number, (group or topic.default).number
        self._now_ms = now_ms
        self._clock = clock
        self._by_ref: dict[int, Trace] = {}
        self._read = [self._begin(one) for one in found]
        """What the log says of each message."""
        self._sent: dict[int, list[Trace]] = {}
        """By position of their SEND frames."""
        for trace in self._read:
            self._sent.setdefault(trace.sent_position, []).append(trace)
        self._position = min(self._sent, default=0)
        """Where the log is read next."""
        self._whole = True
        """Whether no frame was missing in what was read."""
        keys = {int(one.row["key_hash"]) for one in found} - {0}
        self._evidence = Evidence(state, self._place, keys)
        self.traces: list[Trace] = []
        """The result of `work`."""

    def again(self, found: Sequence[FoundMessage], now_ms: int) -> None:
        """Prepare to read what was logged since: `found` are the same messages as they are now."""
        self._now_ms = now_ms
        for trace, one in zip(self._read, found, strict=True):
            assert trace.found.origin == one.origin, "the same messages"
            trace.found = one
            trace.refs.add(one.ref)
            self._by_ref[one.ref] = trace

    def _begin(self, found: FoundMessage) -> Trace:
        """A trace with what the rows tell."""
        row = found.row
        if found.origin != found.ref:
            origins = np.array([found.origin], np.int64)
            if self._state.hours.known(origins)[0]:
                kept = self._state.hours.rows(origins)[0]
                row = kept if int(kept["origin"]) == found.origin else row
        trace = Trace(found, int(row["sent_at"]), int(row["sent_position"]))
        trace.due_ms = int(row["deliver_at"])
        sent = {"event": "sent", "at_ms": trace.sent_at_ms, "due_ms": trace.due_ms}
        trace.steps.append(sent)
        # A message that moved before the log begins is found by its newest row.
        for ref in (found.origin, found.ref):
            trace.refs.add(ref)
            self._by_ref[ref] = trace
        return trace

    def work(self) -> Work:
        """Read the log in slices, and make the traces."""
        began = self._clock()
        hops = self._state.log.hops(self._position)
        self._whole &= hops.position == self._position
        try:
            while hops.position < hops.end and self._clock() - began < TRACE_SECONDS:
                frames: list[Taken] = []
                yield ReadJob(partial(self._run, hops, frames))
                for part in parts_of(frames):
                    yield from self._take_all(part)
                    yield None
        finally:
            hops.close()
        self._whole &= not hops.skipped
        self._position = hops.position
        ended = hops.position >= hops.end
        if ended and not self._state.following:
            # A follower does not know the consumers of the leader.
            self._evidence.read(self._now_ms)
        yield from self._evidence.look(self._topic, self._now_ms)
        self.traces = []
        for read in self._read:
            trace = replace(read, steps=[*read.steps], waits=[])
            if "epoch" not in trace.steps[0] or not self._whole or not ended:
                trace.complete = False
            self._finish(trace)
            yield from self._explain(trace)
            self.traces.append(trace)
            yield None

    # ------------------------------------------------------------------ frames

    def _run(self, hops: FrameHops, frames: list[Taken]) -> None:
        """Read some frames, and decode those of the group: on a thread for reads."""
        evidence, sent = self._evidence, self._sent

        def wanted(header: FrameHeader) -> bool:
            at_ms = header.leader_time_ms
            if header.kind == FrameKind.EPOCH_BEGIN:
                evidence.restarted(at_ms)
            evidence.read(at_ms)
            mine = sent.get(header.position, ())
            for trace in mine:
                trace.steps[0] |= who_appended(header)
            small = header.kind == FrameKind.SEND and header.payload_size <= SEND_BYTES_MAX
            return header.kind in KINDS or (small and len(mine) > 0)

        for frame in hops.run(_FRAMES_A_SLICE, wanted):
            decision = decoded(frame, self._place)
            if decision is not None:
                frames.append((frame.header, decision))

    def _take_all(self, part: Sequence[Taken]) -> Generator[IoJob | float | None, None, None]:
        """Take frames. Most name none of the messages and none of their keys, and cost little."""
        columns = [refs_of(decision) for _, decision in part]
        refs = np.concatenate(columns)
        number = np.repeat(np.arange(len(part)), [len(column) for column in columns])
        count = len(self._by_ref)
        known = np.fromiter(self._by_ref, np.int64, count)
        named = set(number[np.isin(refs, known)].tolist())
        held = set(number[self._evidence.held(refs)].tolist())
        for at, (header, decision) in enumerate(part):
            # A row that moved has another ref in the frames that follow.
            mine = at in named or len(self._by_ref) > count
            if not isinstance(decision, Purge | SendDecision):
                self._evidence.take(decision, header.leader_time_ms, held=at in held)
                if not mine:
                    continue
            yield from self._take(header, decision)

    def _take(
        self, header: FrameHeader, decision: Decision | SendDecision | Purge
    ) -> Generator[IoJob | float | None, None, None]:
        """Take what a frame says of the messages."""
        at_ms, who = header.leader_time_ms, who_appended(header)
        if isinstance(decision, Purge):
            self._evidence.purged(at_ms, force=decision.force)
            return
        if isinstance(decision, SendDecision):
            for trace in self._sent[header.position]:
                self._evidence.sent(decision, trace.found)
            return
        if isinstance(decision, LeaseDecision):
            lease = decision
            numbers, attempts, marks = lease.leases, lease.attempts, lease.untried
            for k, trace in self._hits(lease.refs):
                number = numbers if isinstance(numbers, int) else int(numbers[k])
                untried = bool(marks if isinstance(marks, int) else marks[k])
                if trace.lease != number:
                    event = "leased"
                else:
                    event = "begun" if trace.untried and not untried else "lease_extended"
                trace.lease, trace.untried = number, untried
                trace.add(
                    event,
                    at_ms,
                    attempts=int(attempts if isinstance(attempts, int) else attempts[k]),
                    lease_until_ms=lease.deadline_ms,
                    **consumer_of(lease, number),
                    **who,
                )
        elif isinstance(decision, SettleDecision):
            for k, trace in self._hits(decision.refs):
                self._settled(trace, decision.entries[k], at_ms, reason_of(decision) | who)
        else:
            move = decision
            for k, trace in self._hits(move.refs):
                due = int(move.deliver_at_ms[k])
                attempts = int(move.attempts[k])
                event = _MOVES.get(Cause(move.cause), "moved")
                cause = Cause(move.cause).name.lower()
                more = reason_of(move) | who
                trace.add(event, at_ms, cause=cause, attempts=attempts, due_ms=due, **more)
                trace.due_ms, trace.lease = due, 0
                yield from self._follow(trace, int(move.refs[k]), move, due)

    def _hits(self, refs: Int64Array) -> list[tuple[int, Trace]]:
        """(index in the frame, trace) of rows that belong to these messages."""
        known = np.fromiter(self._by_ref, np.int64, len(self._by_ref))
        at = np.flatnonzero(np.isin(refs, known)).tolist()
        return [(k, self._by_ref[int(refs[k])]) for k in at]

    @staticmethod
    def _settled(trace: Trace, entry: Any, at_ms: int, who: dict[str, Any]) -> None:
        state, cause = int(entry["state"]), Cause(int(entry["cause"]))
        told = {"cause": cause_name(state, cause), "attempts": int(entry["attempts"]), **who}
        trace.lease = 0
        if state == MessageState.NONE:
            trace.add(_MOVES.get(cause, "moved"), at_ms, **told)
            trace.due_ms = at_ms
        else:
            trace.add(shown_kind(state, cause).name.lower(), at_ms, **told)
            trace.due_ms = None

    def _follow(
        self, trace: Trace, ref: int, move: MoveDecision, due_ms: int
    ) -> Generator[IoJob | float | None, None, None]:
        """Later frames name the row that a row moved to."""
        place = MovedRow(trace.found.origin, ref, due_ms)
        new = yield from moved_row(self._state, self._place[1], place, move)
        if new == 0:
            trace.complete = False
            return
        trace.refs.add(new)
        self._by_ref[new] = trace

    # ------------------------------------------------------------------ the end

    def _finish(self, trace: Trace) -> None:
        """Add steps that the rows tell and the log did not, and the next step to come."""
        found, entry = trace.found, trace.found.entry
        last = trace.steps[-1]["event"]
        row_due = int(found.row["deliver_at"])
        told = {
            "cause": cause_name(found.state, int(entry["cause"])),
            "attempts": int(entry["attempts"]),
        }
        if found.state >= MessageState.ACKED:
            event = found.state.name.lower()
            if last != event:
                trace.add(event, int(entry["time"]), **told)
            trace.due_ms = None
        elif found.state is MessageState.LEASED:
            if last not in ("leased", "lease_extended"):
                trace.due_ms = row_due
                until = int(entry["time"])
                trace.steps.append({"event": "ready", "at_ms": row_due})
                trace.steps.append(
                    {"event": "leased", "at_ms": None, **told, "lease_until_ms": until}
                )
            trace.due_ms = None
        elif trace.due_ms is None or not trace.complete:
            trace.due_ms = row_due
        if trace.due_ms is not None:
            event = "ready" if trace.due_ms <= self._now_ms else "due"
            trace.steps.append({"event": event, "at_ms": trace.due_ms})

    def _explain(self, trace: Trace) -> Generator[None, None, None]:
        """Say what each wait of a ready message was for."""
        row, origin = trace.found.row, trace.found.origin
        ready_ms: int | None = None
        for step in [*trace.steps, {"event": "", "at_ms": self._now_ms}]:
            at_ms = step["at_ms"]
            if ready_ms is not None and at_ms is not None and at_ms - ready_ms >= SPAN_MIN_MS:
                trace.waits += yield from self._evidence.waits(ready_ms, at_ms, row, origin)
            ready_ms = at_ms if step["event"] == "ready" else None


SECOND_ROWS_MAX: Final = 65_536
"""Rows of a second that are searched for a moved row, at most."""
_SCAN_ROWS: Final = 4_096


class MovedRow(NamedTuple):
    """A row that moved."""

    origin: int
    ref: int
    due_ms: int
    """The due time of the next row."""


def moved_row(
    state: EngineState, group: int, moved: MovedRow, move: MoveDecision
) -> Generator[IoJob | float | None, None, int]:
    """The ref of the next row; 0 if it is not found any more."""
    origin, ref, due_ms = moved
    if ref != origin:
        refs = np.array([ref], np.int64)
        known = state.hours.known(refs)[0]
        return int(state.hours.get_states(refs, group)[0]["forward"]) if known else 0
    hour = max(due_ms // HOUR_MS, move.hour_floor)
    if hour not in state.hours.counts:
        return 0
    least = ref & ((1 << INDEX_BITS) - 1) if hour == ref >> HOUR_SHIFT else 0
    rows = yield from _rows_of(state, moved, hour)
    rows = rows[(rows["epoch_tag"] == move.tag) & (rows["global_index"] > least)]
    if not len(rows):
        return 0
    return (hour << HOUR_SHIFT) | (move.tag << INDEX_BITS) | int(rows["global_index"].min())


def _rows_of(
    state: EngineState, moved: MovedRow, hour: int
) -> Generator[IoJob | float | None, None, RowArray]:
    """Rows of a message in an hour that are due at the time that it moved to."""
    hours, due_ms = state.hours, moved.due_ms
    life_of_hour, folder = hours.counts.life(hour), hours.view(hour)
    last = hours.flushed(hour)

    def mine(rows: RowArray) -> RowArray:
        out: RowArray = rows[(rows["origin"] == moved.origin) & (rows["deliver_at"] == due_ms)]
        return out

    out = [mine(rows) for rows, _ in hours.pile.parts(hour)]
    if isinstance(folder, FarHour):
        for start in range(1, last + 1, _SCAN_ROWS):
            numbers = np.arange(start, min(start + _SCAN_ROWS, last + 1), dtype=np.int64)
            out.append(mine(folder.read_rows(numbers)))
            yield None
            if hours.counts.life(hour) != life_of_hour:
                break
    elif last:
        second = max(due_ms // 1000 - hour * (HOUR_MS // 1000), 0)
        if int(folder.heads.get().count[second]) <= SECOND_ROWS_MAX:
            for index in folder.walk_second(second, last, slice_rows=1_024):
                if index:
                    rows = folder.read_rows(np.sort(np.array(index, np.int64)))
                    assert int(seconds_of(rows[:1], hour)[0]) == second, "chains keep a second"
                    out.append(mine(rows))
                yield None
                if hours.counts.life(hour) != life_of_hour:
                    break
    return np.concatenate([np.zeros(0, INDEX_ENTRY), *out])


SEND_BYTES_MAX: Final = 1 << 20
"""A larger SEND frame is not read for the messages that its messages wait for."""
_REFS_A_SLICE: Final = 512
_DECODERS: Final[dict[FrameKind, Callable[[Block], Decision]]] = {
    FrameKind.LEASE: LeaseDecision.decode,
    FrameKind.SETTLE: SettleDecision.decode,
    FrameKind.MOVE: MoveDecision.decode,
}
KINDS: Final = frozenset((*_DECODERS, FrameKind.FLOOR))


class Purge(NamedTuple):
    """A purge of a group."""

    force: bool
    """Also of messages under lease."""


Taken: TypeAlias = tuple[FrameHeader, Decision | SendDecision | Purge]


def decoded(frame: Frame, place: tuple[int, int]) -> Decision | SendDecision | Purge | None:
    """What a frame says of a group; None if it is of another one."""
    kind, payload = frame.header.kind, frame.payload
    if kind == FrameKind.SEND:
        decided = SendDecision.decode(unpack(payload)[0])
        return None if decided.successors is None else decided
    if kind == FrameKind.FLOOR:
        members = msgpack.unpackb(payload)
        mine = (members["topic"], members["group"]) == place
        return Purge(force=members["force"]) if mine else None
    decision = _DECODERS[FrameKind(kind)](payload)
    return decision if (decision.topic, decision.group) == place else None


def refs_of(decision: Decision | SendDecision | Purge) -> Int64Array:
    """The rows that a frame leases, settles or moves."""
    return empty_refs() if isinstance(decision, Purge | SendDecision) else decision.refs


def parts_of(frames: Sequence[Taken]) -> Iterator[Sequence[Taken]]:
    """Frames in parts for a slice each. One that tells of a predecessor ends its part."""
    part: list[Taken] = []
    count = 0
    for taken in frames:
        part.append(taken)
        count += len(refs_of(taken[1])) + 1
        if count >= _REFS_A_SLICE or isinstance(taken[1], SendDecision):
            yield part
            part, count = [], 0
    if part:
        yield part


def consumer_of(lease: LeaseDecision, number: int) -> dict[str, str]:
    """The name and the address of the consumer of a lease, as far as they are known."""
    at = number - lease.lease
    texts = (("consumer", lease.consumers), ("address", lease.addresses))
    return {name: known[at] for name, known in texts if at < len(known) and known[at]}


def reason_of(frame: SettleDecision | MoveDecision) -> dict[str, str]:
    """Why a consumer failed, if it said so."""
    return {"reason": frame.reason} if frame.reason else {}


def who_appended(header: FrameHeader) -> dict[str, int]:
    """The epoch and the node under which a frame was appended."""
    node = header.epoch & ((1 << EPOCH_NODE_BITS) - 1)
    return {"epoch": header.epoch >> EPOCH_NODE_BITS, "node": node}
