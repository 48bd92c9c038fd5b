"""Prometheus metrics: each is declared with a name and a sentence, and read at scrape time.

Only errors by code are counted on the hot path for metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from delaylog.broker.engine.deliver.claim_table import ENDINGS
from delaylog.broker.engine.upkeep.archive import archive_status
from delaylog.broker.host.node import Node
from delaylog.broker.host.slices import SLICE_SECONDS
from delaylog.broker.host.watch.loop_lag import BOUNDS
from delaylog.broker.host.watch.topic_samples import TopicSamples

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """The metrics of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.registry = CollectorRegistry()
        self.fast_requests = 0
        """Number of HTTP requests that the fast lane served."""
        self.problems = Counter(
            "delaylog_problems", "Error answers by code.", ["code"], registry=self.registry
        )
        self.registry.register(self)

    async def text(self) -> bytes:
        """The text of a scrape: values are read in slices on the loop, a thread formats them."""
        topics = TopicSamples()
        machine = self._node.machine
        began = machine.steady_s()
        # A scrape is answered also while the node's engine is being replaced.
        for _ in topics.read(self._node.engine.state):
            if machine.steady_s() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = machine.steady_s()
        families = list(self.registry.collect())
        return await machine.in_thread(lambda: _text([*topics.families(), *families]))

    def collect(self) -> Iterator[Metric]:
        """Read all metrics of the engine except those of topics."""
        node = self._node
        state = node.engine.state
        transactions = state.transactions
        gauges = {
            "delaylog_topics": ("Topics.", len(state.by_number)),
            "delaylog_log_end_position": ("End of the physical log.", state.log.end_position),
            "delaylog_log_durable_position": (
                "How far the physical log is durable.",
                state.log.durable_position,
            ),
            "delaylog_log_applied_position": (
                "How far the physical log is applied.",
                state.position,
            ),
            "delaylog_log_first_position": ("Oldest position kept.", state.log.first_position),
            "delaylog_tail_bytes": (
                "Rows and bodies waiting for the splitter.",
                state.hours.pile.size_bytes,
            ),
            "delaylog_dirty_state_bytes": (
                "State pages newer than their files.",
                state.hours.flusher.dirty_state_bytes,
            ),
            "delaylog_hours": ("Hours that hold rows.", len(state.hours.counts)),
            "delaylog_archive_held_hours": (
                "Ended hours that are kept only for the archive.",
                archive_status(state, node.clock.now_ms()).held_hours,
            ),
            "delaylog_leases": ("Open leases.", len(state.leases)),
            "delaylog_claims": ("Claims that have not ended.", len(state.claims)),
            "delaylog_claim_rows": ("Messages in claims that have not ended.", state.claims.rows),
            "delaylog_waiting_consumers": ("Long polls that wait.", len(node.waiters)),
            "delaylog_streams": ("Open streams of deliveries.", len(node.waiters.streams)),
            "delaylog_producers": ("Idempotent producers remembered.", len(state.producers)),
            "delaylog_transactions_open": ("Open transactions.", len(transactions.open)),
            "delaylog_staged_bytes": (
                "Bytes staged in open transactions.",
                transactions.staged_bytes,
            ),
            "delaylog_staged_rows": (
                "Messages staged in open transactions.",
                transactions.staged_rows,
            ),
            "delaylog_publish_lag_rows": (
                "Committed messages that are not in their hours yet.",
                transactions.unpublished_rows,
            ),
            "delaylog_publish_lag_ms": (
                "Time since the commit of the oldest message that is not in its hour yet.",
                transactions.lag_ms(node.clock.now_ms()),
            ),
            "delaylog_epoch": ("Leadership counter.", state.epoch_counter),
            "delaylog_feature_level": (
                "Feature level of the log: rises once all members support it.",
                state.level,
            ),
            "delaylog_tick_second": ("Second that dispatch has reached.", state.tick.second),
            "delaylog_clock_held_ms": (
                "How far the clock waits for wall time after a backward step.",
                node.clock.ahead_ms,
            ),
            "delaylog_loop_lag_max_seconds": (
                "Longest lag of the event loop since the start.",
                node.loop_lag.max_seconds,
            ),
            "delaylog_disk_full": ("1 while sends are refused.", int(node.refusing_sends)),
            "delaylog_reserve_bytes": (
                "Allocated disk space that is used when the disk is full.",
                node.engine.reserve.size_bytes,
            ),
            "delaylog_reserve_target_bytes": (
                "Size of the reserve when it is completely allocated.",
                node.engine.reserve.target_bytes,
            ),
        }
        for gauge, (text, value) in gauges.items():
            yield GaugeMetricFamily(gauge, text, value)
        counters = {
            "delaylog_commits": ("Group commits (one fdatasync each).", node.log_commits.commits),
            "delaylog_checkpoints": ("Checkpoints written.", node.engine.upkeep.checkpoints),
            "delaylog_wheel_turns": ("Slots of the wheel that expired.", state.wheel.turns),
            "delaylog_clock_steps": ("Steps of the wall clock.", node.clock.steps),
            "delaylog_http_fast_requests": (
                "HTTP requests served by the fast lane.",
                self.fast_requests,
            ),
            "delaylog_discarded_rows": (
                "Staged messages that were never committed.",
                transactions.discarded_rows,
            ),
            "delaylog_published_rows": (
                "Messages of committed transactions that have reached their hours.",
                transactions.published_rows,
            ),
            "delaylog_transactions_dropped": (
                "Ended transactions forgotten for lack of room.",
                transactions.dropped,
            ),
            "delaylog_producers_dropped": (
                "Producers forgotten for lack of room.",
                state.producers.dropped,
            ),
            "delaylog_producer_answers_dropped": (
                "First answers of producers dropped for lack of room, the oldest first.",
                state.producers.answers_dropped,
            ),
        }
        claims = CounterMetricFamily(
            "delaylog_claims_ended", "Claims that ended, by how.", labels=["state"]
        )
        for ending in ENDINGS:
            claims.add_metric([ending], state.claims.endings[ending])
        yield claims
        for counter, (text, value) in counters.items():
            yield CounterMetricFamily(counter, text, value)
        yield self._loop_lag()

    def _loop_lag(self) -> Metric:
        lag = self._node.loop_lag
        bounds = [*map(str, BOUNDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(lag.counts), strict=True))
        family = HistogramMetricFamily(
            "delaylog_loop_lag_seconds", "How late timers of the event loop fire."
        )
        family.add_metric([], buckets, lag.sum_seconds)
        return family


def _text(families: list[Metric]) -> bytes:
    """The exposition text of metric families."""
    return generate_latest(_Read(families))


class _Read(CollectorRegistry):
    """A registry that returns metric families which were read earlier."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families
