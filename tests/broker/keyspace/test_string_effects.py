"""What strings and keys log brings about the same elsewhere, whatever was done and when.

Method: random lines with time going on, on few keys; after each the two keyspaces are compared.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.keyspace.effects import NOW_MS, Pair
from tests.effort import tries

LINES = [
    "SET K V",
    "SET K V NX GET",
    "SET K V XX KEEPTTL",
    "SET K V PX T",
    "SET K V EXAT 1",
    "GETSET K V",
    "GETDEL K",
    "GETEX K PX T",
    "GETEX K PXAT 1",
    "GETEX K PERSIST",
    "MSET K V K V",
    "MSETNX K V K V",
    "APPEND K V",
    "SETRANGE K 3 V",
    "INCRBY K 7",
    "INCRBYFLOAT K 0.1",
    "DEL K K",
    "PEXPIRE K T",
    "EXPIRE K 1 GT",
    "EXPIRE K -1",
    "PERSIST K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K REPLACE",
    "COPY K K DB 1",
    "MOVE K 1",
    "SWAPDB 0 1",
    "SELECT 1",
    "SELECT 0",
    "GET K",
    "FLUSHDB",
]


@pytest.mark.parametrize("seed", range(tries(6)))
def test_effects(seed: int) -> None:
    random, pair = Random(seed), Pair()
    now_ms = NOW_MS
    given = {
        "K": lambda: random.choice("abcd"),
        "V": lambda: random.choice(["x", "5", "-1", "1.5", "longer"]),
        "T": lambda: str(random.randint(1, 60)),
    }
    for _ in range(1_500):
        now_ms += random.randint(0, 8)
        pair.executor.begin(now_ms)
        line = random.choice(LINES)
        if line == "FLUSHDB" and random.random() < 0.8:
            continue
        pair.send(" ".join(given[word]() if word in given else word for word in line.split()))
        pair.check()
    assert pair.leader.expired_keys > 20
