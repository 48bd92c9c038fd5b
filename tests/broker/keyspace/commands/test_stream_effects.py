"""What streams log brings about the same elsewhere: entries, groups, pending lists, counters.

Method: random lines with time going on, on few keys and small ids; after each the two keyspaces
are compared, and so is what a snapshot of a stream gives back.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgpack
import pytest

from delaylog.broker.keyspace.values.stream import StreamValue
from tests.broker.keyspace.effects import NOW_MS, Pair
from tests.effort import tries

LINES = [
    "XADD K * f N",
    "XADD K * f N",
    "XADD K * f N g N",
    "XADD K I-* f N",
    "XADD K I-N f N",
    "XADD K MAXLEN ~ N * f N",
    "XADD K MAXLEN N * f N",
    "XADD K MINID ~ I LIMIT 3 * f N",
    "XADD K NOMKSTREAM MINID = I * f N",
    "XDEL K I-0 I-1",
    "XDEL K E E",
    "XTRIM K MAXLEN ~ N",
    "XTRIM K MAXLEN N",
    "XTRIM K MINID E",
    "XGROUP CREATE K G 0 MKSTREAM",
    "XGROUP CREATE K G $ ENTRIESREAD N",
    "XGROUP SETID K G E",
    "XGROUP SETID K G 0 ENTRIESREAD N",
    "XGROUP CREATECONSUMER K G C",
    "XGROUP DELCONSUMER K G C",
    "XREADGROUP GROUP G C COUNT N STREAMS K >",
    "XREADGROUP GROUP G C COUNT N STREAMS K >",
    "XREADGROUP GROUP G C NOACK STREAMS K >",
    "XREADGROUP GROUP G C STREAMS K 0",
    "XREADGROUP GROUP G C COUNT N STREAMS K K > E",
    "XACK K G E E",
    "XCLAIM K G C 0 E E",
    "XCLAIM K G C N E JUSTID",
    "XCLAIM K G C 0 E E FORCE IDLE N",
    "XCLAIM K G C 0 E RETRYCOUNT N LASTID E",
    "XAUTOCLAIM K G C N 0 COUNT 3",
    "XAUTOCLAIM K G C 0 E JUSTID",
    "XREAD STREAMS K 0",
    "RENAME K K",
]
RARE = ["DEL K", "XGROUP DESTROY K G"]


def group_plain(value: StreamValue) -> Any:
    """All of a stream, and of its groups what does not depend on when somebody looked."""
    ids, added, nodes, _ = value.plain()
    groups = [
        (
            name,
            group.last_id,
            group.entries_read,
            set(group.consumers),
            [(n, p.consumer.name, p.delivered_ms, p.count) for n, p in group.pending.starting()],
            {n: [i for i, _ in c.pending.starting()] for n, c in group.consumers.items()},
        )
        for name, group in sorted(value.groups.items())
    ]
    return ids, added, nodes, groups


@pytest.mark.parametrize("seed", range(tries(12)))
def test_effects(seed: int) -> None:
    random, pair = Random(seed), Pair()
    now_ms = NOW_MS
    refused = 0
    for _ in range(600):
        now_ms += random.choice([0, 1, 5])
        pair.executor.begin(now_ms)
        line = random.choice(LINES) if random.random() < 0.98 else random.choice(RARE)
        key = random.choice("ab")
        stream = pair.leader.databases[0].values.get(key.encode())
        known = [b"1-1"]
        if isinstance(stream, StreamValue):
            known += [b"%d-%d" % (n >> 64, n & 2**64 - 1) for n, _ in stream.entries()]
        words = []
        for word in line.split():
            for mark, chosen in (
                ("K", key if "RENAME" not in line else random.choice("ab")),
                ("G", random.choice("gh")),
                ("C", random.choice("xyz")),
                ("N", str(random.randint(0, 9))),
                ("I", str(random.randint(0, 20))),
                ("E", random.choice(known).decode()),
            ):
                if word in (mark, f"{mark}-*", f"{mark}-0", f"{mark}-1", f"{mark}-N"):
                    word = word.replace(mark, chosen, 1).replace("N", chosen)
                    break
            words.append(word)
        refused += pair.send(" ".join(words)).startswith("-")
        for one, other in zip(pair.leader.databases, pair.follower.databases, strict=True):
            assert one.values.keys() == other.values.keys()
            for name, value in one.values.items():
                followed = other.values[name]
                assert isinstance(value, StreamValue)
                assert isinstance(followed, StreamValue)
                assert group_plain(value) == group_plain(followed), words
                packed: bytes = msgpack.packb(value.plain())
                again = StreamValue.from_plain(msgpack.unpackb(packed))
                assert again.plain() == value.plain()
                assert len(again) == len(value) == sum(1 for _ in value.entries_back())
    assert refused < 450
