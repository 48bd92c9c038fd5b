"""Why messages were handed out late: the cause at each moment, by the log and the timeline.

A wait is cut where a span begins or ends. Of the causes that hold in a piece the first in `CAUSES`
counts. A piece that no span covers is `unknown`: a guess would hide what is missing.

Frames tell who held keys (`KeyHolders`) and when consumers were busy (`Workload`). LEASE frames of
late messages also repeat spans of the timeline, which forgets (`late_note`): only a frame with a
message later than `LATE_MS`, and only one a second of each group, since spans are of the group and
a life line reads them from any of its frames. The log tells nothing of a time that was not read.

A message locks its key from its lease to its end: also while it waits for a retry. At most one
message holds a key at a time. Rows give the keys of the messages that a frame names, as long as
they are kept. A message may also wait for the end of another one that was under lease with its id
when it was sent: here that one holds a key of its own, minus the successor's origin. A holder that
was leased before the first frame is found when a frame extends, returns or ends its lease, or else
by the leases of now (`look`).

While consumers have messages under lease, other messages wait for them: that is the evidence for
slow consumers. How many were under lease before the first frame is not known. The smallest number
seen counts as none, so a lease that lasts all the time is no evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cache, partial
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from delaylog.broker.engine.late.demand import IDS
from delaylog.broker.engine.late.timeline import CAUSES, MERGED_MS, UNKNOWN, Span, Timeline
from delaylog.broker.engine.model import FoundMessage, Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import Mask, some
from delaylog.storage.layout import STATE_ENDED_FIRST, Cause, Int64Array
from delaylog.storage.log.payloads import LeaseDecision, MoveDecision, SendDecision, SettleDecision
from delaylog.storage.messages.batch import Column

# ----------------------------------------------------------- the cause at each moment of a wait

_RANK: Final = {cause: rank for rank, cause in enumerate(CAUSES)}
PIECE_MIN_MS: Final = 5
"""A shorter piece counts to its neighbour."""
UNKNOWN_MIN_MS: Final = 100
"""A shorter unknown piece counts to its neighbour: stalls and commits below are not noted."""
PARTS_MAX: Final = 256
"""Pieces shorter than this share of a wait are joined: it has about this number of parts."""
_PIECES_A_SLICE: Final = 256


class Held(NamedTuple):
    """The message's key was locked by another message."""

    from_ms: int
    until_ms: int | None
    origin: int
    """0 = by several, one after another."""


class Wait(NamedTuple):
    """A part of a wait with one cause."""

    from_ms: int
    until_ms: int
    cause: str
    origin: int = 0
    """The message that held the key; 0 = another cause, or several messages."""

    @property
    def size_ms(self) -> int:
        """How long it took."""
        return self.until_ms - self.from_ms

    def members(self) -> dict[str, Any]:
        """Its members in answers, without the id of the holder."""
        return {"from_ms": self.from_ms, "until_ms": self.until_ms, "cause": self.cause}


def explain(
    from_ms: int, until_ms: int, spans: Iterable[Span], held: Sequence[Held] = ()
) -> Generator[None, None, list[Wait]]:
    """The parts of a wait, in order; in slices."""
    found = [Wait(each.from_ms, _end(each, until_ms), each.cause) for each in spans]
    found += [Wait(each.from_ms, _end(each, until_ms), "key", each.origin) for each in held]
    found = [each for each in found if each.from_ms < until_ms and each.until_ms > from_ms]
    found.sort(key=itemgetter(0))
    pieces: list[Wait] = []
    for number, piece in enumerate(_pieces(from_ms, until_ms, found), 1):
        pieces.append(piece)
        if number % _PIECES_A_SLICE == 0:
            yield None
    least_ms = max(PIECE_MIN_MS, (until_ms - from_ms) // PARTS_MAX)
    joined: list[Wait] = []
    for number, piece in enumerate(_without_crumbs(pieces), 1):
        _add(joined, piece)
        if number % _PIECES_A_SLICE == 0:
            yield None
    parts: list[Wait] = []
    for part in _grouped(joined, least_ms):
        _add(parts, part)
    return parts


def _end(span: Span | Held, until_ms: int) -> int:
    return until_ms if span.until_ms is None else span.until_ms


def _pieces(from_ms: int, until_ms: int, found: Sequence[Wait]) -> Iterator[Wait]:
    """The cause of each moment. `found` is sorted by the begin."""
    there: list[tuple[int, int, int, int]] = []
    """(rank, begin, end, index) of those that began; the first one counts until its end."""
    at, now_ms = 0, from_ms
    while now_ms < until_ms:
        while at < len(found) and found[at].from_ms <= now_ms:
            begun = found[at]
            heappush(there, (_RANK[begun.cause], begun.from_ms, begun.until_ms, at))
            at += 1
        while there and there[0][2] <= now_ms:
            heappop(there)
        end_ms = min(found[at].from_ms, until_ms) if at < len(found) else until_ms
        if there:
            best = found[there[0][3]]
            end_ms = min(end_ms, best.until_ms)
            yield Wait(now_ms, end_ms, best.cause, best.origin)
        else:
            yield Wait(now_ms, end_ms, UNKNOWN)
        now_ms = end_ms


def _without_crumbs(pieces: Sequence[Wait]) -> Iterator[Wait]:
    """Short unknown pieces get the cause of a neighbour."""
    for at, piece in enumerate(pieces):
        if piece.cause == UNKNOWN and piece.size_ms < UNKNOWN_MIN_MS:
            near = pieces[max(at - 1, 0) : at + 2]
            known = next((each for each in near if each.cause != UNKNOWN), piece)
            piece = piece._replace(cause=known.cause, origin=known.origin)
        yield piece


def _grouped(pieces: Sequence[Wait], least_ms: int) -> Iterator[Wait]:
    """Pieces of at least `least_ms`: shorter ones are joined, under the cause of most of them."""
    group: list[Wait] = []
    last: list[Wait] = []
    """The part before, which takes short pieces that are too few for a part of their own."""
    for piece in pieces:
        if piece.size_ms >= least_ms:
            if last or not group:
                if last:
                    yield _named([*last, *group])
                last = [piece]
            else:
                last = [*group, piece]
            group = []
            continue
        group.append(piece)
        if piece.until_ms - group[0].from_ms >= least_ms:
            if last:
                yield _named(last)
            last, group = group, []
    if last or group:
        yield _named([*last, *group])


def _named(group: Sequence[Wait]) -> Wait:
    """Pieces as one part: of the cause that holds longest, and the holder of three quarters."""
    if len(group) == 1:
        return group[0]
    causes: defaultdict[str, int] = defaultdict(int)
    origins: defaultdict[int, int] = defaultdict(int)
    for piece in group:
        causes[piece.cause] += piece.size_ms
    cause = max(causes, key=lambda each: causes[each])
    for piece in group:
        if piece.cause == cause:
            origins[piece.origin] += piece.size_ms
    origin = max(origins, key=lambda each: origins[each])
    if 4 * origins[origin] < 3 * causes[cause]:
        origin = 0
    return Wait(group[0].from_ms, group[-1].until_ms, cause, origin)


def _add(parts: list[Wait], part: Wait) -> None:
    """Append a part, joined with the one before it if that has the same cause."""
    if parts and (parts[-1].cause, parts[-1].origin) == (part.cause, part.origin):
        parts[-1] = parts[-1]._replace(until_ms=part.until_ms)
    else:
        parts.append(part)


# -------------------------------------------------------------------------------- who held keys

_RETURNS: Final = (Cause.NACK, Cause.LEASE_EXPIRED)
HOLDS_MAX: Final = 4_096
"""Holds of a key that are kept; those that follow are joined to one without a name."""


class KeyHolders:
    """The holders of some keys in one group. Frames are shown to it in the order of the log."""

    def __init__(self, state: EngineState, place: tuple[int, int], keys: set[int]) -> None:
        """`keys` are hashes; `place` has the numbers of topic and group."""
        self._state, self._place = state, place
        self._keys = np.array(sorted(keys), np.uint64)
        self._unseen = set(keys)
        """Keys of which no frame has named a holder: it may have been leased before."""
        self._open: dict[int, Held] = {}
        self._retrying: set[int] = set()
        """Keys whose holders are not under lease."""
        self._closed: dict[int, list[Held]] = {key: [] for key in keys}

    # ------------------------------------------------------------------ frames

    def follows(self, origin: int, id_hash: int, predecessors: Int64Array) -> None:
        """A message was sent while one of these was under lease with the same id."""
        known = predecessors[self._state.hours.known(predecessors)]
        same = known[self._state.hours.rows(known)["id_hash"] == id_hash]
        if len(same):
            self._open[-origin] = Held(0, None, int(same[0]))
            self._closed[-origin] = []

    def named(self, refs: Int64Array) -> Mask:
        """Which rows are of messages with one of the keys, or that others wait for by their id. No
        other frames need to be shown.
        """
        out = np.zeros(len(refs), np.bool_)
        if len(refs) and (len(self._keys) or self._open):
            known = np.flatnonzero(self._state.hours.known(refs))
            rows = self._state.hours.rows(refs[known])
            before = np.array([each.origin for each in self._open.values()], np.int64)
            out[known] = np.isin(rows["key_hash"], self._keys) | np.isin(rows["origin"], before)
        return out

    def leased(self, lease: LeaseDecision, at_ms: int) -> None:
        """A LEASE frame of the group."""
        attempts = lease.attempts
        for at, key, origin in self._keyed(lease.refs):
            self._retrying.discard(key)
            held = self._open.get(key)
            if held is None or held.origin != origin:
                self._close(key, at_ms)
                # A retry whose first lease was not seen has held the key all the time.
                tried = attempts if isinstance(attempts, int) else int(attempts[at])
                before = lease.extends or (tried > 1 and key in self._unseen)
                self._begin(key, 0 if before else at_ms, origin)

    def settled(self, settle: SettleDecision, at_ms: int) -> None:
        """A SETTLE frame of the group: what has ended holds no key."""
        if settle.was:
            return
        entries = settle.entries
        held = _under_lease(settle.leases, len(settle.refs)) | (entries["attempts"] > 0)
        self._appeared(settle.refs, held)
        origins = settle.refs if settle.origins is None else settle.origins
        ended = entries["state"] >= STATE_ENDED_FIRST
        self._release(origins[ended], at_ms)
        self._returned(origins[~ended])

    def moved(self, move: MoveDecision, at_ms: int) -> None:
        """A MOVE frame of the group: a client that reschedules a message frees its key."""
        if move.from_ended or not (self._open or self._unseen):
            return
        held = _under_lease(move.leases, len(move.refs)) | (move.attempts > 0)
        self._appeared(move.refs, held)
        refs = move.refs[self._state.hours.known(move.refs)]
        origins = self._state.hours.rows(refs)["origin"].astype(np.int64)
        if move.cause in _RETURNS:
            self._returned(origins)
        else:
            # Successors go on waiting.
            for key in self._named(origins):
                if key > 0:
                    self._close(key, at_ms)

    def purged(self, at_ms: int, *, force: bool) -> None:
        """A purge ended what waited for a retry, and with `force` what was under lease."""
        for key in [key for key in self._open if force or key in self._retrying]:
            self._close(key, at_ms)

    def _keyed(self, refs: Int64Array) -> Iterator[tuple[int, int, int]]:
        """(index, key, origin) of the messages among `refs` that have one of the keys."""
        if not len(self._keys) or not len(refs):
            return
        known = np.flatnonzero(self._state.hours.known(refs))
        rows = self._state.hours.rows(refs[known])
        at = np.flatnonzero(np.isin(rows["key_hash"], self._keys))
        columns = known[at].tolist(), rows["key_hash"][at].tolist(), rows["origin"][at].tolist()
        yield from zip(*columns, strict=True)

    def _appeared(self, refs: Int64Array, held: Mask) -> None:
        """Messages that held their keys until this frame: an unknown holder was one of them."""
        if self._unseen and some(held):
            for _, key, origin in self._keyed(refs[held]):
                if key in self._unseen:
                    self._begin(key, 0, origin)

    def _begin(self, key: int, at_ms: int, origin: int) -> None:
        self._unseen.discard(key)
        self._open[key] = Held(at_ms, None, origin)

    def _named(self, origins: Int64Array) -> list[int]:
        """The keys that messages of these origins hold."""
        if not self._open or not len(origins):
            return []
        holders = np.fromiter((held.origin for held in self._open.values()), np.int64)
        hit = np.isin(holders, origins).tolist()
        return [key for key, there in zip(self._open, hit, strict=True) if there]

    def _returned(self, origins: Int64Array) -> None:
        self._retrying.update(self._named(origins))

    def _release(self, origins: Int64Array, at_ms: int) -> None:
        for key in self._named(origins):
            self._close(key, at_ms)

    def _close(self, key: int, at_ms: int) -> None:
        held = self._open.pop(key, None)
        self._retrying.discard(key)
        if held is None:
            return
        closed = self._closed[key]
        if len(closed) < HOLDS_MAX:
            closed.append(held._replace(until_ms=at_ms))
        else:
            closed[-1] = closed[-1]._replace(until_ms=at_ms, origin=0)

    # ------------------------------------------------------------------ what is known

    def look(self) -> Generator[None, None, dict[int, Held]]:
        """By key, holders of now that no frame has named: they have held it all the time."""
        out: dict[int, Held] = {}
        group = self._state.group(*self._place)
        gate = None if group is None else group.made_gate
        if gate is None:
            return out
        locked = {key for key in self._unseen if not gate.is_free(key)}
        for key in list(locked):
            if (origin := gate.retrying(key)) is not None:
                out[key] = Held(0, None, origin)
                locked.discard(key)
        if locked:
            found = yield from self._state.leases.holding(*self._place, locked)
            out |= {key: Held(0, None, origin) for key, origin in found.items()}
        return out

    def of(self, key: int, origin: int) -> list[Held]:
        """When a message waited for others, by its key and its origin."""
        holds = [held for each in (key, -origin) for held in self._closed.get(each, ())]
        holds += [self._open[each] for each in (key, -origin) if each in self._open]
        return [held for held in holds if held.origin != origin]


def _under_lease(leases: Column | None, count: int) -> Mask:
    """Which rows of a decision were under lease."""
    if leases is None or isinstance(leases, int):
        return np.full(count, bool(leases))
    mask: Mask = leases != 0
    return mask


# --------------------------------------------------------------------- when consumers were busy

BUSY_MAX: Final = 4_096
"""Busy times that are kept; those that follow lengthen the last one."""


class Workload:
    """The busy times of one group. Frames are shown to it in the order of the log."""

    def __init__(self) -> None:
        self._level = 0
        """Messages under lease, more than before the first frame."""
        self._least = 0
        self._since_ms: int | None = None
        self._busy: list[tuple[int, int]] = []

    def leased(self, lease: LeaseDecision, at_ms: int) -> None:
        """A LEASE frame of the group."""
        if lease.extends:
            return
        self._level += len(lease.refs)
        if self._since_ms is None:
            self._since_ms = at_ms

    def ended(self, decision: SettleDecision | MoveDecision, at_ms: int) -> None:
        """A SETTLE or MOVE frame of the group."""
        self._level -= _count(decision.leases, len(decision.refs))
        if self._level < self._least:
            # More were under lease at the first frame than was known.
            self._least = self._level
            self._busy = [(0, at_ms)]
            self._since_ms = None
        elif self._level == self._least and self._since_ms is not None:
            self._add(self._since_ms, at_ms)
            self._since_ms = None

    def purged(self, at_ms: int) -> None:
        """A forced purge ended all leases."""
        if self._since_ms is not None:
            self._add(self._since_ms, at_ms)
        self._level, self._since_ms = self._least, None

    def _add(self, from_ms: int, until_ms: int) -> None:
        busy = self._busy
        if busy and (from_ms <= busy[-1][1] + MERGED_MS or len(busy) >= BUSY_MAX):
            busy[-1] = (busy[-1][0], max(until_ms, busy[-1][1]))
        else:
            busy.append((from_ms, until_ms))

    def spans(
        self, from_ms: int, known_ms: int, until_ms: int, holes: Sequence[tuple[int, int]] = ()
    ) -> list[Span]:
        """Slow consumers while messages were under lease, up to `until_ms`; between `from_ms` and
        `known_ms`, when no other record tells who asked, no consumers while none was: except in
        `holes`, times of which nothing is known.
        """
        busy = self._busy if self._since_ms is None else [*self._busy, (self._since_ms, until_ms)]
        out = [Span(first, last, "slow_consumers") for first, last in busy]
        idle_ms = from_ms
        for first, last in [*sorted([*busy, *holes]), (known_ms, known_ms)]:
            if min(first, known_ms) > idle_ms:
                out.append(Span(idle_ms, min(first, known_ms), "no_consumers"))
            idle_ms = max(idle_ms, last)
        return out


def _count(leases: Column | None, rows: int) -> int:
    """How many rows of a decision were under lease."""
    if leases is None or isinstance(leases, int):
        return rows if leases else 0
    return int(np.count_nonzero(leases))


# ------------------------------------------------------------------------ notes in LEASE frames

LATE_MS: Final = 100
"""A message handed out this much after its due time is worth a note in the log."""
NOTE_EVERY_MS: Final = 1_000
SPANS_MAX: Final = 32
Note: TypeAlias = Sequence[Sequence[Any]]


def late_note(state: EngineState, topic: Topic, group: Group, due_ms: int, now_ms: int) -> Note:
    """[cause, from, until] of the spans since the group's last note.

    So the notes together have all spans, whichever of the messages was due first. `due_ms`: the
    earliest due time.
    """
    if now_ms - due_ms < LATE_MS:
        return []
    place = topic.number, group.number
    timeline = state.timeline
    noted_ms = timeline.noted.get(place, 0)
    if 0 <= now_ms - noted_ms < NOTE_EVERY_MS:
        return []
    timeline.noted[place] = now_ms
    key = topic.namespace, topic.name, group.name
    spans = timeline.spans(key, place, state.leases.leased(*place), now_ms)
    since_ms = min(noted_ms, now_ms)
    ended = ((now_ms if span.until_ms is None else span.until_ms, span) for span in spans)
    last = sorted((each for each in ended if each[0] >= since_ms), key=itemgetter(0))
    return [[span.cause, span.from_ms, until_ms] for until_ms, span in last[-SPANS_MAX:]]


def noted_spans(note: Note) -> list[Span]:
    """The spans of a note; causes of a later release are left out."""
    return [Span(from_ms, until_ms, cause) for cause, from_ms, until_ms in note if cause in CAUSES]


# -------------------------------------------------------------------- the evidence of one group

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


# ---------------------------------------------------------------------- what bounds a group now


def bounded_by(state: EngineState, topic: Topic, group: Group, now_ms: int) -> str | None:
    """The cause that keeps ready messages of a group waiting now; None = none is ready,
    or a consumer is about to get them.

    One of held, paused, key, rate_limit, leased_max, push_target, filtered_out, no_consumers and
    slow_consumers. A follower has no ready queues, so there it is None.
    """
    place = topic.number, group.number
    timeline: Timeline = state.timeline
    leased = state.leases.leased(*place)
    if group.counts.living <= leased or not group.ready_count:
        return None
    if state.holding.now is not None:
        return "held"
    if topic.paused:
        return "paused"
    if leased >= state.limits.leased_max:
        return "leased_max"
    if place in state.marks.rate_limited:
        return "rate_limit"
    key = topic.namespace, topic.name, group.name
    health = state.targets.healths.get(place)
    if health is not None:
        # Short throttles are not stored.
        if health.blocks or timeline.holds(key, "push_target", now_ms):
            return "push_target"
    asked = timeline.asking(key)
    wanted = timeline.asked_for(key, now_ms)
    left_out = bool(wanted) and wanted <= {IDS} | group.ready.filters_left_out()
    gate = group.made_gate
    parked = 0 if gate is None else gate.parking.parked
    # Messages wait for the end of one with the same key or id, and a consumer asks, or there are no
    # others that one who asked would get.
    if parked and (asked or left_out or not group.has_ready):
        return "filtered_out" if left_out and 2 * parked < group.ready_count else "key"
    if left_out:
        return "filtered_out"
    if timeline.asked_for_all(key):
        return None
    return "slow_consumers" if leased else "no_consumers"
