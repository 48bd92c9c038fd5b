"""No number of a client leads to an effect that applying refuses: such a folder would not open.

Method: random commands on few keys with numbers at the edges of their ranges; what they log is
applied, and both keyspaces, and what a snapshot of the leader loads, hold the same.
"""

from __future__ import annotations

from io import BytesIO
from random import Random

import pytest

from delaylog.broker.keyspace.effects import apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.snapshots import load_snapshot, write_snapshot
from delaylog.broker.keyspace.values.stream import StreamValue
from tests.broker.keyspace.effects import NOW_MS, Pair
from tests.effort import tries

POOLS = {
    "n": "9223372036854775807 " * 6 + "0 1 -1 2 3 9223372036854775806 -9223372036854775808"
    " 9223372036854775808 18446744073709551615 4611686018427387904 9223370336854775807"
    " 1e308 1.5 inf -inf -0 1e-320 nan 0x1p1023",
    "i": "* $ > - + 0 0-1 1-1 1-2 2-0 3 5-* (1-1 18446744073709551615-*"
    " 18446744073709551615-18446744073709551615 9223372036854775808-9223372036854775808",
    "k": "a b",
    "s": "s s s t",
    "g": "g g g h",
    "c": "c d",
    "m": "m n",
    "end": "LEFT RIGHT",
    "cut": "MAXLEN MINID",
    "when": "NX XX GT LT",
    "span": "EX PX EXAT PXAT",
}
"""The words that a placeholder in braces stands for."""
FAMILIES = {
    "streams": """
XADD {s} {i} f {n}|XADD {s} * f v|XADD {s} 1-1 f v|XADD {s} {cut} {n} {i} f v
XADD {s} {cut} ~ {i} {i} f v|XTRIM {s} {cut} {n}|XTRIM {s} {cut} ~ {i}|XDEL {s} {i} {i}
XGROUP CREATE {s} {g} 0 MKSTREAM ENTRIESREAD {n}|XGROUP CREATE {s} {g} {i} ENTRIESREAD {n}
XGROUP SETID {s} {g} {i} ENTRIESREAD {n}|XGROUP CREATECONSUMER {s} {g} {c}|XGROUP DESTROY {s} {g}
XREADGROUP GROUP {g} {c} STREAMS {s} >|XREADGROUP GROUP {g} {c} COUNT {n} STREAMS {s} {i}
XREADGROUP GROUP {g} {c} NOACK STREAMS {s} >|XREADGROUP GROUP {g} {c} STREAMS {s} 0
XCLAIM {s} {g} {c} 0 {i} {i} RETRYCOUNT {n} FORCE|XCLAIM {s} {g} {c} {n} {i} IDLE {n} LASTID {i}
XCLAIM {s} {g} {c} 0 {i} {i}|XCLAIM {s} {g} {c} 0 {i} TIME {n}|XAUTOCLAIM {s} {g} {c} {n} {i}
XACK {s} {g} {i}|RENAME {s} {s}""",
    "strings": """
SET {k} {n}|SET {k} {n} {span} {n}|SET {k} {n} {when} KEEPTTL|SETEX {k} {n} v|PSETEX {k} {n} v
EXPIRE {k} {n}|PEXPIRE {k} {n} {when}|EXPIREAT {k} {n}|PEXPIREAT {k} {n} {when}|PERSIST {k}
INCR {k}|DECR {k}|INCRBY {k} {n}|DECRBY {k} {n}|INCRBYFLOAT {k} {n}|GETDEL {k}|RENAME {k} {k}""",
    "hashes": """
HSET {k} f {n}|HINCRBY {k} f {n}|HINCRBYFLOAT {k} f {n}|HDEL {k} f|EXPIRE {k} {n}""",
    "lists and sets": """
RPUSH {k} {n} {n}|LREM {k} {n} {n}|LTRIM {k} {n} {n}|LSET {k} {n} v|LPOP {k} {n}
LMOVE {k} {k} {end} {end}|SADD {s} {n} {n}|SPOP {s} {n}|DEL {k}|EXPIRE {s} {n}""",
    "sorted sets": """
ZADD {k} {n} {m}|ZADD {k} {when} CH {n} {m} {n} {m}|ZADD {k} {when} INCR {n} {m}|ZINCRBY {k} {n} {m}
ZPOPMIN {k} {n}|ZREMRANGEBYRANK {k} {n} {n}|ZREMRANGEBYSCORE {k} {n} {n}|PEXPIRE {k} {n}""",
}


def _line(random: Random, forms: list[str]) -> str:
    words = random.choice(forms).split()
    return " ".join(
        random.choice(POOLS[word[1:-1]].split()) if word.startswith("{") else word for word in words
    )


def _check_snapshot(pair: Pair) -> None:
    file = BytesIO()
    write_snapshot(pair.leader, 1, file.write)
    file.seek(0)
    pair.follower = Keyspace(Random(3))
    pair.follower.may_expire = False
    load_snapshot(pair.follower, file.read)
    pair.check()


@pytest.mark.parametrize("family", FAMILIES)
def test_edges(family: str) -> None:
    forms = FAMILIES[family].replace("|", "\n").strip().split("\n")
    for seed in range(tries(300)):
        random = Random(f"{family} {seed}")
        pair = Pair()
        for _ in range(60):
            pair.send(_line(random, forms))
        pair.check()
        _check_snapshot(pair)


READS = [
    "XREADGROUP GROUP g c STREAMS s >",
    "XREADGROUP GROUP g c NOACK STREAMS s >",
    "XREADGROUP GROUP g c STREAMS s 0",
    "XCLAIM s g d 0 1-1",
    "XCLAIM s g d 0 1-1 LASTID 9-9",
    "XAUTOCLAIM s g d 0 0",
]
MOST = "9223372036854775807"


@pytest.mark.parametrize("line", READS)
def test_full_counts_of_a_group_stay(line: str) -> None:
    pair = Pair()
    pair.send("XADD s 1-1 a b")
    pair.send("XADD s 1-2 a b")
    pair.send(f"XGROUP CREATE s g 0 ENTRIESREAD {MOST}")
    pair.send(f"XCLAIM s g c 0 1-1 FORCE RETRYCOUNT {MOST}")
    for _ in range(3):
        pair.send(line)
        pair.check()
    _check_snapshot(pair)
    assert MOST in pair.send("XINFO GROUPS s")
    if "NOACK" not in line and ">" not in line:
        assert MOST in pair.send("XPENDING s g - + 10")


@pytest.mark.parametrize("beyond", [2**63, 2**63 + 1_000])
def test_counts_that_went_beyond_are_read_back(beyond: int) -> None:
    """Effects and snapshots of an earlier build, which counted on."""
    pair = Pair()
    pair.send("XADD s 1-1 a b")
    pair.send("XGROUP CREATE s g 0")
    apply_effects(
        pair.leader,
        [
            [b"XGROUP", b"CREATECONSUMER", b"s", b"g", b"c", b"%d" % NOW_MS],
            b"XCLAIM s g c 0 1-1 TIME 5 RETRYCOUNT %d FORCE JUSTID LASTID 1-1".replace(
                b"%d", b"%d" % beyond
            ).split(),
            [b"XGROUP", b"SETID", b"s", b"g", b"1-1", b"ENTRIESREAD", b"%d" % beyond],
        ],
    )
    value = pair.leader.databases[0].values[b"s"]
    assert isinstance(value, StreamValue)
    group = value.groups[b"g"]
    assert group.entries_read == 2**63 - 1
    assert [pending.count for _, pending in group.pending.starting()] == [2**63 - 1]
    written = value.plain()
    written[3][0][1][1] = written[3][0][1][3][0][3] = beyond
    assert StreamValue.from_plain(written).plain() == value.plain()


@pytest.mark.parametrize(
    "line", ["XGROUP SETID s g 0 ENTRIESREAD", "XCLAIM s g c 0 1-1 RETRYCOUNT"]
)
def test_clients_may_not_give_counts_beyond(line: str) -> None:
    pair = Pair()
    pair.send("XADD s 1-1 a b")
    pair.send("XGROUP CREATE s g 0")
    assert pair.send(f"{line} 9223372036854775808").startswith("-ERR")
