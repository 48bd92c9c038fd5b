"""Traces of messages: what happened to each, when, why and on which node.

A message's rows tell when it was sent, when it was due and how it ended, for as long as they are
kept. The steps between are in the physical log: from the message's SEND frame on, all frames are
skipped except those that lease, settle or move, which are decoded. Steps that the log does not
contain any more are missing, and `complete` is false then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.late.explaining import Wait, explain
from delaylog.broker.engine.late.holders import KeyHolders
from delaylog.broker.engine.late.late_note import noted_spans
from delaylog.broker.engine.late.timeline import SPAN_MIN_MS, Span
from delaylog.broker.engine.model import FoundMessage, Topic, cause_name
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.hours.far.far_hour import FarHour
from delaylog.storage.layout import (
    EPOCH_NODE_BITS,
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_BITS,
    Cause,
    FrameHeader,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.payloads import LeaseDecision, MoveDecision, SettleDecision
from delaylog.storage.messages.rows import seconds_of
from delaylog.storage.work import IoJob, Work

TRACE_SECONDS: Final = 2.0
"""Time limit for reading the log, which contains some hundred MiB of frames."""
SECOND_ROWS_MAX: Final = 65_536
"""Rows of a second that are searched for a moved row, at most."""
_SCAN_ROWS: Final = 4_096
_FRAMES_A_SLICE: Final = 1_000
_KINDS: Final = frozenset((FrameKind.LEASE, FrameKind.SETTLE, FrameKind.MOVE))
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
    "deleted",
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
        self._group = (group or topic.default).number
        self._now_ms = now_ms
        self._clock = clock
        self._by_ref: dict[int, Trace] = {}
        self._noted: list[Span] = []
        """What LEASE frames say of the group."""
        self.traces = [self._begin(one) for one in found]
        keys = {int(one.row["key_hash"]) for one in found} - {0}
        due_ms = min((trace.due_ms or 0 for trace in self.traces), default=0)
        self._holders = KeyHolders(state, keys, due_ms)

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
        # A message that moved before the log begins is found by its newest row.
        for ref in (found.origin, found.ref):
            trace.refs.add(ref)
            self._by_ref[ref] = trace
        return trace

    def work(self) -> Work:
        """Read the log in slices, and fill the traces."""
        began = self._clock()
        start = min((trace.sent_position for trace in self.traces), default=0)
        hops = self._state.log.hops(start)
        first, sent = hops.position, {trace.sent_position: trace for trace in self.traces}
        heads: dict[int, FrameHeader] = {}

        def wanted(header: FrameHeader) -> bool:
            if header.position in sent:
                heads[header.position] = header
            return header.kind in _KINDS

        begun = [trace for trace in self.traces if trace.sent_position >= first]
        for trace in self.traces:
            trace.steps.append({"event": "sent", "at_ms": trace.sent_at_ms})
        try:
            while hops.position < hops.end and self._clock() - began < TRACE_SECONDS:
                frames: list[Frame] = []

                def read(frames: list[Frame] = frames) -> None:
                    frames += hops.run(_FRAMES_A_SLICE, wanted)

                yield read
                for frame in frames:
                    yield from self._take(frame)
                yield None
        finally:
            hops.close()
        ended = hops.position >= hops.end
        for trace in self.traces:
            head = heads.get(trace.sent_position)
            if head is not None:
                trace.steps[0] |= _who(head)
            if trace not in begun or head is None or hops.skipped or not ended:
                trace.complete = False
            self._finish(trace)
            self._explain(trace)

    # ------------------------------------------------------------------ frames

    def _take(self, frame: Frame) -> Generator[IoJob | float | None, None, None]:
        header = frame.header
        self._note(frame)
        at_ms, who = header.leader_time_ms, _who(header)
        if header.kind == FrameKind.LEASE:
            lease = LeaseDecision.decode(frame.payload)
            numbers, attempts, marks = lease.leases, lease.attempts, lease.untried
            for k, trace in self._hits(lease, lease.refs):
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
                    **_consumer(lease, number),
                    **who,
                )
        elif header.kind == FrameKind.SETTLE:
            settle = SettleDecision.decode(frame.payload)
            for k, trace in self._hits(settle, settle.refs):
                self._settled(trace, settle.entries[k], at_ms, _reason(settle) | who)
        else:
            move = MoveDecision.decode(frame.payload)
            for k, trace in self._hits(move, move.refs):
                due = int(move.deliver_at_ms[k])
                attempts = int(move.attempts[k])
                event = _MOVES.get(Cause(move.cause), "moved")
                cause = Cause(move.cause).name.lower()
                more = _reason(move) | who
                trace.add(event, at_ms, cause=cause, attempts=attempts, due_ms=due, **more)
                trace.due_ms, trace.lease = due, 0
                yield from self._follow(trace, int(move.refs[k]), move, due)

    def _note(self, frame: Frame) -> None:
        """Look at what a frame says of other messages of the group."""
        kind, at_ms, payload = frame.header.kind, frame.header.leader_time_ms, frame.payload
        place = (self._topic.number, self._group)
        if kind == FrameKind.LEASE:
            lease = LeaseDecision.decode(payload)
            if (lease.topic, lease.group) == place:
                self._noted += noted_spans(lease.late)
                self._holders.leased(lease, at_ms)
        elif kind == FrameKind.SETTLE:
            settle = SettleDecision.decode(payload)
            if (settle.topic, settle.group) == place:
                self._holders.settled(settle, at_ms)
        else:
            move = MoveDecision.decode(payload)
            if (move.topic, move.group) == place:
                self._holders.moved(move, at_ms)

    def _hits(
        self, frame: LeaseDecision | SettleDecision | MoveDecision, refs: Int64Array
    ) -> list[tuple[int, Trace]]:
        """(index in the frame, trace) of rows that belong to these messages."""
        if (frame.topic, frame.group) != (self._topic.number, self._group):
            return []
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
            trace.add(MessageState(state).name.lower(), at_ms, **told)
            trace.due_ms = None

    def _follow(
        self, trace: Trace, ref: int, move: MoveDecision, due: int
    ) -> Generator[IoJob | float | None, None, None]:
        """Find the row that a row moved to, since later frames name that row.

        The state of a row that moved points to the next one. But the state of the origin points to
        the newest row, so the row after the origin is searched for in its second.
        """
        state = self._state
        if ref != trace.found.origin:
            refs = np.array([ref], np.int64)
            entry = (
                state.hours.get_states(refs, self._group)[0] if state.hours.known(refs)[0] else None
            )
            new = 0 if entry is None else int(entry["forward"])
        else:
            new = 0
            hour = max(due // HOUR_MS, move.hour_floor)
            if hour in state.hours.counts:
                least = ref & ((1 << INDEX_BITS) - 1) if hour == ref >> HOUR_SHIFT else 0
                tagged = (hour << HOUR_SHIFT) | (move.tag << INDEX_BITS)
                rows = yield from self._rows_of(trace, hour, due)
                rows = rows[(rows["epoch_tag"] == move.tag) & (rows["global_index"] > least)]
                index = sorted(rows["global_index"].tolist())
                new = tagged | index[0] if index else 0
        if new == 0:
            trace.complete = False
            return
        trace.refs.add(new)
        self._by_ref[new] = trace

    def _rows_of(
        self, trace: Trace, hour: int, due: int
    ) -> Generator[IoJob | float | None, None, RowArray]:
        """Rows of a message in an hour that are due at `due`."""
        hours, origin = self._state.hours, trace.found.origin
        life_of_hour, folder = hours.counts.life(hour), hours.view(hour)
        last = hours.flushed(hour)

        def mine(rows: RowArray) -> RowArray:
            out: RowArray = rows[(rows["origin"] == origin) & (rows["deliver_at"] == due)]
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
            second = max(due // 1000 - hour * (HOUR_MS // 1000), 0)
            if int(folder.heads.get().count[second]) <= SECOND_ROWS_MAX:
                for index in folder.walk_second(second, last, slice_rows=1_024):
                    if index:
                        rows = folder.read_rows(np.sort(np.array(index, np.int64)))
                        assert int(seconds_of(rows[:1], hour)[0]) == second, "chains keep a second"
                        out.append(mine(rows))
                    yield None
                    if hours.counts.life(hour) != life_of_hour:
                        break
        found = [rows for rows in out if len(rows)]
        return np.concatenate(found) if found else np.zeros(0, trace.found.row.dtype)

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

    def _explain(self, trace: Trace) -> None:
        """Say what each wait of a ready message was for."""
        state, topic = self._state, self._topic
        group = topic.groups.get(self._group, topic.default)
        place, timeline = (topic.number, self._group), state.timeline
        key = topic.namespace, topic.name, group.name
        spans = timeline.spans(key, place, state.leases.leased(*place), self._now_ms)
        held = self._holders.of(int(trace.found.row["key_hash"]), trace.found.origin)
        ready_ms: int | None = None
        for step in [*trace.steps, {"event": "", "at_ms": self._now_ms}]:
            at_ms = step["at_ms"]
            if ready_ms is not None and at_ms is not None and at_ms - ready_ms >= SPAN_MIN_MS:
                every = [*spans, *self._noted]
                known_ms = timeline.since_ms
                trace.waits += explain(ready_ms, at_ms, every, held, known_ms=known_ms)
            ready_ms = at_ms if step["event"] == "ready" else None


def _consumer(lease: LeaseDecision, number: int) -> dict[str, str]:
    """The name and the address of the consumer of a lease, as far as they are known."""
    at = number - lease.lease
    texts = (("consumer", lease.consumers), ("address", lease.addresses))
    return {name: known[at] for name, known in texts if at < len(known) and known[at]}


def _reason(frame: SettleDecision | MoveDecision) -> dict[str, str]:
    """Why a consumer failed, if it said so."""
    return {"reason": frame.reason} if frame.reason else {}


def _who(header: FrameHeader) -> dict[str, int]:
    """The epoch and the node under which a frame was appended."""
    node = header.epoch & ((1 << EPOCH_NODE_BITS) - 1)
    return {"epoch": header.epoch >> EPOCH_NODE_BITS, "node": node}
