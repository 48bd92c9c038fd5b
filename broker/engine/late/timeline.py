"""The timeline: spans of time in which something kept messages from being handed out.

A span is of the whole node (it was down, its loop or its disk stalled) or of one group (paused, no
consumer asked). The host and the engine note spans as they end, so a note costs microseconds and
only where something was late. Lists are bounded, the oldest spans go first; spans that still last
are apart from them. Checkpoints keep the timeline; LEASE frames of late messages repeat what it
says of them (`late_note` in causes.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from delaylog.broker.engine.late.demand import EVERYTHING, Demand, Masks
from delaylog.storage.layout import NEVER_MS

GroupKey: TypeAlias = tuple[str, str, str]
"""Namespace, topic and group, by name: a consumer may ask before they exist."""
WHOLE: Final = ""
"""Stands for the group in the key of spans that hold for all groups of a topic, later ones too."""
EVERYWHERE: Final = ("", "", WHOLE)
"""The key of lasting spans that hold for all topics."""
_K = TypeVar("_K")
_V = TypeVar("_V")

CAUSES: Final = (
    "down",
    "take_over",
    "catching_up",
    "stall",
    "held",
    "paused",
    "key",
    "rate_limit",
    "leased_max",
    "push_target",
    "filtered_out",
    "slow_disk",
    "loading",
    "no_consumers",
    "slow_consumers",
    "unknown",
)
"""All causes. Of several at one time the first counts: a paused topic needs no consumer. Slow
commits and loads are of the whole node: what holds for the group itself comes before them.
"""
UNKNOWN: Final = "unknown"
STORED: Final = ("held", "paused", "push_target")
"""Lasting causes that are parts of the state: a restart or another leader does not end them."""
LASTING: Final = (*STORED, "leased_max")
"""Causes that are noted when they begin and when they end. A pause is of a whole topic, a
hold of the whole broker."""
SPAN_MIN_MS: Final = 20
"""Shorter spans are not kept."""
IDLE_MIN_MS: Final = 1_000
"""Shorter gaps between calls for which nothing was ready are not kept: the way of an answer and of
the next call takes longer than `SPAN_MIN_MS` in many networks."""
NODE_SPANS_MAX: Final = 256
GROUP_SPANS_MAX: Final = 64
GROUPS_MAX: Final = 1_024
"""Groups with spans; those that were noted least recently are forgotten."""
MERGED_MS: Final = 100
"""A span that begins this soon after one of the same cause continues it."""
DEMANDS_MAX: Final = 256
"""Groups whose calls with filters or ids are remembered; those without such calls need no room."""
REMEMBERED_MAX: Final = 65_536
"""Groups of which the last calls, settlements and notes are remembered."""


class Span(NamedTuple):
    """A cause that held from a time to another, Unix ms; the end is None while it lasts."""

    from_ms: int
    until_ms: int | None
    cause: str


class _Recent(OrderedDict[_K, _V], Generic[_K, _V]):
    """A table that drops the entry that was set least recently when it is full."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class Timeline:
    """The spans of one node. Times come from its caller and may jump."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """Nothing is known of the time before, except spans of a checkpoint."""
        self._node: list[Span] = []
        self._groups: _Recent[GroupKey, list[Span]] = _Recent(GROUPS_MAX)
        self._lasting: dict[tuple[GroupKey, str], int] = {}
        """Since when a cause of `LASTING` has held."""
        self._asking: dict[GroupKey, int] = {}
        """How many calls ask now."""
        self._asked: OrderedDict[GroupKey, int] = OrderedDict()
        """When the last call ended, of groups that no call asks now."""
        self._demands: _Recent[GroupKey, Demand] = _Recent(DEMANDS_MAX)
        """What calls asked for, of groups where not all of them asked for everything."""
        self.noted: OrderedDict[tuple[int, int], int] = _Recent(REMEMBERED_MAX)
        """When a LEASE frame last had a note, by the numbers of topic and group."""
        self._settled: OrderedDict[tuple[int, int], int] = OrderedDict()
        """When messages of a group last left their leases, by the numbers of topic and group."""

    # ------------------------------------------------------------------ notes

    def node(self, cause: str, from_ms: int, until_ms: int) -> None:
        """Note a span of the whole node."""
        if until_ms - from_ms >= SPAN_MIN_MS:
            _append(self._node, Span(from_ms, until_ms, cause), NODE_SPANS_MAX)

    def begin(self, cause: str, last_ms: int, now_ms: int) -> None:
        """Messages are handed out here from now on; until `last_ms` by another process or node,
        whose consumers are not known.
        """
        self.since_ms = now_ms
        self._asked.clear()
        self._demands.clear()
        for key, lasting in list(self._lasting):
            if lasting not in STORED:
                self.end(key, lasting, last_ms or now_ms)
        for key in self._groups:
            # The tokens of a limit are not stored, nor are short throttles of a target.
            self.cut(key, "rate_limit", last_ms or now_ms)
            self.cut(key, "push_target", last_ms or now_ms)
        if last_ms:
            self.node(cause, last_ms, now_ms)

    def follow(self) -> None:
        """Another node hands out messages, and knows its consumers."""
        self.since_ms = NEVER_MS
        self._demands.clear()

    def group(self, key: GroupKey, cause: str, from_ms: int, until_ms: int) -> None:
        """Note a span of one group, or of a `WHOLE` topic."""
        if until_ms - from_ms >= SPAN_MIN_MS:
            spans = self._groups[key] = self._groups.get(key, [])
            _append(spans, Span(from_ms, until_ms, cause), GROUP_SPANS_MAX)

    def last(self, key: GroupKey, cause: str, from_ms: int) -> None:
        """A cause of `LASTING` holds until `end`, whatever else is noted."""
        assert cause in LASTING, f"{cause} ends by itself"
        self._lasting.setdefault((key, cause), from_ms)

    def end(self, key: GroupKey, cause: str, at_ms: int) -> None:
        """End a lasting cause, if it holds."""
        from_ms = self._lasting.pop((key, cause), None)
        if from_ms is not None:
            self.group(key, cause, from_ms, at_ms)

    def cut(self, key: GroupKey, cause: str, at_ms: int) -> None:
        """A cause that was noted until a time to come has ended: a setting changed."""
        spans = self._groups.get(key, [])
        spans[:] = [
            span._replace(until_ms=at_ms) if span.cause == cause and _end(span) > at_ms else span
            for span in spans
        ]

    def settled(self, key: GroupKey, place: tuple[int, int], at_ms: int) -> None:
        """Messages of a group left their leases, which makes room for others."""
        # A plain table, since this is called for each ack.
        self._settled[place] = at_ms
        self._settled.move_to_end(place)
        if len(self._settled) > REMEMBERED_MAX:
            self._settled.popitem(last=False)
        if self._lasting:
            self.end(key, "leased_max", at_ms)

    def drop(self, key: GroupKey, place: tuple[int, int]) -> None:
        """A group was dropped: what held for it does not hold for another one of its name."""
        self._forget(key)
        self.noted.pop(place, None)
        self._settled.pop(place, None)

    def drop_topic(self, namespace: str, name: str) -> None:
        """A topic was dropped, after its groups."""
        self._forget((namespace, name, WHOLE))

    def _forget(self, key: GroupKey) -> None:
        self._groups.pop(key, None)
        self._demands.pop(key, None)
        for cause in LASTING:
            self._lasting.pop((key, cause), None)

    # ------------------------------------------------------------------ consumers

    def ask_too(self, key: GroupKey, masks: Masks, now_ms: int) -> bool:
        """Count one more call that asks a group for everything, if another one does, or did less
        than `SPAN_MIN_MS` ago.

        False if none did, or if some ask for less: then `begin_asking` must count it.
        """
        if masks != EVERYTHING or key in self._demands:
            return False
        calls = self._asking.get(key, 0)
        if not calls:
            asked_ms = self._asked.get(key)
            if asked_ms is None or not 0 <= now_ms - asked_ms < SPAN_MIN_MS:
                return False
            del self._asked[key]
        self._asking[key] = calls + 1
        return True

    def begin_asking(
        self,
        key: GroupKey,
        place: tuple[int, int],
        leased: int,
        now_ms: int,
        *,
        ready: bool = True,
        masks: Masks = EVERYTHING,
    ) -> None:
        """A call asks for messages; `leased` = how many are under lease in the group, `ready` =
        whether any message may have waited for it, `masks` = what it asks for.
        """
        calls = self._asking.get(key, 0)
        asked_ms = 0
        if not calls:
            asked_ms = self._asked.pop(key, 0)
            for span in self._gap(asked_ms, place, leased, now_ms):
                if ready or _end(span) - span.from_ms >= IDLE_MIN_MS:
                    self.group(key, span.cause, span.from_ms, _end(span))
        self._asking[key] = calls + 1
        if masks != EVERYTHING or key in self._demands:
            busy_ms = self._busy_ms(place, leased, now_ms)
            demand = self._demands.get(key)
            if demand is None:
                # Leases of before the start: it is not known what their consumer asked for.
                before = not calls and not asked_ms and busy_ms >= self.since_ms
                asked_ms = self.since_ms if before else asked_ms
                demand = Demand(now_ms, calls, asked_ms, before=before)
            self._demands[key] = demand
            least_ms = SPAN_MIN_MS if ready else IDLE_MIN_MS
            demand.begin(masks, busy_ms, now_ms, least_ms)

    def end_asking(self, key: GroupKey, now_ms: int, masks: Masks = EVERYTHING) -> None:
        """A call has ended, with messages or without."""
        calls = self._asking[key] - 1
        if calls:
            self._asking[key] = calls
        else:
            del self._asking[key]
            # It was taken out when the first of the calls began.
            self._asked[key] = now_ms
            if len(self._asked) > REMEMBERED_MAX:
                self._asked.popitem(last=False)
        demand = self._demands.get(key)
        if demand is not None:
            demand.end(masks, now_ms)

    def asking(self, key: GroupKey) -> int:
        """How many calls ask now."""
        return self._asking.get(key, 0)

    def asked_for_all(self, key: GroupKey) -> bool:
        """Whether a call asks now that may take any message."""
        demand = self._demands.get(key)
        return self.asking(key) > 0 if demand is None else demand.wants_all

    def asked_for(self, key: GroupKey, now_ms: int) -> set[Masks]:
        """What consumers of now ask for; empty if none does, or if that is not known."""
        demand = self._demands.get(key)
        return set() if demand is None else demand.recent(now_ms)

    def _busy_ms(self, place: tuple[int, int], leased: int, now_ms: int) -> int:
        """Until when messages of a group were under lease."""
        return now_ms if leased else min(self._settled.get(place, 0), now_ms)

    def _gap(
        self, asked_ms: int, place: tuple[int, int], leased: int, now_ms: int
    ) -> Iterator[Span]:
        """Nobody has asked since `asked_ms`: consumers were busy as long as they held leases."""
        begun = max(asked_ms, self.since_ms)
        busy = self._busy_ms(place, leased, now_ms)
        if busy > begun:
            yield Span(begun, busy, "slow_consumers")
            begun = busy
        if now_ms > begun:
            yield Span(begun, now_ms, "no_consumers")

    # ------------------------------------------------------------------ what is known

    def spans(self, key: GroupKey, place: tuple[int, int], leased: int, now_ms: int) -> list[Span]:
        """All spans of the node, of a topic and of a group; the end of lasting ones is None."""
        namespace, topic, _ = key
        whole = (namespace, topic, WHOLE)
        out = [*self._node]
        for owner in (EVERYWHERE, whole, key):
            out += self._groups.get(owner, ())
        lasting = ((EVERYWHERE, "held"), (whole, "paused"), (key, "leased_max"))
        for owner, cause in (*lasting, (key, "push_target")):
            from_ms = self._lasting.get((owner, cause))
            if from_ms is not None:
                out.append(Span(from_ms, None, cause))
        if not self.asking(key):
            out += self._gap(self._asked.get(key, 0), place, leased, now_ms)
        return out

    def holds(self, key: GroupKey, cause: str, now_ms: int) -> bool:
        """Whether a cause was noted of a group until a time to come."""
        spans = self._groups.get(key, ())
        return any(span.cause == cause and span.from_ms <= now_ms < _end(span) for span in spans)

    def absences(
        self, key: GroupKey, place: tuple[int, int], leased: int, now_ms: int, tag_mask: int
    ) -> list[Span]:
        """When calls asked, but none for a message with this mask of tags."""
        demand = self._demands.get(key)
        if demand is None:
            return []
        absence = demand.absence(tag_mask, self._busy_ms(place, leased, now_ms), now_ms)
        causes = ("filtered_out", "slow_consumers", "no_consumers")
        parts = zip(causes, absence, strict=True)
        return [Span(*time, cause) for cause, times in parts for time in times]

    def saved(self) -> list[Any]:
        """Its member of a checkpoint."""
        groups = [[*key, [list(span) for span in spans]] for key, spans in self._groups.items()]
        lasting = [[*key, [[at_ms, None, cause]]] for (key, cause), at_ms in self._lasting.items()]
        return [[list(span) for span in self._node], groups + lasting]

    def restore(self, saved: Iterable[Any]) -> None:
        """Add the spans of a checkpoint."""
        node, groups = saved
        self._node = [Span(*span) for span in node]
        for namespace, topic, group, spans in groups:
            key = namespace, topic, group
            for from_ms, until_ms, cause in spans:
                if until_ms is None:
                    self.last(key, cause, from_ms)
                else:
                    self.group(key, cause, from_ms, until_ms)


def _append(spans: list[Span], span: Span, most: int) -> None:
    """Add a span, or lengthen the last one of its cause."""
    for number in range(len(spans) - 1, max(len(spans) - 4, -1), -1):
        last = spans[number]
        if last.cause != span.cause:
            continue
        if last.from_ms <= span.from_ms <= _end(last) + MERGED_MS:
            spans[number] = last._replace(until_ms=max(_end(span), _end(last)))
            return
        break
    spans.append(span)
    del spans[:-most]


def _end(span: Span) -> int:
    assert span.until_ms is not None, "lists have spans that have ended"
    return span.until_ms
