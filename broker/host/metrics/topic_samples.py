"""Metrics of topics: series for a limited number of topics, and sums over all others.

The loop reads the values in slices; another thread may turn them into metric families and text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group, GroupCounts
from delaylog.broker.engine.views.oldest_due import oldest_due_ms
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.engine.watch.lateness import Lateness
from delaylog.broker.host.metrics.exposition import MS, Sampled
from delaylog.broker.host.metrics.families import families, family

OTHER: Final = ("", "other")
"""Labels of the sums. A namespace is never empty, so no topic has these labels."""
ENDED: Final = ("acked", "expired", "dead", "deleted")
_GAUGES: Final = ("living_messages", "ready_messages", "leased_messages")
_SLICE: Final = 1_024
"""Groups whose values are summed between two looks at the clock."""
_SLICE_OWN: Final = 8
"""Groups of a topic, or topics, with values of their own."""

Place = tuple[str, ...]
_AGES_AT_ONCE: Final = 128
"""Groups whose oldest messages are looked up in one pass."""


class TopicSamples:
    """The values of topics in one scrape."""

    def __init__(self) -> None:
        self._sent: list[tuple[Place, int]] = []
        self._groups: list[tuple[Place, tuple[int, ...]]] = []
        self._ages: list[tuple[Place, float]] = []
        self._paused: list[tuple[Place, int]] = []
        self._ready: list[tuple[Place, Histogram]] = []
        self._handed_out: list[tuple[Place, Histogram]] = []
        self._parked = self._locked = 0

    def read(self, state: EngineState, now_ms: int) -> Iterator[None]:
        """Read the values from the engine, in slices."""
        series = state.series
        for at, topic in enumerate(list(series.topics.values())):
            self._sent.append(((topic.namespace, topic.name), topic.sent))
            if topic.paused:
                self._paused.append(((topic.namespace, topic.name), 1))
            late = series.lateness.get(topic.number)
            if late is not None:
                self._copy_lateness((topic.namespace, topic.name), late)
            for number, group in enumerate(list(topic.groups.values()), 1):
                if number % _SLICE_OWN == 0:
                    yield None
                if group.counts.sums is None:
                    place = (topic.namespace, topic.name, group.name)
                    self._add(place, group.counts, group.ready_count)
            if at % _SLICE_OWN == _SLICE_OWN - 1:
                yield None
        other_ready = read = 0
        for topic in list(state.by_number.values()):
            # Ready counts are not summed elsewhere, so each group is visited. The test of
            # `made_ready` is cheap, and few of many groups have ready messages.
            for group in list(topic.groups.values()):
                if group.made_ready is not None and group.counts.sums is not None:
                    other_ready += group.ready_count
                if group.made_gate is not None:
                    self._parked += group.made_gate.parked
                    self._locked += group.made_gate.locked_count
                read += 1
                if read % _SLICE == 0:
                    yield None
        if len(self._sent) < len(state.by_number) or series.sent:
            self._sent.append((OTHER, series.sent))
            self._add((*OTHER, "other"), series.counts, other_ready)
            self._copy_lateness(OTHER, series.other_lateness)
        yield from self._read_ages(state, now_ms)

    def _add(self, place: Place, counts: GroupCounts, ready: int) -> None:
        ended = (getattr(counts, kind) for kind in ENDED)
        values = (counts.living, ready, counts.leased, counts.delivered, *ended)
        self._groups.append((place, values))

    def _read_ages(self, state: EngineState, now_ms: int) -> Iterator[None]:
        """How old the oldest ready messages are. Groups without series of their own are one."""
        places: list[Place] = []
        groups: list[Group] = []
        oldest_ms: dict[Place, int] = {}

        def look() -> None:
            for place, due_ms in zip(places, oldest_due_ms(state, groups), strict=True):
                if due_ms is not None:
                    oldest_ms[place] = min(due_ms, oldest_ms.get(place, due_ms))
            places.clear()
            groups.clear()

        for at, topic in enumerate(list(state.by_number.values())):
            if at % _AGES_AT_ONCE == 0:
                yield None
            for group in list(topic.groups.values()):
                if group.made_ready is None:
                    continue
                if group.counts.sums is None:
                    places.append((topic.namespace, topic.name, group.name))
                elif topic.paused:
                    continue
                else:
                    places.append((*OTHER, "other"))
                groups.append(group)
                if len(groups) == _AGES_AT_ONCE:
                    look()
                    yield None
        look()
        for place, due_ms in oldest_ms.items():
            self._ages.append((place, max(now_ms - due_ms, 0) / 1000))

    def _copy_lateness(self, place: Place, late: Lateness) -> None:
        self._ready.append((place, late.ready.copy()))
        self._handed_out.append((place, late.handed_out.copy()))

    def totals(self) -> Iterator[Metric]:
        """Sums over all groups."""
        yield from families(
            {"delaylog_parked_messages": self._parked, "delaylog_locked_keys": self._locked}
        )

    def families(self) -> Iterator[Metric]:
        """The values as metric families, but for lateness."""
        groups = self._groups
        for at, name in enumerate(_GAUGES):
            yield family(f"delaylog_{name}", ((place, values[at]) for place, values in groups))
        yield family("delaylog_oldest_due_age_seconds", self._ages)
        yield family("delaylog_topic_paused", self._paused)
        yield family("delaylog_sent_total", self._sent)
        delivered = len(_GAUGES)
        yield family(
            "delaylog_delivered_total", ((place, values[delivered]) for place, values in groups)
        )
        yield family(
            "delaylog_ended_total",
            (
                ((*place, kind), value)
                for place, values in groups
                for kind, value in zip(ENDED, values[delivered + 1 :], strict=True)
            ),
        )

    def lateness(self) -> Iterator[Sampled]:
        """The histograms of lateness."""
        yield Sampled("delaylog_ready_lateness_seconds", self._ready, MS)
        yield Sampled("delaylog_lateness_seconds", self._handed_out, MS)
