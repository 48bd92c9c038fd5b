"""Rounds of everything that clients do leave no objects behind.

Each round makes topics and groups, sends with ids, keys and tags, settles all of it in every way,
removes what it made, and moves the clock over the retention. What lives is counted after the
collector has run, from a round on in which caches are warm. The rounds have a process of their own,
since what other tests have left running makes objects too.
"""

from __future__ import annotations

import gc
import json
import sys
from datetime import timedelta
from pathlib import Path

import delaylog
from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from delaylog.broker.engine.late import timeline
from delaylog.broker.engine.send.sends import _decision
from delaylog.broker.engine.state import Activity
from tests.programs import run_program

ROOT = Path(__file__).parents[3]
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


def _grow(folder: str) -> None:
    """Print the objects after each round, and the activities that are left."""
    # What is remembered on purpose, up to a bound, would grow until it is full.
    timeline.NODE_SPANS_MAX = 8
    counts = []
    with delaylog.open(folder, clock=ManualClock(), fsync="never") as broker:
        for number in range(ROUNDS):
            _round(broker, number)
            _decision.cache_clear()
            gc.collect()
            counts.append(len(gc.get_objects()))
        activities = sum(isinstance(x, Activity) for x in gc.get_objects())
    print(json.dumps([counts, activities]))


def test_rounds_of_everything_leave_nothing_behind(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path[:0] = {[str(ROOT / 'src'), str(ROOT)]}\n"
        "from tests.broker.embedded.test_growth import _grow; _grow(sys.argv[1])"
    )
    done = run_program(sys.executable, "-P", "-c", program, tmp_path / "f", check=True)
    counts, activities = json.loads(done.stdout)
    assert activities < 10
    # Files of hours come and go with retention, so single rounds differ by some 250 objects.
    assert min(counts[-9:]) - min(counts[WARM : WARM + 9]) < 2 * (ROUNDS - WARM), counts
