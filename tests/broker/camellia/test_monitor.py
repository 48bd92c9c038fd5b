"""Topic info, monitor data and the metrics text."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from tests.waiting import await_that

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
STRETCHES = {
    "sizeOf0To1min": (0, MINUTE),
    "sizeOf1minTo10min": (MINUTE, 10 * MINUTE),
    "sizeOf10minTo30min": (10 * MINUTE, 30 * MINUTE),
    "sizeOf30minTo1hour": (30 * MINUTE, HOUR),
    "sizeOf1hourTo6hour": (HOUR, 6 * HOUR),
    "sizeOf6hourTo1day": (6 * HOUR, DAY),
    "sizeOf1dayTo7day": (DAY, 7 * DAY),
    "sizeOf7dayTo30day": (7 * DAY, 30 * DAY),
    "sizeOf30dayToInfinite": (30 * DAY, 300 * DAY),
}
KINDS = (
    "sendMsg pullMsg deleteMsg ackMsg getMsg triggerMsgReady triggerMsgEndLife triggerMsgTimeout"
)


def await_period(camellia: Any, topic: str, wanted: dict[str, int]) -> dict[str, Any]:
    """Add up the periods until a topic's counts are the wanted ones."""
    total = dict.fromkeys(KINDS.split(), 0)
    seen: dict[str, Any] = {}
    until = time.monotonic() + 60
    while not all(total[name] >= n for name, n in wanted.items()):
        assert time.monotonic() < until, (total, wanted)
        data = camellia.call("getMonitorData", "GET")["data"]
        if data != seen:
            seen = data
            for row in data["requestStatsList"]:
                if row["topic"] == topic:
                    for name in total:
                        total[name] += row[name]
        time.sleep(0.05)
    assert total == {**dict.fromkeys(total, 0), **wanted}
    return seen


def test_the_info_of_an_unknown_topic_is_zeros(camellia: Any, topic: str) -> None:
    assert camellia.info(topic) == {
        "topic": topic,
        "waitingQueueSize": 0,
        "waitingQueueInfo": dict.fromkeys(STRETCHES, 0),
        "readyQueueSize": 0,
        "ackQueueSize": 0,
    }


def test_nine_stretches_of_waiting_messages(camellia: Any, topic: str) -> None:
    wanted = {}
    for k, (name, (low, high)) in enumerate(STRETCHES.items()):
        wanted[name] = k + 1
        for j in range(k + 1):
            # Near both ends of the stretch, ten seconds off for the time the test takes.
            camellia.send(topic, delay=high - 1_000 if j % 2 else low + 40_000)
    for _ in range(3):
        camellia.send(topic)
    camellia.pull(topic)
    info = camellia.info(topic)
    assert info["waitingQueueInfo"] == wanted
    assert info["waitingQueueSize"] == sum(wanted.values())
    assert (info["readyQueueSize"], info["ackQueueSize"]) == (2, 1)
    listed = camellia.call("getTopicInfoList", "GET")["data"]
    assert [row for row in listed if row["topic"] == topic] == [info]


def test_the_monitor_counts_a_period(camellia: Any, topic: str) -> None:
    camellia.send(topic, msgId="a")
    camellia.send(topic, msgId="a")
    camellia.send(topic, msgId="b", delay=50)
    camellia.call("sendMsg", topic=topic, msg="", delayMillis=0)
    camellia.pull_one(topic)
    camellia.pull_one(topic, ackTimeoutMillis=100)
    assert camellia.pull_one(topic)["retry"] == 2
    camellia.ack(topic, "a")
    camellia.ack(topic, "b", done=False)
    camellia.get(topic, "b")
    camellia.get(topic, "nobody")
    camellia.delete(topic, "b")
    camellia.delete(topic, "b")
    await_period(
        camellia,
        topic,
        {
            "sendMsg": 3,
            "pullMsg": 3,
            "deleteMsg": 1,
            "ackMsg": 2,
            "getMsg": 1,
            "triggerMsgReady": 2,
            "triggerMsgEndLife": 1,
            "triggerMsgTimeout": 1,
        },
    )


def test_gaps_tell_how_late_messages_were(camellia: Any, topic: str) -> None:
    camellia.send(topic, delay=20)
    await_that(lambda: camellia.info(topic)["readyQueueSize"] == 1)
    time.sleep(0.5)
    (found,) = camellia.pull(topic)
    late = time.time_ns() // 1_000_000 - found["triggerTime"]
    data = await_period(camellia, topic, {"sendMsg": 1, "pullMsg": 1, "triggerMsgReady": 1})
    gaps = {row["topic"]: row for row in data["pullMsgTimeGapStatsList"]}
    if topic in gaps:
        assert gaps[topic]["count"] == 1
        assert gaps[topic]["max"] == gaps[topic]["avg"]
        assert 400 <= gaps[topic]["max"] <= late


def test_before_the_first_period_there_are_three_empty_lists(
    camellia: Any, start_broker: Callable[..., Any]
) -> None:
    broker = start_broker()
    there = type(camellia)(broker)
    there.send("t")
    assert there.call("getMonitorData", "GET") == {
        "code": 200,
        "data": {
            "requestStatsList": [],
            "pullMsgTimeGapStatsList": [],
            "readyQueueTimeGapStatsList": [],
        },
    }
    assert broker.stop() == 0


def test_the_monitor_string(camellia: Any, topic: str) -> None:
    camellia.send(topic, delay=5 * MINUTE)
    answer = camellia.raw("getMonitorString", "GET")
    assert answer.headers["Content-Type"].startswith("text/plain")
    data = json.loads(answer.body)
    assert data.keys() == {
        "requestStats",
        "pullMsgTimeGapStats",
        "readyQueueTimeGapStats",
        "topicInfoStats",
        "waitingQueueStats",
    }
    sizes = {"topic": topic, "waitingQueueSize": 1, "ackQueueSize": 0, "readyQueueSize": 0}
    assert sizes in data["topicInfoStats"]
    waiting = {**dict.fromkeys(STRETCHES, 0), "sizeOf1minTo10min": 1, "topic": topic}
    assert waiting in data["waitingQueueStats"]


def test_the_metrics_text(camellia: Any, start_broker: Callable[..., Any], topic: str) -> None:
    broker = start_broker(constants={"delaylog.broker.camellia.monitor.PERIOD_SECONDS": 0.2})
    there = type(camellia)(broker)
    name = 'a "b" \\c'
    there.send(name, delay=5 * MINUTE)
    until = time.monotonic() + 30
    wanted = 'request{topic="a \\"b\\" \\\\c", type="triggerMsgEndLife"} 0'
    while wanted not in (text := broker.call("GET", "/camellia/metrics").body.decode()):
        there.send(name, delay=5 * MINUTE)
        assert time.monotonic() < until, text
    lines = text.splitlines()
    sample = re.compile(r'[a-z_]+(\{\w+="([^"\\]|\\.)*"(, \w+="([^"\\]|\\.)*")*\})? -?[0-9.]+\Z')
    assert all(line.startswith("# ") or sample.match(line) for line in lines), text
    heads = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert heads == {
        "info",
        "uptime",
        "start_time",
        "memory_info",
        "cpu",
        "gc",
        "request",
        "pull_msg_time_gap",
        "ready_queue_time_gap",
        "topic_info",
    }
    stretch = [line for line in lines if 'type="size_1min_10min"' in line]
    assert int(stretch[0].split()[-1]) >= 1
    assert broker.stop() == 0
