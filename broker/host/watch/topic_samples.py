"""Metrics of topics: series for a limited number of topics, and sums over all others.

The loop reads the values in slices; another thread may turn them into metric families.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import GroupCounts

OTHER: Final = ("", "other")
"""Labels of the sums. A namespace is never empty, so no topic has these labels."""
ENDED: Final = ("acked", "expired", "dead", "deleted")
_SLICE_TOPICS: Final = 1_024


class TopicSamples:
    """The values of topics in one scrape."""

    def __init__(self) -> None:
        self._sent: list[tuple[tuple[str, str], int]] = []
        self._groups: list[tuple[tuple[str, str, str], tuple[int, ...]]] = []

    def read(self, state: EngineState) -> Iterator[None]:
        """Read the values from the engine, in slices."""
        series = state.series
        for topic in series.topics.values():
            self._sent.append(((topic.namespace, topic.name), topic.sent))
            for group in topic.groups.values():
                if group.counts.sums is None:
                    place = (topic.namespace, topic.name, group.name)
                    self._add(place, group.counts, group.ready_count)
        yield None
        other_ready = 0
        topics = list(state.by_number.values())
        for first in range(0, len(topics), _SLICE_TOPICS):
            # Ready counts are not summed elsewhere, so each group is visited. The test of
            # `made_ready` is cheap, and few of many groups have ready messages.
            other_ready += sum(
                group.ready_count
                for topic in topics[first : first + _SLICE_TOPICS]
                for group in topic.groups.values()
                if group.made_ready is not None and group.counts.sums is not None
            )
            yield None
        if len(self._sent) < len(state.by_number) or series.sent:
            self._sent.append((OTHER, series.sent))
            self._add((*OTHER, "other"), series.counts, other_ready)

    def _add(self, place: tuple[str, str, str], counts: GroupCounts, ready: int) -> None:
        ended = (getattr(counts, kind) for kind in ENDED)
        values = (counts.living, ready, counts.leased, counts.delivered, *ended)
        self._groups.append((place, values))

    def families(self) -> Iterator[Metric]:
        """The values as metric families."""
        sent = CounterMetricFamily("delaylog_sent", "Messages accepted.", labels=_TOPIC)
        for topic, value in self._sent:
            sent.add_metric(topic, value)
        labels = [*_TOPIC, "group"]
        gauges = [GaugeMetricFamily(name, text, labels=labels) for name, text in _GAUGES]
        delivered = CounterMetricFamily("delaylog_delivered", "Messages handed out.", labels=labels)
        ended = CounterMetricFamily(
            "delaylog_ended", "Messages that ended, by state.", labels=[*labels, "state"]
        )
        for place, values in self._groups:
            for gauge, value in zip(gauges, values, strict=False):
                gauge.add_metric(place, value)
            delivered.add_metric(place, values[len(gauges)])
            for kind, value in zip(ENDED, values[-len(ENDED) :], strict=True):
                ended.add_metric([*place, kind], value)
        yield from (*gauges, sent, delivered, ended)


_TOPIC: Final = ("namespace", "topic")
_GAUGES: Final = (
    ("delaylog_living_messages", "Messages that have not ended."),
    ("delaylog_ready_messages", "Messages that may be handed out now."),
    ("delaylog_leased_messages", "Messages under lease."),
)
