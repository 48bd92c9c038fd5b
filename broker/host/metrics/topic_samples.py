"""Metrics of topics: series for a limited number of topics, and sums over all others.

The loop reads the values in slices; another thread may turn them into metric families and text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group, GroupCounts
from delaylog.broker.engine.views.oldest_due import FRONT_REFS, OldestDue, oldest_due_ms
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.engine.watch.lateness import Lateness
from delaylog.broker.host.metrics.exposition import MS, Sampled
from delaylog.broker.host.metrics.families import families, family

OTHER: Final = ("", "other")
"""Labels of the sums. A namespace is never empty, so no topic has these labels."""
ENDED: Final = ("acked", "expired", "dead", "cancelled", "replaced")
_GAUGES: Final = ("living_messages", "ready_messages", "leased_messages")
_SLICE: Final = 512
"""The effort of a slice, between two looks at the clock."""
_EFFORT_OWN: Final = 16
"""The effort of a topic, or of a group, with series of its own; a summed group is 1."""

Place = tuple[str, ...]


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
        """Read the values from the engine, in slices.

        Groups without series of their own are summed. The age of the oldest message of the sums
        leaves out paused topics.
        """
        series = state.series
        other_ready, oldest = 0, OldestDue()
        places: list[Place] = []
        own: list[Group] = []
        effort = 0
        for topic in list(state.by_number.values()):
            if topic.number in series.topics:
                effort += _EFFORT_OWN
                self._add_topic(topic, series.lateness.get(topic.number))
            for group in list(topic.groups.values()):
                effort += 1
                gate, ready = group.made_gate, group.made_ready
                parked = 0
                if gate is not None:
                    parked = gate.parked
                    self._parked += parked
                    self._locked += gate.locked_count
                if group.counts.sums is None:
                    effort += _EFFORT_OWN
                    place = (topic.namespace, topic.name, group.name)
                    self._add(place, group.counts, group.ready_count)
                    if ready is not None:
                        places.append(place)
                        own.append(group)
                elif ready is not None:
                    living, refs = ready.living_and_front(parked, FRONT_REFS)
                    other_ready += living
                    if refs and not topic.paused:
                        oldest.add(group, refs)
                if effort >= _SLICE:
                    oldest.look(state)
                    self._add_ages(places, oldest_due_ms(state, own), now_ms)
                    effort, places, own = 0, [], []
                    yield None
        oldest.look(state)
        due = [*oldest_due_ms(state, own), oldest.due_ms]
        self._add_ages([*places, (*OTHER, "other")], due, now_ms)
        if len(self._sent) < len(state.by_number) or series.sent:
            self._sent.append((OTHER, series.sent))
            self._add((*OTHER, "other"), series.counts, other_ready)
            self._copy_lateness(OTHER, series.other_lateness)

    def _add_topic(self, topic: Topic, late: Lateness | None) -> None:
        place = topic.namespace, topic.name
        self._sent.append((place, topic.sent))
        if topic.paused:
            self._paused.append((place, 1))
        if late is not None:
            self._copy_lateness(place, late)

    def _add_ages(self, places: list[Place], due: list[int | None], now_ms: int) -> None:
        self._ages += [
            (place, max(now_ms - due_ms, 0) / 1000)
            for place, due_ms in zip(places, due, strict=True)
            if due_ms is not None
        ]

    def _add(self, place: Place, counts: GroupCounts, ready: int) -> None:
        ended = (getattr(counts, kind) for kind in ENDED)
        values = (counts.living, ready, counts.leased, counts.delivered, *ended)
        self._groups.append((place, values))

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
