"""Values of topics in a scrape: ages of the oldest ready messages, and paused topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.watch.metrics import TopicSamples
from tests.broker.engine.fixtures import host, host_class, open_host

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
