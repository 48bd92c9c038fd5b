"""What the log and the timeline say of the waits in one group.

Frames tell who held keys and when consumers were busy; LEASE frames of late messages also repeat
spans of the timeline, which forgets. The log tells nothing of a time that was not read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache, partial
from typing import Any, Final, TypeAlias

from delaylog.broker.engine.late.explaining import Held, Wait, explain
from delaylog.broker.engine.late.holders import KeyHolders
from delaylog.broker.engine.late.late_note import noted_spans
from delaylog.broker.engine.late.timeline import MERGED_MS, Span
from delaylog.broker.engine.late.workload import Workload
from delaylog.broker.engine.model import FoundMessage, Topic
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns.questions import Mask
from delaylog.storage.layout import Int64Array
from delaylog.storage.log.payloads import LeaseDecision, MoveDecision, SendDecision, SettleDecision

Decision: TypeAlias = LeaseDecision | SettleDecision | MoveDecision
NOTED_MAX: Final = 4_096
"""Spans of LEASE frames that are kept; the oldest go first."""
RESTARTS_MAX: Final = 256
_STARTS: Final = ("down", "take_over")


class Evidence:
    """Collects what frames say, in the order of the log; then explains waits."""

    def __init__(self, state: EngineState, place: tuple[int, int], keys: set[int]) -> None:
        """`place` has the numbers of topic and group, `keys` the hashes of the messages' keys."""
        self._state, self._place = state, place
        self._holders = KeyHolders(state, place, keys)
        self._workload = Workload()
        self._noted: dict[str, list[Span]] = {}
        """By cause."""
        self._restarts: list[tuple[int, int]] = []
        """(time of the frame before, time) of epochs that began."""
        self.first_ms = self.last_ms = 0
        """The time that was read, by the leader's time in frames."""
        self._live: dict[int, Held] = {}
        self._spans: list[Span] = []
        self._absences: Callable[[int], list[Span]] = lambda _: []
        """By the mask of a message's tags."""

    # ------------------------------------------------------------------ frames

    def read(self, at_ms: int) -> None:
        """The log was read up to this time."""
        self.first_ms = self.first_ms or at_ms
        self.last_ms = max(self.last_ms, at_ms)

    def sent(self, send: SendDecision, found: FoundMessage) -> None:
        """The SEND frame of a message: it may wait for the end of another one with its id."""
        if send.successors is not None:
            _, predecessors, groups = send.successors
            mine = predecessors[groups == self._place[1]]
            self._holders.follows(found.origin, int(found.row["id_hash"]), mine)

    def held(self, refs: Int64Array) -> Mask:
        """Which rows are of messages that may hold up the ones to explain."""
        return self._holders.named(refs)

    def take(self, decision: Decision, at_ms: int, *, held: bool) -> None:
        """A frame of the group; `held` = whether any of its rows is in `held`."""
        if isinstance(decision, LeaseDecision):
            for span in noted_spans(decision.late):
                self._note(span)
            self._workload.leased(decision, at_ms)
            if held:
                self._holders.leased(decision, at_ms)
            return
        self._workload.ended(decision, at_ms)
        if held and isinstance(decision, SettleDecision):
            self._holders.settled(decision, at_ms)
        elif held and isinstance(decision, MoveDecision):
            self._holders.moved(decision, at_ms)

    def purged(self, at_ms: int, *, force: bool) -> None:
        """A purge of the group."""
        self._holders.purged(at_ms, force=force)
        if force:
            self._workload.purged(at_ms)

    def restarted(self, at_ms: int) -> None:
        """An epoch began: a node started or took over."""
        self._restarts.append((self.last_ms, at_ms))
        del self._restarts[:-RESTARTS_MAX]

    def _note(self, span: Span) -> None:
        """Keep a span once: notes repeat those that last."""
        assert span.until_ms is not None, "spans of notes have an end"
        spans = self._noted.setdefault(span.cause, [])
        last = spans[-1] if spans else None
        if last is not None and last.until_ms is not None:
            if last.from_ms <= span.from_ms <= last.until_ms + MERGED_MS:
                spans[-1] = last._replace(until_ms=max(last.until_ms, span.until_ms))
                return
        spans.append(span)
        del spans[:-NOTED_MAX]

    # ------------------------------------------------------------------ waits

    def look(self, topic: Topic, now_ms: int) -> Generator[None, None, None]:
        """Add what the timeline and the leases say now. All frames were shown before."""
        self._live = yield from self._holders.look()
        state, place, timeline = self._state, self._place, self._state.timeline
        group = topic.groups.get(place[1], topic.default)
        key = topic.namespace, topic.name, group.name
        leased = state.leases.leased(*place)
        spans = timeline.spans(key, place, leased, now_ms)
        self._absences = cache(partial(timeline.absences, key, place, leased, now_ms))
        spans += [span for noted in self._noted.values() for span in noted]
        told = [span for span in spans if span.cause in _STARTS]
        # Without a span nobody knows how long the node was down before it began an epoch.
        holes = [
            (last_ms, at_ms)
            for last_ms, at_ms in self._restarts
            if not any(_reaches(span, at_ms) for span in told)
        ]
        # A follower does not say who asked: the leader knows.
        known_ms = 0 if state.following else min(timeline.since_ms, self.last_ms)
        self._spans = spans + self._workload.spans(self.first_ms, known_ms, self.last_ms, holes)

    def waits(
        self, from_ms: int, until_ms: int, row: Any, origin: int
    ) -> Generator[None, None, list[Wait]]:
        """The parts of the wait of a message that was ready."""
        key = int(row["key_hash"])
        spans = self._spans + self._absences(int(row["tag_mask"]))
        held = self._holders.of(key, origin)
        if key in self._live and self._live[key].origin != origin:
            held.append(self._live[key])
        return (yield from explain(from_ms, until_ms, spans, held))


def _reaches(span: Span, at_ms: int) -> bool:
    """Whether a span ends with the epoch that began then."""
    return span.from_ms <= at_ms and (span.until_ms is None or span.until_ms >= at_ms - MERGED_MS)
