"""Values of a scrape, what it costs, and its text.

Ages of the oldest ready messages and paused topics; sizes of folders; lines of histograms as
prometheus_client writes them.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Exemplar

from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.watch.histogram import BOUNDS_MS, Example, Histogram, Lateness
from delaylog.broker.host.machine import RealMachine
from delaylog.broker.host.watch.metrics import (
    EVERY_SECONDS,
    MS,
    FolderSizes,
    Metrics,
    Sampled,
    TopicSamples,
    histogram_text,
)
from delaylog.broker.host.watch.metrics_table import METRICS
from tests.broker.engine.fixtures import host, host_class, open_host
from tests.broker.host.running_node import running

__all__ = ["host", "host_class", "open_host"]


def samples(host: Any, name: str) -> dict[tuple[str, ...], float]:
    """Values of a metric by topic and group."""
    read = TopicSamples()
    for _ in read.read(host.engine.state, host.now_ms):
        pass
    return {
        tuple(value for label, value in sample.labels.items() if label != "namespace"): sample.value
        for family in read.families()
        for sample in family.samples
        if sample.name == name
    }


def ages(host: Any) -> dict[tuple[str, ...], float]:
    return samples(host, "delaylog_oldest_due_age_seconds")


def test_all_other_topics_have_one_age(open_host: Any) -> None:
    """Purpose: a group is not passed over because other topics have all series. Method: the oldest
    message is in one of many others; a paused one, in which an older one waits, does not count."""
    host = open_host(limits=replace(Limits(), metrics_topics_max=1))
    host.send(1)
    host.send(1, topic="paused")
    host.advance(2_000)
    for number in range(300):
        host.send(1, topic=f"other-{number}")
        host.advance(10)
    host.topic_name = "paused"
    host.pause()
    host.topic_name = "t"
    assert ages(host) == {("t", "default"): 5.0, ("other", "other"): 3.0}


def test_a_paused_topic(host: Any) -> None:
    """It keeps its age, and a gauge tells the alerts why nobody takes its messages."""
    host.send(1)
    assert samples(host, "delaylog_topic_paused") == {}
    host.pause()
    host.advance(500)
    assert samples(host, "delaylog_topic_paused") == {("t",): 1}
    assert ages(host) == {("t", "default"): 0.5}


# ------------ A scrape keeps the loop free: values are read in slices, and slow ones on the thread


GROUPS = 10_000


async def test_the_descriptors_are_listed_on_the_thread(tmp_path: Path) -> None:
    """20,000 of them take 72 ms."""
    async with running(tmp_path) as host:
        metrics = Metrics(host.node)
        process: Any = metrics._process
        collect, threads = process.collect, []

        def noted() -> Any:
            threads.append(threading.current_thread())
            return collect()

        process.collect = noted
        text, _ = await metrics.text()
        assert b"process_open_fds " in text
        assert threads
        assert threading.main_thread() not in threads


def test_a_slice_is_bounded_in_groups_of_one_topic() -> None:
    """Purpose: a topic with many groups is no single slice. Method: groups that count reads."""
    reads = 0

    class Group:
        made_ready, counts = None, SimpleNamespace(sums=object())

        @property
        def made_gate(self) -> None:
            nonlocal reads
            reads += 1

    topic = SimpleNamespace(number=1, groups={str(number): Group() for number in range(GROUPS)})
    series = SimpleNamespace(topics={}, lateness={}, sent=0, other_lateness=Lateness())
    counts = dict.fromkeys(("living", "leased", "delivered", "acked", "expired", "dead"), 0)
    series.counts = SimpleNamespace(**counts, cancelled=0, replaced=0)
    state: Any = SimpleNamespace(series=series, by_number={1: topic})
    steps = [0, *(reads for _ in TopicSamples().read(state, 0))]
    assert reads == GROUPS
    assert max(b - a for a, b in zip(steps, [*steps[1:], reads], strict=True)) <= 1_024


# ------------------ Sizes of a folder's parts: allocated bytes, measured again after a minute only


class Machine(RealMachine):
    """A machine whose clock the test moves."""

    now_s = 100.0

    def steady_s(self) -> float:  # type: ignore[override]
        return self.now_s


async def test_parts_are_the_top_folders(tmp_path: Path) -> None:
    """A hole takes no space; files that are in no folder are one part."""
    (tmp_path / "hours" / "5").mkdir(parents=True)
    (tmp_path / "hours" / "5" / "rows").write_bytes(b"x" * 10_000)
    with (tmp_path / "hours" / "state").open("wb") as file:
        file.truncate(1 << 24)
    (tmp_path / "tick").write_bytes(b"x")
    machine = Machine()
    sizes = FolderSizes(machine)
    first = await sizes.of(str(tmp_path))
    assert set(first) == {"hours", "files"}
    assert 10_000 <= first["hours"] < 1 << 20
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "1").write_bytes(b"x")
    machine.now_s += EVERY_SECONDS
    assert await sizes.of(str(tmp_path)) is first
    machine.now_s += 0.001
    # A scrape does not wait for the size of each file: the next one has the new sizes.
    assert await sizes.of(str(tmp_path)) is first
    assert sizes.measuring is not None
    await sizes.measuring
    assert "log" in await sizes.of(str(tmp_path))


# The fast text of histograms has the lines that prometheus_client writes of the same values


NAMES = {
    "delaylog_fsync_seconds": (),
    "delaylog_request_seconds": ("http", "send"),
    "delaylog_lateness_seconds": ("n",),
}
"""Rows without labels, with labels before `le` in the alphabet, and after it."""
TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]) | st.just("\n"), max_size=8)


class _One(CollectorRegistry):
    def __init__(self, family: Metric) -> None:
        super().__init__()
        self.family = family

    def collect(self) -> Any:
        yield self.family


def theirs(sampled: Sampled) -> Metric:
    """What the library makes of the same values."""
    row = METRICS[sampled.name]
    made = HistogramMetricFamily(row.name, row.text, labels=row.labels)
    for labels, histogram in sampled.samples:
        bounds = [*(str(bound * sampled.unit) for bound in histogram.bounds), "+Inf"]
        buckets: list[Any] = []
        for at, count in enumerate(accumulate(histogram.counts)):
            found = histogram.examples.get(at)
            exemplar = found and Exemplar(
                {found.label: found.text}, found.value * sampled.unit, found.at_ms / 1000
            )
            buckets.append((bounds[at], float(count), exemplar))
        made.add_metric(labels, buckets, histogram.sum * sampled.unit)
    return made


def lines_of(text: bytes) -> tuple[list[str], list[tuple[str, float]]]:
    """The lines but for the sums, which may be written in several ways, and the sums' values."""
    lines = sorted(text.decode().split("\n"))
    sums = [line.rpartition(" ") for line in lines if "_seconds_sum" in line]
    others = [line for line in lines if "_seconds_sum" not in line]
    return others, [(name, float(value)) for name, _, value in sums]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("openmetrics", [False, True], ids=["plain", "openmetrics"])
@given(
    topics=st.dictionaries(
        TEXTS, st.lists(st.integers(0, 400_000), max_size=20), min_size=1, max_size=3
    ),
    label=TEXTS,
)
def test_both_texts_are_the_same(
    topics: dict[str, list[int]], label: str, name: str, openmetrics: bool
) -> None:
    samples = []
    for topic, values in topics.items():
        histogram = Histogram(BOUNDS_MS)
        for value in values:
            histogram.note(value)
            histogram.keep_example(Example("message_id", label, value, 1_700_000_000_123))
        labels = NAMES[name] if len(NAMES[name]) != 1 else (*NAMES[name], topic)
        samples.append((labels, histogram))
    if name != "delaylog_lateness_seconds":
        samples = samples[:1]
    sampled = Sampled(name, samples, MS)
    ours = histogram_text(sampled, openmetrics=openmetrics)
    if openmetrics:
        ours += b"# EOF\n"
    generate = generate_openmetrics if openmetrics else generate_latest
    assert lines_of(ours) == lines_of(generate(_One(theirs(sampled))))
