"""The metrics of a node: values for the rows of the table, read at each scrape.

Only distributions and errors by code are counted while calls run.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from delaylog import __version__
from delaylog.broker.engine.deliver.claim_table import ENDINGS
from delaylog.broker.engine.upkeep.archive import archive_status
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.metrics.exposition import MS, Sampled, histogram_text
from delaylog.broker.host.metrics.families import by_label, families, family
from delaylog.broker.host.metrics.topic_samples import TopicSamples
from delaylog.broker.host.node import Node
from delaylog.broker.host.slices import SLICE_SECONDS
from delaylog.broker.host.system.folder_lock import newest_backup_s

# The disk space of a data folder by part, measured at most once a minute, on a thread.

EVERY_SECONDS: Final = 60.0
"""Measuring asks for the size of each file: a year of hours has thousands of them."""
FILES: Final = "files"
"""The part of files that are in no folder: checkpoints, the reserve, the tick."""
_BLOCK_BYTES: Final = 512


class FolderSizes:
    """The sizes of one data folder."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._measured_s = 0.0
        self._sizes: dict[str, int] = {}
        self.measuring: asyncio.Future[None] | None = None
        """The measurement that was begun last."""

    async def of(self, folder: str) -> dict[str, int]:
        """Allocated bytes by folder in the data folder, as of the last measurement. Only the first
        caller waits for one.
        """
        now_s = self._machine.steady_s()
        if not self._sizes or now_s - self._measured_s > EVERY_SECONDS:
            self._measured_s = now_s
            self.measuring = asyncio.ensure_future(self._measure(folder))
            if not self._sizes:
                await self.measuring
        return self._sizes

    async def _measure(self, folder: str) -> None:
        self._sizes = await self._machine.in_thread(lambda: measure(folder))


def measure(folder: str) -> dict[str, int]:
    """Allocated bytes by folder in `folder`; files that cannot be looked at do not count."""
    sizes: Counter[str] = Counter({FILES: 0})
    for path, _, names in os.walk(folder):
        part = os.path.relpath(path, folder).split(os.sep)[0]
        for name in names:
            with suppress(OSError):
                blocks = os.stat(os.path.join(path, name), follow_symlinks=False).st_blocks
                sizes[FILES if part == os.curdir else part] += blocks * _BLOCK_BYTES
    return dict(sizes)


LEASE_BYTES: Final = 27
"""Memory of a message under lease, measured; see `leased_max` in docs/LIMITS.md."""
_END: Final = b"# EOF\n"
"""The last line of OpenMetrics text."""


class Metrics(Collector):
    """The metrics of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.registry = CollectorRegistry()
        self.fast_requests = 0
        """Number of HTTP requests that the fast lane served."""
        self.connections: dict[str, Callable[[], int]] = {}
        """Counts the connections of a face, by its name."""
        self.body_bytes: Callable[[], int] = lambda: 0
        """Bytes of request bodies that are being read."""
        self._sizes = FolderSizes(node.machine)
        self._process = ProcessCollector(registry=None)
        self.registry.register(self)

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """The text of a scrape and its media type, OpenMetrics if `accept` prefers it.

        Values are read in slices on the loop, a thread formats them. It also asks the system for
        those of the process, which lists the descriptors: 72 ms with 20,000 of them.
        """
        topics = TopicSamples()
        machine = self._node.machine
        began = machine.steady_s()
        # A scrape is answered also while the node's engine is being replaced.
        for _ in topics.read(self._node.engine.state, self._node.clock.now_ms()):
            if machine.steady_s() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = machine.steady_s()
        read = [*self.registry.collect(), *topics.totals()]
        counted = [*self._histograms(), *topics.lateness()]
        folder = self._node.engine.folder
        sizes = await self._sizes.of(folder)
        encode, kind = choose_encoder(accept)
        openmetrics = kind.startswith("application/openmetrics-text")

        def make() -> bytes:
            disk = by_label("delaylog_disk_bytes", sizes)
            backup = families(_backup(folder))
            more = [*topics.families(), *read, disk, *backup, *self._process.collect()]
            text = encode(_Read(more))
            rest = b"".join(histogram_text(each, openmetrics=openmetrics) for each in counted)
            return text.removesuffix(_END) + rest + _END if openmetrics else text + rest

        return await machine.in_thread(make), kind

    def collect(self) -> Iterator[Metric]:
        """Read the gauges and counters of the engine except those of topics."""
        node = self._node
        state, timings = node.engine.state, node.timings
        yield from families(self._gauges())
        yield from families(self._counters())
        yield family("delaylog_info", [((__version__,), 1)])
        ended = {ending: state.claims.endings[ending] for ending in ENDINGS}
        yield by_label("delaylog_claims_ended_total", ended)
        yield by_label(
            "delaylog_connections", {face: count() for face, count in self.connections.items()}
        )
        yield by_label("delaylog_slow_requests_total", timings.slow.counts)
        yield family("delaylog_problems_total", timings.problems.items())
        yield by_label(
            "delaylog_memory_bytes",
            {
                "tail": state.hours.pile.size_bytes,
                "dirty_states": state.hours.flusher.dirty_state_bytes,
                "log_pending": state.log.pending_size,
                "request_bodies": self.body_bytes(),
                "leases": len(state.leases) * LEASE_BYTES,
                "producers": state.producers.size_bytes,
            },
        )

    def _histograms(self) -> Iterator[Sampled]:
        """What is counted while calls run, except for topics: copies, which a thread may read."""
        node = self._node
        timings = node.timings
        named: list[tuple[str, Mapping[tuple[str, ...], Histogram], float]] = [
            ("loop_lag", {(): node.loop_lag.histogram}, 1),
            ("fsync", {(): timings.fsync}, 1),
            ("commit_wait", {(): timings.commit_wait}, 1),
            ("request", timings.requests, 1),
            ("recovery", _by_step(timings.recovery), 1),
            ("checkpoint", _by_step(node.engine.upkeep.times.steps), MS),
        ]
        if node.role.cluster is not None:
            named.append(("cluster_follower_lag", timings.follower_lag, 1))
        for name, histograms, unit in named:
            copies = [(labels, each.copy()) for labels, each in histograms.items()]
            yield Sampled(f"delaylog_{name}_seconds", copies, unit)

    def _gauges(self) -> dict[str, float]:
        node = self._node
        state, now_ms = node.engine.state, node.clock.now_ms()
        transactions = state.transactions
        values = {
            "held": int(state.holding.now is not None),
            "topics": len(state.by_number),
            "schedules": len(state.schedules),
            "jobs_running": len(state.jobs.running()),
            "leases": len(state.leases),
            "claims": len(state.claims),
            "claim_rows": state.claims.rows,
            "producers": len(state.producers),
            "transactions_open": len(transactions.open),
            "staged_bytes": transactions.staged_bytes,
            "staged_rows": transactions.staged_rows,
            "publish_lag_rows": transactions.unpublished_rows,
            "publish_lag_seconds": transactions.lag_ms(now_ms) / 1000,
            "waiting_consumers": len(node.waiters),
            "streams": len(node.waiters.streams),
            "log_end_position": state.log.end_position,
            "log_durable_position": state.log.durable_position,
            "log_applied_position": state.position,
            "log_first_position": state.log.first_position,
            "disk_free_bytes": node.space.measured_bytes(),
            "disk_full": int(node.refusing_sends),
            "reserve_bytes": node.engine.reserve.size_bytes,
            "reserve_target_bytes": node.engine.reserve.target_bytes,
            "hour_folders": len(state.hours.counts),
            "archive_held_folders": archive_status(state, now_ms).held_hours,
            "tail_bytes": state.hours.pile.size_bytes,
            "dirty_state_bytes": state.hours.flusher.dirty_state_bytes,
            "loop_lag_max_seconds": node.loop_lag.max_seconds,
            "tick_second": state.tick.second,
            "clock_held_seconds": node.clock.ahead_ms / 1000,
            "epoch": state.epoch_counter,
            "feature_level": state.level,
        }
        return {f"delaylog_{name}": value for name, value in values.items()}

    def _counters(self) -> dict[str, float]:
        node = self._node
        state = node.engine.state
        transactions, producers = state.transactions, state.producers
        values = {
            "producers_dropped": producers.dropped,
            "producer_answers_dropped": producers.answers_dropped,
            "discarded_rows": transactions.discarded_rows,
            "published_rows": transactions.published_rows,
            "transactions_dropped": transactions.dropped,
            "http_fast_requests": self.fast_requests,
            "commits": node.log_commits.commits,
            "checkpoints": node.engine.upkeep.checkpoints,
            "wheel_turns": state.wheel.turns,
            "clock_steps": node.clock.steps,
        }
        return {f"delaylog_{name}_total": value for name, value in values.items()}


def _backup(folder: str) -> dict[str, float]:
    made_s = newest_backup_s(folder)
    return {} if made_s is None else {"delaylog_backup_timestamp_seconds": made_s}


def _by_step(steps: dict[str, Histogram]) -> dict[tuple[str, ...], Histogram]:
    # A thread may add a step meanwhile.
    return {(step,): each for step, each in list(steps.items())}


class _Read(CollectorRegistry):
    """A registry that returns metric families which were read earlier."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families
