"""The timeline: spans of time in which something kept messages from being handed out.

A span is of the whole node (it was down, its loop or its disk stalled) or of one group (paused, no
consumer asked). The host and the engine note spans as they end, so a note costs microseconds and
only where something was late. Lists are bounded, the oldest spans go first. Checkpoints keep the
timeline; LEASE frames of late messages repeat what it says of them (`late_note.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

GroupKey: TypeAlias = tuple[str, str, str]
"""Namespace, topic and group, by name: a consumer may ask before they exist."""

CAUSES: Final = (
    "down",
    "take_over",
    "catching_up",
    "stall",
    "slow_disk",
    "loading",
    "paused",
    "key",
    "rate_limit",
    "leased_max",
    "no_consumers",
    "slow_consumers",
    "unknown",
)
"""All causes. LEASE frames have their numbers here: new ones are added at the end."""
UNKNOWN: Final = "unknown"
SPAN_MIN_MS: Final = 20
"""Shorter spans are not kept."""
NODE_SPANS_MAX: Final = 256
GROUP_SPANS_MAX: Final = 64
GROUPS_MAX: Final = 1_024
"""Groups with spans; those that were noted least recently are forgotten."""
MERGED_MS: Final = 100
"""A span that begins this soon after one of the same cause continues it."""
ASKING_MAX: Final = 65_536
"""Groups whose consumers are remembered."""


class Span(NamedTuple):
    """A cause that held from a time to another, Unix ms; the end is None while it lasts."""

    from_ms: int
    until_ms: int | None
    cause: str


class Timeline:
    """The spans of one node. Times come from its caller and may jump."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """Nothing is known of the time before, except spans of a checkpoint."""
        self._node: list[Span] = []
        self._groups: OrderedDict[GroupKey, list[Span]] = OrderedDict()
        self._asking: OrderedDict[GroupKey, list[int]] = OrderedDict()
        """How many calls ask now, and when the last one ended."""
        self.noted: dict[tuple[int, int], int] = {}
        """When a LEASE frame last had a note, by the numbers of topic and group."""
        self._settled: dict[tuple[int, int], int] = {}
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
        self._asking.clear()
        if last_ms:
            self.node(cause, last_ms, now_ms)

    def group(self, key: GroupKey, cause: str, from_ms: int, until_ms: int | None) -> None:
        """Note a span of one group; one without an end lasts until `end`."""
        if until_ms is not None and until_ms - from_ms < SPAN_MIN_MS:
            return
        spans = self._groups.get(key)
        if spans is None:
            spans = self._groups[key] = []
            if len(self._groups) > GROUPS_MAX:
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(key)
        _append(spans, Span(from_ms, until_ms, cause), GROUP_SPANS_MAX)

    def end(self, key: GroupKey, cause: str, at_ms: int) -> None:
        """End the lasting span of a cause, if there is one."""
        spans = self._groups.get(key, [])
        for number, span in enumerate(spans):
            if span.cause == cause and span.until_ms is None:
                spans[number] = span._replace(until_ms=max(at_ms, span.from_ms))

    def settled(self, place: tuple[int, int], at_ms: int) -> None:
        """Messages of a group left their leases."""
        self._settled[place] = at_ms

    def drop(self, key: GroupKey, place: tuple[int, int]) -> None:
        """A group was dropped: what held for it does not hold for another one of its name."""
        self._groups.pop(key, None)
        self.noted.pop(place, None)
        self._settled.pop(place, None)

    # ------------------------------------------------------------------ consumers

    def begin_asking(self, key: GroupKey, place: tuple[int, int], leased: int, now_ms: int) -> None:
        """A call asks for messages; `leased` = how many are under lease in the group."""
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = [0, 0]
            if len(self._asking) > ASKING_MAX:
                self._asking.popitem(last=False)
        if asking[0] == 0:
            for span in self._gap(asking[1], place, leased, now_ms):
                self.group(key, span.cause, span.from_ms, span.until_ms)
        asking[0] += 1

    def end_asking(self, key: GroupKey, now_ms: int) -> None:
        """A call has ended, with messages or without."""
        asking = self._asking.get(key)
        if asking is not None:
            asking[0] = max(asking[0] - 1, 0)
            asking[1] = now_ms

    def asking(self, key: GroupKey) -> int:
        """How many calls ask now."""
        return self._asking.get(key, (0, 0))[0]

    def _gap(
        self, asked_ms: int, place: tuple[int, int], leased: int, now_ms: int
    ) -> Iterator[Span]:
        """Nobody has asked since `asked_ms`: consumers were busy as long as they held leases."""
        begun = max(asked_ms, self.since_ms)
        busy = now_ms if leased else min(self._settled.get(place, 0), now_ms)
        if busy > begun and asked_ms:
            yield Span(begun, busy, "slow_consumers")
            begun = busy
        if now_ms > begun:
            yield Span(begun, now_ms, "no_consumers")

    # ------------------------------------------------------------------ what is known

    def spans(self, key: GroupKey, place: tuple[int, int], leased: int, now_ms: int) -> list[Span]:
        """All spans of the node and of a group; those that last end now."""
        out = [*self._node, *self._groups.get(key, ())]
        if not self.asking(key):
            out += self._gap(self._asking.get(key, (0, 0))[1], place, leased, now_ms)
        return out

    def saved(self) -> list[Any]:
        """Its member of a checkpoint."""
        groups = [[*key, [list(span) for span in spans]] for key, spans in self._groups.items()]
        return [[list(span) for span in self._node], groups]

    def restore(self, saved: Iterable[Any]) -> None:
        """Add the spans of a checkpoint."""
        node, groups = saved
        self._node = [Span(*span) for span in node]
        for *key, spans in groups:
            namespace, topic, group = key
            self._groups[namespace, topic, group] = [Span(*span) for span in spans]


def _append(spans: list[Span], span: Span, most: int) -> None:
    """Add a span, or lengthen the last one of its cause."""
    for number in range(len(spans) - 1, max(len(spans) - 4, -1), -1):
        last = spans[number]
        if last.cause != span.cause:
            continue
        if last.until_ms is None:
            return
        if last.from_ms <= span.from_ms <= last.until_ms + MERGED_MS:
            until = None if span.until_ms is None else max(span.until_ms, last.until_ms)
            spans[number] = last._replace(until_ms=until)
            return
        break
    spans.append(span)
    del spans[:-most]
