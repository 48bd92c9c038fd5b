"""Dumps of redis-server 7.0.15 are restored, and what is damaged is refused.

Method: the dumps of the table were made by the real server, the first ones without LZF.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from random import Random

import pytest

from delaylog.broker.keyspace.dumps import BadDump, crc64, is_whole, load
from delaylog.broker.keyspace.keyspace import HashValue, ListValue, SetValue, Value
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from tests.broker.keyspace.effects import NOW_MS, Pair
from tests.broker.keyspace.snapshots.contents import plain


def sorted_set(**scores: float) -> SortedSetValue:
    value = SortedSetValue()
    for member, score in scores.items():
        value.put(member.encode(), score)
    return value


WHOLE: list[tuple[Value, str]] = [
    (b"v", "0001760a009108ceb219388ace"),
    (b"", "00000a005d9b5c400f7fa2da"),
    (b"-5", "00c0fb0a0049c4c6f4d7263f68"),
    (b"300", "00c12c010a00954261f265825c10"),
    (b"-70000", "00c290eefeff0a002875de7b13eb2800"),
    (b"12345678901", "000b31323334353637383930310a00304e52d727176510"),
    (
        ListValue(
            [b"a", b"1", b"-1", b"200", b"-5000", b"70000", b"-9000000", b"5000000000", b"01"]
        ),
        "1201022f2f00000009008161020101dfff02c0c802f178ec03f270110104f3c0ab76ff05f400f2052a010000000982303103ff0a006339fd91fed4183e",
    ),
    (
        ListValue([b"x" * 100, b"y" * 5]),
        "1201024075750000000200e064787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878786685797979797906ff0a00e281891ab131753b",
    ),
    (
        SetValue([b"1", b"-2", b"300"]),
        "0b0e0200000003000000feff01002c010a005b0aa862f794600a",
    ),
    (
        SetValue([b"1", b"70000"]),
        "0b10040000000200000001000000701101000a002735436efd6656c4",
    ),
    (
        SetValue([b"1", b"5000000000"]),
        "0b180800000002000000010000000000000000f2052a010000000a0054f5a26ae707b5fc",
    ),
    (
        HashValue({b"f": b"1", b"g": b"x"}),
        "10121200000004008166020101816702817802ff0a00f2c5d73b5b9bc35a",
    ),
    (
        HashValue({b"f": b"x" * 65}),
        "04010166404178787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878780a00242c79d233cc1ded",
    ),
    (
        sorted_set(a=1.5, b=-3.0, c=inf),
        "111d1d0000000600816202dffd0281610283312e350481630283696e6604ff0a00940d89edfbff19ab",
    ),
    (
        sorted_set(a=1.5, **{"m" * 65: 2.0}),
        "050240416d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d00000000000000400161000000000000f83f0a000545dbe36cf2ec40",
    ),
    (b"abc" * 40, "00c30b40780361626361e069020162630a00c494a1702ae23e06"),
    (
        ListValue([b"z" * 1_000]),
        "120102c31a43f308f30300000100e3e87ae0ff00e0ff00e0ff00e0c6000207eaff0a00885796759549e36e",
    ),
    (SetValue([b"word"]), "020104776f72640a0079c2eda6bbfa0bc9"),
    (
        HashValue({b"f": b"x" * 65}),
        "04010166c3094041017878e034000178780a00f106d1071b265c18",
    ),
]


@pytest.mark.parametrize(("value", "payload"), WHOLE)
def test_reading(value: Value, payload: str) -> None:
    data = bytes.fromhex(payload)
    assert is_whole(data)
    assert plain(load(data)) == plain(value)


@pytest.mark.parametrize(("value", "payload"), WHOLE)
def test_no_damage_is_worse_than_a_refusal(value: Value, payload: str) -> None:
    data, random = bytearray.fromhex(payload), Random(1)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[random.randrange(len(data) - 10)] = random.choice((0, 1, 127, 128, 255, 200))
        # As if whoever made it had also made the sum of it.
        with suppress(BadDump):
            load(bytes(damaged[: random.randint(10, len(damaged))]))
        assert damaged == data or not is_whole(bytes(damaged))


def test_sums() -> None:
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA
    data = Random(3).randbytes(50_000)
    for size in (16_384, 16_385, 20_000, 50_000):
        first = crc64(data[:10_000])
        assert crc64(data[:size]) == crc64(data[10_000:size], first)


def test_restore() -> None:
    pair = Pair()
    payload = bytes.fromhex(WHOLE[6][1])
    assert pair.call(b"RESTORE", b"l", b"0", payload) == b"+OK\r\n"
    assert pair.effects[-1] == [b"RESTORE", b"l", b"0", payload, b"REPLACE", b"ABSTTL"]
    assert pair.call(b"RESTORE", b"l", b"0", payload)[:9] == b"-BUSYKEY "
    assert pair.call(b"RESTORE", b"l", b"50", payload, b"replace") == b"+OK\r\n"
    assert pair.leader.databases[0].expires[b"l"] == NOW_MS + 50
    assert plain(pair.leader.databases[0].values[b"l"]) == plain(WHOLE[6][0])
    pair.check()
    # Its time has come already.
    assert pair.call(b"RESTORE", b"l", b"5", payload, b"REPLACE", b"ABSTTL") == b"+OK\r\n"
    assert pair.effects[-1] == [b"DEL", b"l"]
    pair.check()
