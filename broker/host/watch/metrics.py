"""The metrics of a node: values for the rows of the table, read at each scrape.

Only distributions and errors by code are counted while calls run. Topics have series for a limited
number of topics, and sums over all others. The loop reads the values of topics in slices; another
thread may turn them into metric families and text.

The text of histograms, which are most of a scrape, is made here. prometheus_client needs 110 us for
one of them, since it makes and formats objects for each line; two for each of 200 topics would take
45 ms of the interpreter at each scrape. A test compares this text with its text.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from delaylog import __version__
from delaylog.broker.engine.deliver.claim_table import ENDINGS
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group, GroupCounts
from delaylog.broker.engine.upkeep.archive import archive_status
from delaylog.broker.engine.views.oldest_due import FRONT_REFS, OldestDue, oldest_due_ms
from delaylog.broker.engine.watch.histogram import Example, Histogram, Lateness
from delaylog.broker.host.background import SLICE_SECONDS
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.node import Node
from delaylog.broker.host.system.folder_lock import newest_backup_s
from delaylog.broker.host.watch.metrics_table import METRICS, by_label, families, family
from delaylog.broker.host.watch.reloader import Reloader

# --------------------------------------------------------------------------- text of histograms

MS: Final = 0.001
"""Seconds of a millisecond."""
_LE: Final = "le="
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sampled(NamedTuple):
    """The histograms of one row of the table, which have the same bounds."""

    name: str
    samples: Iterable[tuple[Sequence[str], Histogram]]
    """The values of the row's labels, and the histogram."""
    unit: float = 1.0
    """Seconds of the histograms' unit."""


def histogram_text(sampled: Sampled, *, openmetrics: bool) -> bytes:
    """The lines of histograms, in seconds."""
    name, samples, unit = sampled
    row = METRICS[name]
    lines = [f"# HELP {name} {row.text}", f"# TYPE {name} histogram"]
    bounds: list[str] = []
    for values, histogram in samples:
        if not bounds:
            upper = [*(str(bound * unit) for bound in histogram.bounds), "+Inf"]
            bounds = [f'le="{bound}"' for bound in upper]
        # The library sorts labels by name, and so do we.
        labels = [
            f'{key}="{value.translate(_ESCAPES)}"'
            for key, value in sorted(zip(row.labels, values, strict=True))
        ]
        own = f"{{{','.join(labels)}}}" if labels else ""
        before = "".join(f"{label}," for label in labels if label < _LE)
        after = "".join(f",{label}" for label in labels if label > _LE)
        examples = histogram.examples if openmetrics else {}
        count = 0
        for at, count in enumerate(accumulate(histogram.counts)):
            example = _example_text(examples[at], unit) if at in examples else ""
            lines.append(f"{name}_bucket{{{before}{bounds[at]}{after}}} {count}.0{example}")
        lines.append(f"{name}_count{own} {count}.0")
        lines.append(f"{name}_sum{own} {histogram.sum * unit}")
    return "\n".join((*lines, "")).encode()


def _example_text(example: Example, unit: float) -> str:
    text = example.text.translate(_ESCAPES)
    return f' # {{{example.label}="{text}"}} {example.value * unit} {example.at_ms / 1000}'


# --------------------------------------------------------------------------------------- topics

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


# ------------------------------------------------------------------------------------- the node

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


# -------------------------------------------------------------------------------------- reloads


class ReloadMetrics(Collector):
    """How often the files of a process were read again."""

    def __init__(self, reloader: Reloader) -> None:
        self._reloader = reloader

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield family("delaylog_reloads_total", self._reloader.counts.items())
        yield by_label("delaylog_reload_failed", self._reloader.failing)
