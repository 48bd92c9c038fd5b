"""Snapshots: what is read is what was written, and no flipped bit passes.

Method: keyspaces of every kind of value, small and in parts, through bytes in memory.
"""

from __future__ import annotations

import io
from random import Random
from typing import Any

import pytest

from delaylog.broker.keyspace import snapshots
from delaylog.broker.keyspace.keyspace import TYPE_NAMES, HashValue, Keyspace, ListValue, SetValue
from delaylog.broker.keyspace.replies import encode
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.snapshots import (
    KINDS,
    ChunkCheck,
    SnapshotError,
    Summary,
    load_snapshot,
    write_snapshot,
)
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue
from tests.broker.keyspace.effects import NOW_MS
from tests.broker.keyspace.snapshots.contents import contents_of


def checked(raw: bytes) -> Summary:
    """What a check of a whole snapshot counts. Raises SnapshotError."""
    check = ChunkCheck(io.BytesIO(raw).read)
    while check.next() is not None:
        pass
    return check.summary


def zset(pairs: dict[bytes, float]) -> SortedSetValue:
    value = SortedSetValue()
    for member, score in pairs.items():
        value.put(member, score)
    return value


def filled(size: int = 3) -> Keyspace:
    """A bit of everything; collections of so many elements."""
    keyspace = Keyspace(Random(1))
    first, other = keyspace.databases[0], keyspace.databases[9]
    first.values[b"string"] = b"\0\xff text"
    first.values[b""] = b""
    first.values[b"hash"] = HashValue({b"f%d" % k: b"v%d" % k for k in range(size)})
    first.values[b"list"] = ListValue(b"item %d" % k for k in range(size))
    other.values[b"set"] = SetValue(b"member %d" % k for k in range(size))
    scores = {b"m%d" % k: (k * 7 % 13) / 2 for k in range(size)}
    other.values[b"zset"] = zset(scores | {b"low": float("-inf"), b"high": float("inf")})
    other.values[b"stream"] = stream = StreamValue()
    stream.append(1, (b"f", b"v"))
    other.values[b"soon"] = b"x"
    other.set_expiry(b"soon", 1_700_000_000_000)
    other.set_expiry(b"zset", 1)
    keyspace.libraries[b"lib"] = b"#!lua name=lib\n"
    return keyspace


def written(keyspace: Keyspace, position: int = 4_711) -> bytes:
    out = io.BytesIO()
    summary = write_snapshot(keyspace, position, out.write)
    raw = out.getvalue()
    assert summary.size == len(raw)
    assert checked(raw) == summary
    return raw


def loaded(raw: bytes) -> Keyspace:
    keyspace = Keyspace(Random(2))
    keyspace.stop_expiring()
    load_snapshot(keyspace, io.BytesIO(raw).read)
    return keyspace


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("part_bytes", [1, 100, 1 << 20])
def test_everything_comes_back(size: int, part_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PART_BYTES", part_bytes)
    keyspace = filled(size)
    assert contents_of(loaded(written(keyspace))) == contents_of(keyspace)


def test_nothing_is_a_snapshot_too() -> None:
    keyspace = loaded(written(Keyspace(Random(1))))
    assert not any(database.values for database in keyspace.databases)


def test_memory_is_bounded_by_parts() -> None:
    """No chunk is much larger than a part, however large a collection is."""
    sizes: list[int] = []
    keyspace = filled(200_000)
    out = io.BytesIO()
    write_snapshot(keyspace, 1, lambda block: sizes.append(len(block)) or out.write(block))
    assert max(sizes) < 2 * snapshots.PART_BYTES
    assert len(sizes) > 20


def test_every_kind_of_value_is_known() -> None:
    """A kind that has no place in a file would be found when the first snapshot is due."""
    assert KINDS.keys() == TYPE_NAMES.keys()
    assert len({kind.number for kind in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize("large", [False, True])
def test_what_is_written_later_is_stored_the_same(large: bool) -> None:
    """A sorted set that outgrew its small form keeps -0, after recovery too."""
    keyspace = Keyspace(Random(1))
    before = [b"ZADD z 1 a"]
    if large:
        before += [b"ZADD z 1 " + b"m" * 65, b"ZREM z " + b"m" * 65]
    answers(keyspace, before)
    other = loaded(written(keyspace))
    after = [b"ZADD z -0 zero", b"ZSCORE z zero", b"ZINCRBY z -0 zero"]
    told = answers(other, after)
    assert answers(keyspace, after) == told
    assert told[1] == (b"$2\r\n-0\r\n" if large else b"$1\r\n0\r\n")


def answers(keyspace: Keyspace, lines: list[bytes]) -> list[bytes]:
    """Run lines, each in a reply."""
    executor = Executor(keyspace)
    session = executor.connect(NOW_MS)
    return [encode(executor.execute(session, line.split()), 2) for line in lines]


def test_any_flipped_bit_is_found() -> None:
    raw = written(filled(2))
    for bit in range(len(raw) * 8):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        for read in (loaded, checked):
            with pytest.raises(SnapshotError) as caught:
                read(bytes(bad))
            assert caught.value.offset <= bit // 8


def test_what_is_missing_or_too_much_is_found() -> None:
    raw = written(filled(2))
    for size in range(len(raw)):
        with pytest.raises(SnapshotError):
            loaded(raw[:size])
    for more in (b"\0", raw):
        with pytest.raises(SnapshotError):
            loaded(raw + more)


def sealed(*chunks: list[Any]) -> bytes:
    blocks = [block for n, c in enumerate(chunks, 1) for block in snapshots.encode_chunk(n, c)]
    return snapshots.encode_header(1) + b"".join(blocks)


@pytest.mark.parametrize(
    "chunks",
    [
        [[2, b"more of nothing"], [4, 0, 0]],
        [[9, 0], [4, 0, 0]],
        [[1, 99, 1, [b"k"], [b"v"], None], [4, 1, 0]],
        [[1, 0, 77, [b"k"], [b"v"], None], [4, 1, 0]],
        [[1, 0, 1, [b"k", b"l"], [b"v"], None], [4, 1, 0]],
        [[1, 0, 1, [b"k"], [b"v"], None], [2, b"x"], [4, 1, 0]],
        [[1, 0, 1, [b"k"], [b"v"], None], [4, 2, 0]],
        [[3, {b"lib": b"x"}], [4, 0, 0]],
        [[4]],
    ],
)
def test_sealed_nonsense_is_refused(chunks: list[list[Any]]) -> None:
    with pytest.raises(SnapshotError):
        loaded(sealed(*chunks))


def test_the_bytes_of_a_known_one() -> None:
    """The format is deliberate."""
    keyspace = Keyspace(Random(1))
    keyspace.databases[2].values[b"k"] = b"v"
    keyspace.databases[2].set_expiry(b"k", 7)
    assert written(keyspace, 258).hex() == KNOWN


KNOWN = (
    "444c4b53"
    "0100"
    "0000"
    "0201000000000000"
    "00000000"
    "09d63e69"
    "0e000000"
    "15e5aa2a"
    "0100000000000000"
    "96010201"
    "91c4016b"
    "91c40176"
    "9107"
    "04000000"
    "fcedb357"
    "0200000000000000"
    "93040100"
)
