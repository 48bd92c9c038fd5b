"""Metrics of topics are bounded: beyond so many topics the others are one sum.

What is summed stays summed, and a sum never falls, whatever is dropped, created or restarted.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from delaylog.storage.log.frames import KNOWN_LEVEL
from tests.broker.conftest import Broker

LATER = {"body": "x", "delay_ms": 3_600_000}
NOW = {"body": "x"}


def sample(broker: Broker, name: str, topic: str, **labels: str) -> float | None:
    """The value of one sample of a topic, None when there is none."""
    for line in broker.call("GET", "/metrics").body.decode().splitlines():
        found = re.fullmatch(rf"{name}{{(.*)}} (\S+)", line)
        wanted = [f'topic="{topic}"', *(f'{key}="{value}"' for key, value in labels.items())]
        if found and all(label in found[1].split(",") for label in wanted):
            return float(found[2])
    return None


def send(broker: Broker, topic: str, body: object = LATER) -> None:
    broker.post(f"/v1/topics/{topic}/messages", body)


def test_topics_beyond_the_limit_are_summed(start_broker: Callable[..., Broker]) -> None:
    """Purpose: many topics do not make a scrape large. Method: three topics, two places."""
    broker = start_broker(limits="metrics_topics_max = 2")
    for name in ("a", "b"):
        send(broker, name)
    assert sample(broker, "delaylog_sent_total", "other") is None
    for name in ("c", "c", "d"):
        send(broker, name)
    assert sample(broker, "delaylog_sent_total", "a") == 1
    assert sample(broker, "delaylog_sent_total", "c") is None
    assert sample(broker, "delaylog_sent_total", "other") == 3
    assert sample(broker, "delaylog_living_messages", "other", group="other") == 3
    send(broker, "d", NOW)
    broker.await_metric('delaylog_ready_messages{group="other",namespace="",topic="other"}', 1)
    taken = broker.post("/v1/topics/d/receive", {"max": 1})
    assert sample(broker, "delaylog_leased_messages", "other") == 1
    broker.post("/v1/topics/d/ack", {"receipts": [taken["messages"][0]["receipt"]]})
    assert sample(broker, "delaylog_leased_messages", "other") == 0
    assert sample(broker, "delaylog_ended_total", "other", state="acked") == 1
    assert sample(broker, "delaylog_delivered_total", "other") == 1
    # A place that comes free is for a new topic: one that was summed stays so.
    broker.call("DELETE", "/v1/topics/a?force=true")
    send(broker, "c")
    send(broker, "e")
    assert sample(broker, "delaylog_sent_total", "c") is None
    assert sample(broker, "delaylog_sent_total", "e") == 1
    # What is dropped takes its living messages along, not what was counted.
    broker.call("DELETE", "/v1/topics/d?force=true")
    assert sample(broker, "delaylog_sent_total", "other") == 5
    assert sample(broker, "delaylog_living_messages", "other") == 3
    for crash in (False, True):
        (broker.crash if crash else broker.stop)()
        broker.start()
        assert sample(broker, "delaylog_sent_total", "other") == 5
        assert sample(broker, "delaylog_living_messages", "other") == 3
        assert sample(broker, "delaylog_ended_total", "other", state="acked") == 1
        assert sample(broker, "delaylog_sent_total", "e") == 1
        assert sample(broker, "delaylog_sent_total", "c") is None
    assert broker.stop() == 0


def test_the_level_of_the_log_shows(broker: Broker) -> None:
    """An operator who upgrades sees when there is no way back."""
    broker.await_metric("delaylog_feature_level", KNOWN_LEVEL)
