"""Scans give everything that stays; cursors are read as strtoul reads them.

Method: collections are scanned with changes in between; the texts of cursors were tried on
redis-server 7.0.15.
"""

from __future__ import annotations

import pytest

from delaylog.broker.keyspace.commands.arguments import (
    SCAN_OPTIONS,
    SMALL_MAX,
    read_options,
    to_cursor,
)
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.scans import Scans
from tests.broker.keyspace.effects import Pair


def names(first: int, end: int) -> dict[bytes, None]:
    return {b"%d" % number: None for number in range(first, end)}


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        (b"0", 0),
        (b"", 0),
        (b"007", 7),
        (b"+7", 7),
        (b"7\0x", 7),
        (b"-1", 2**64 - 1),
        (b"0" * 5_000 + b"1", 1),
        (b"18446744073709551615", 2**64 - 1),
    ],
)
def test_cursors(text: bytes, cursor: int) -> None:
    assert to_cursor(text) == cursor


@pytest.mark.parametrize(
    "text", [b" 1", b"1 ", b"+", b"-", b"x", b"1.0", b"18446744073709551616", b"1" * 5_000]
)
def test_no_cursors(text: bytes) -> None:
    with pytest.raises(CommandError, match="ERR invalid cursor"):
        to_cursor(text)


def test_options() -> None:
    options = read_options([b"COUNT", b"7", b"MATCH", b"a*"], 0, SCAN_OPTIONS)
    assert options.value("count") == 7
    assert options.value("match")(b"ab")
    for wrong in ([b"COUNT"], [b"COUNT", b"0"], [b"TYPE", b"list"], [b"x", b"y"]):
        with pytest.raises(CommandError, match="ERR syntax error"):
            read_options(wrong, 0, SCAN_OPTIONS)


def test_what_stays_is_given_once() -> None:
    scans, owner = Scans(0), names(0, 100)
    cursor, got = scans.read(owner, 0, 0, 10)
    seen = list(got)
    changes = 0
    while cursor:
        del owner[b"%d" % (99 - changes)]
        owner[b"new %d" % changes] = None
        changes += 1
        cursor, got = scans.read(owner, changes, cursor, 10)
        seen += got
    assert len(seen) == len(set(seen)) == 100
    assert len(scans) == 0


def test_an_unknown_cursor_begins_again() -> None:
    scans, owner, other = Scans(0), names(0, 100), names(100, 200)
    cursor, _ = scans.read(owner, 0, 0, 10)
    for dirty in range(64):
        scans.read(other, dirty, 0, 10)
    assert len(scans) == 64
    following, got = scans.read(owner, 99, cursor, 10)
    assert following not in {0, cursor}
    assert got == list(owner)[:10]
    # One of another collection is unknown, too.
    assert scans.read(other, 99, following, 10)[1] == list(other)[:10]
    assert scans.read(owner, 99, following, 10)[1] == list(owner)[10:20]


def test_scans_without_a_change_between_share_a_snapshot() -> None:
    scans, owner = Scans(0), names(0, 30)
    first, _ = scans.read(owner, 5, 0, 10)
    second, _ = scans.read(owner, 5, 0, 10)
    assert first == second
    assert len(scans) == 1
    for _ in range(2):
        cursor = first
        while cursor:
            cursor, _ = scans.read(owner, 5, cursor, 10)
    assert len(scans) == 0


def test_few_huge_snapshots_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.broker.keyspace.scans._NAMES_MAX", 250)
    scans, owner = Scans(0), names(0, 100)
    for dirty in range(10):
        scans.read(owner, dirty, 0, 10)
    assert len(scans) == 4


@pytest.mark.parametrize(
    ("asked", "filled"),
    [
        (b"SCAN", b"MSET %d x"),
        (b"HSCAN k", b"HSET k %d x"),
        (b"SSCAN k", b"SADD k %d"),
        (b"ZSCAN k", b"ZADD k 0.5 %d"),
    ],
)
def test_many_names_come_in_pages(asked: bytes, filled: bytes) -> None:
    pair = Pair()
    many = names(0, SMALL_MAX + 1)
    for name in many:
        pair.executor.execute(pair.session, filled.replace(b"%d", name).split())
    cursor, sizes, seen = b"0", list[int](), set[bytes]()
    while not sizes or cursor != b"0":
        argv = [*asked.split(), cursor, b"COUNT", b"100"]
        cursor, got = pair.executor.execute(pair.session, argv)
        page = [name for name in got if name in many]
        sizes.append(len(page))
        seen |= {*page}
    assert sizes == [100] * 5 + [13]
    assert seen == {*many}
