"""Rounds of everything that clients do leave no objects behind.

Each round makes topics and groups, sends with ids, keys and tags, settles all of it in every way,
removes what it made, and moves the clock over the retention. What lives is counted after the
collector has run, from a round on in which caches are warm.
"""

from __future__ import annotations

import gc
from datetime import timedelta

from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from delaylog.broker.engine.state import Activity

WARM, ROUNDS = 20, 45
HOUR_MS = 3_600_000


def _round(broker: EmbeddedBroker[ManualClock], number: int) -> None:
    topic = f"t{number}"
    broker.send("steady", "first", id=f"i{number}", key=f"k{number}", tags=["a"])
    broker.put_topic(topic)
    broker.put_group(topic, "other")
    for each in range(10):
        broker.send(
            topic,
            "x",
            id=f"{number}-{each}",
            key=f"k{each % 3}",
            delay=timedelta(milliseconds=each),
        )
    later = [broker.send(topic, "later", delay=timedelta(minutes=1)).id for _ in range(5)]
    for one in later:
        broker.cancel(topic, one)
    broker.clock.advance(seconds=1)
    for name in (topic, "steady"):
        while found := broker.receive(name, max=4, lease=timedelta(milliseconds=12 * HOUR_MS)):
            failed = [one for one in found[:1] if one.attempts == 1]
            if failed:
                broker.nack(failed, delay=timedelta(0))
            broker.ack([one for one in found if one not in failed])
    broker.receive(topic, group="other", max=3)
    broker.drop_group(topic, "other")
    broker.drop_topic(topic)
    broker.clock.advance(hours=3)


def test_rounds_of_everything_leave_nothing_behind(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    counts = []
    for number in range(ROUNDS):
        _round(broker, number)
        gc.collect()
        counts.append(len(gc.get_objects()))
    activities = [x for x in gc.get_objects() if isinstance(x, Activity)]
    assert len(activities) < 10
    # Files of hours come and go with retention, so single rounds differ by some 250 objects.
    assert min(counts[-9:]) - min(counts[WARM : WARM + 9]) < 5 * (ROUNDS - WARM), counts
