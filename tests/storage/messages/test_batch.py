"""The bulk body: what is encoded comes back, and what is hostile is a BatchError, nothing else.

Method: round trips under Hypothesis; tables of single faults; truncation and bit flips at every
byte; arbitrary bytes and arbitrary msgpack.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.contract.members import BatchError
from delaylog.storage.messages.batch import (
    BatchRanges,
    MessageBatch,
    TextColumn,
    decode_send,
    encode_send,
    expand,
    join_batches,
    with_wire,
)
from tests.effort import tries

ROWS_MAX = 100
NUMBERS = {
    "ttl_ms": (-(2**63), 2**63 - 1),
    "priority": (-(2**31), 2**31 - 1),
    "max_retry": (0, 2**16 - 1),
}
TIMES = {"deliver_at_ms": (-(2**63), 2**63 - 1), "delay_ms": (-(2**63), 2**63 - 1)}
DTYPES = {"priority": "<i4", "max_retry": "<u2"}
TEXTS = {"body": "bodies", "id": "id", "key": "key", "tags": "tags", "headers": "headers"}


def send_of(**changes: Any) -> bytes:
    """A good body of three rows with members changed; None drops one."""
    fields: dict[str, Any] = {
        "v": 1,
        "n": 3,
        "delay_ms": 5,
        "body_size": np.array([1, 2, 3], "<u4").tobytes(),
        "bodies": b"abbccc",
    }
    fields.update(changes)
    return bytes(msgpack.packb({k: v for k, v in fields.items() if v is not None}))


@st.composite
def batches(draw: st.DrawFn, n_max: int = 8) -> tuple[int, dict[str, Any]]:
    n = draw(st.integers(1, n_max))
    columns: dict[str, Any] = {"n": n}
    names = [draw(st.sampled_from(sorted(TIMES)))]
    names += draw(st.lists(st.sampled_from(sorted(NUMBERS)), unique=True))
    for name in names:
        low, high = (TIMES | NUMBERS)[name]
        number = st.integers(low, high)
        if draw(st.booleans()):
            columns[name] = draw(number)
        else:
            values = draw(st.lists(number, min_size=n, max_size=n))
            columns[name] = np.array(values, DTYPES.get(name, "<i8"))
    for name in draw(st.lists(st.sampled_from(sorted(TEXTS)), unique=True)):
        if draw(st.booleans()):
            size = draw(st.integers(0, 5))
            columns[f"{name}_size"] = size
            total = size * n
        else:
            sizes = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
            columns[f"{name}_size"] = np.array(sizes)
            total = sum(sizes)
        columns[TEXTS[name]] = draw(st.binary(min_size=total, max_size=total))
    if draw(st.booleans()):
        columns["producer"] = draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9))
        columns["sequence"] = draw(st.integers(0, 2**63 - 1))
    if draw(st.booleans()):
        columns["merge"] = draw(st.sampled_from(["keep", "replace", "reject"]))
    return n, columns


def same(found: Any, given_: Any, n: int) -> bool:
    return bool((expand(found, n) == expand(given_, n)).all())


@given(batches())
@settings(max_examples=tries(150), deadline=None)
def test_round_trip(made: tuple[int, dict[str, Any]]) -> None:
    n, columns = made
    wire = encode_send(columns)
    batch = decode_send(wire, rows_max=ROWS_MAX)
    assert batch.n == n
    assert batch.wire == wire
    for name in (*TIMES, *NUMBERS):
        found = getattr(batch, name)
        assert (found is None) == (name not in columns)
        assert found is None or same(found, columns[name], n)
    for name, block in TEXTS.items():
        column: TextColumn = getattr(batch, name)
        sizes = expand(columns.get(f"{name}_size", 0), n)
        assert (column.sizes(n) == sizes).all()
        ends = np.cumsum(sizes).tolist()
        raw = columns.get(block, b"")
        parts = [raw[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        assert column.values(n) == parts
        assert column.empty == (raw == b"")
    assert batch.producer == columns.get("producer")
    assert batch.sequence == columns.get("sequence")
    assert batch.merge == columns.get("merge")


def without_producer(columns: dict[str, Any]) -> MessageBatch:
    kept = {k: v for k, v in columns.items() if k not in ("producer", "sequence")}
    return decode_send(encode_send(kept), rows_max=ROWS_MAX)


def rows_of(batch: MessageBatch) -> list[tuple[Any, ...]]:
    """Each row's values."""
    columns = [getattr(batch, name) for name in (*TIMES, *NUMBERS)]
    numbers = [[None] * batch.n if c is None else expand(c, batch.n).tolist() for c in columns]
    texts = [getattr(batch, name).values(batch.n) for name in TEXTS]
    return list(zip(*numbers, *texts, strict=True))


def part_of(batch: MessageBatch, rows: slice, *, arrays: bool) -> MessageBatch:
    """Some rows of a batch; `arrays` = with columns of arrays only."""
    fields: dict[str, Any] = {"n": len(range(batch.n)[rows])}
    for name in (*TIMES, *NUMBERS):
        column = getattr(batch, name)
        if column is not None:
            arrays_needed = arrays or not isinstance(column, int)
            fields[name] = expand(column, batch.n)[rows] if arrays_needed else column
    for name, block in TEXTS.items():
        values = getattr(batch, name).values(batch.n)[rows]
        fields[block] = b"".join(values)
        fields[f"{name}_size"] = np.array([len(value) for value in values])
    if batch.merge is not None:
        fields["merge"] = batch.merge
    return decode_send(encode_send(fields), rows_max=ROWS_MAX)


@given(batches(), st.data())
@settings(max_examples=tries(150), deadline=None)
def test_parts_of_one_shape_are_joined(
    made: tuple[int, dict[str, Any]], data: st.DataObject
) -> None:
    """What comes out is what one sender would have sent, the log's bytes included."""
    n, columns = made
    whole = without_producer(columns)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, n - 1)) if n > 1 else st.just(set()))), n]
    parts = [
        part_of(whole, slice(start, end), arrays=data.draw(st.booleans()))
        for start, end in pairwise(cuts)
    ]
    alike = [part for part in parts if part.shape == parts[0].shape]
    joined = join_batches(alike)
    wanted = [row for part in alike for row in rows_of(part)]
    assert rows_of(joined) == wanted
    assert rows_of(decode_send(joined.wire, rows_max=ROWS_MAX)) == wanted
    assert (joined.merge, joined.producer) == (whole.merge, None)


@given(batches(30), st.data())
def test_ranges_have_exactly_their_rows(
    made: tuple[int, dict[str, Any]], data: st.DataObject
) -> None:
    """Whatever the form of each column."""
    n, columns = made
    batch = without_producer(columns)
    first = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(first + 1, n))
    part = BatchRanges(batch).take(first, stop)
    assert (part.n, part.merge) == (stop - first, batch.merge)
    assert rows_of(part) == rows_of(batch)[first:stop]


HOSTILE = {
    "sizes too large": send_of(body_size=np.array([1, 2, 4], "<u4").tobytes()),
    "sizes too small": send_of(body_size=np.array([1, 1, 3], "<u4").tobytes()),
    "sizes that wrap": send_of(body_size=np.array([2**32 - 1, 6, 1], "<u4").tobytes()),
    "scalar size times n": send_of(body_size=3),
    "negative size": send_of(body_size=-2),
    "huge size": send_of(body_size=2**32),
    "sizes of another n": send_of(body_size=np.array([1, 5], "<u4").tobytes()),
    "sizes of odd bytes": send_of(body_size=b"\1\2\3"),
    "sizes as a list": send_of(body_size=[1, 2, 3]),
    "sizes as a float": send_of(body_size=2.0),
    "sizes as text": send_of(body_size="2"),
    "sizes as a bool": send_of(body_size=True, bodies=b"abc"),
    "sizes without bodies": send_of(bodies=None),
    "bodies without sizes": send_of(body_size=None),
    "bodies as text": send_of(bodies="abbccc"),
    "bodies as a list": send_of(bodies=[b"a", b"bb", b"ccc"]),
    "bodies as a number": send_of(bodies=6),
    "n missing": send_of(n=None),
    "n zero": send_of(n=0),
    "n negative": send_of(n=-3),
    "n too large": send_of(n=ROWS_MAX + 1),
    "n enormous": send_of(n=2**63, body_size=0, bodies=b""),
    "n as a float": send_of(n=3.0),
    "n as a bool": send_of(n=True, body_size=6),
    "n as bytes": send_of(n=b"\3"),
    "v missing": send_of(v=None),
    "v of the future": send_of(v=2),
    "v as a bool": send_of(v=True),
    "v as a list": send_of(v=[1]),
    "no time": send_of(delay_ms=None),
    "two times": send_of(deliver_at_ms=5),
    "time as text": send_of(delay_ms="5"),
    "time as a float": send_of(delay_ms=5.5),
    "time too large": send_of(delay_ms=2**63),
    "times of another n": send_of(delay_ms=b"\0" * 16),
    "unknown column": send_of(colour=1),
    "unknown column with a long name": send_of(**{"x" * 5_000: 1}),
    "priority too large": send_of(priority=2**31),
    "max_retry negative": send_of(max_retry=-1),
    "ids of wrong size": send_of(id_size=2, id=b"aabb"),
    "id size too large": send_of(id_size=2**16, id=b""),
    "merge unknown": send_of(merge="maybe"),
    "merge as a list": send_of(merge=["keep"]),
    "merge as a map": send_of(merge={"keep": 1}),
    "producer alone": send_of(producer="p"),
    "sequence alone": send_of(sequence=1),
    "producer empty": send_of(producer="", sequence=1),
    "producer long": send_of(producer="p" * 256, sequence=1),
    "producer as bytes": send_of(producer=b"p", sequence=1),
    "sequence negative": send_of(producer="p", sequence=-1),
    "sequence as text": send_of(producer="p", sequence="1"),
    "nothing": b"",
    "a number": b"\1",
    "a list": msgpack.packb([1, 2]),
    "bytes": msgpack.packb(b"abc"),
    "nil": b"\xc0",
    "number keys": msgpack.packb({1: 2}),
    "bytes keys": msgpack.packb({b"v": 1}),
    "a map as a key": b"\x81\x80\x01",
    "a list as a key": b"\x81\x90\x01",
    "a key that is no UTF-8": b"\x81\xa1\xff\x01",
    "text that is no UTF-8": b"\x81\xa1v\xa1\xff",
    "trailing bytes": send_of() + b"\0",
    "two maps": send_of() + send_of(),
    "json": b'{"n": 1}',
    "deep nesting": b"\x91" * 100_000 + b"\x01",
    "deep maps": b"\x81\xa1v" * 100_000 + b"\x01",
    "a map that says it is huge": b"\xdf\xff\xff\xff\xff",
    "a list that says it is huge": b"\xdd\xff\xff\xff\xff",
    "bytes that say they are huge": b"\x81\xa1v\xc6\xff\xff\xff\xff",
    "many members": msgpack.packb({f"k{i}": i for i in range(100)}),
    "an extension": b"\x81\xa1v\xd4\x05\x00",
    "a timestamp": b"\x81\xa1v\xd6\xff\x00\x00\x00\x00",
    "a bad timestamp": b"\x81\xa1v\xc7\x0c\xff\xff\xff\xff\xff" + b"\x7f" + b"\xff" * 7,
    "the code that is never used": b"\xc1",
}


def test_a_batch_made_of_checked_ones_is_checked() -> None:
    """Texts are checked once, however often their rows are cut and joined."""

    def batch(*, checked: bool) -> MessageBatch:
        columns = {
            "n": 2,
            "delay_ms": 0,
            "key_size": 1,
            "key": b"kl",
            "body_size": 0,
            "bodies": b"",
        }
        made = decode_send(encode_send(columns), rows_max=2)
        made.texts_checked = checked
        return made

    for first in (True, False):
        for second in (True, False):
            joined = join_batches([batch(checked=first), batch(checked=second)])
            assert joined.texts_checked == (first and second)
        part = BatchRanges(batch(checked=first)).take(1, 2)
        assert (part.texts_checked, with_wire(part).texts_checked) == (first, first)
        assert with_wire(part).key.values(1) == [b"l"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    with pytest.raises(BatchError) as caught:
        decode_send(HOSTILE[name], rows_max=ROWS_MAX)
    assert len(str(caught.value)) < 1_000, "an error never repeats the body"


def test_the_good_one_is_good() -> None:
    """Or the table above would prove nothing."""
    batch = decode_send(send_of(), rows_max=ROWS_MAX)
    assert batch.body.values(3) == [b"a", b"bb", b"ccc"]


def test_truncation_at_every_byte() -> None:
    wire = send_of(id_size=1, id=b"xyz", priority=9, producer="p", sequence=3)
    for size in range(len(wire)):
        with pytest.raises(BatchError):
            decode_send(wire[:size], rows_max=ROWS_MAX)


def judge(wire: bytes) -> None:
    """Either a batch whose sizes add up, or BatchError."""
    try:
        batch = decode_send(wire, rows_max=ROWS_MAX)
    except BatchError:
        return
    assert isinstance(batch, MessageBatch)
    assert 1 <= batch.n <= ROWS_MAX
    for name in TEXTS:
        column = getattr(batch, name)
        assert int(column.sizes(batch.n).sum()) == len(column.block)


def test_every_flipped_bit() -> None:
    wire = send_of(id_size=1, id=b"xyz", ttl_ms=np.arange(3).tobytes(), merge="keep")
    for bit in range(len(wire) * 8):
        changed = bytearray(wire)
        changed[bit // 8] ^= 1 << bit % 8
        judge(bytes(changed))


@given(st.binary(max_size=200))
@settings(max_examples=tries(200), deadline=None)
def test_any_bytes(wire: bytes) -> None:
    judge(wire)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary()
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)  # fmt: skip
MEMBERS = ("v", "n", "merge", "producer", "sequence", *TIMES, *NUMBERS, *TEXTS.values(), "id_size")


@given(st.dictionaries(st.sampled_from([*MEMBERS, "body_size"]), VALUES, max_size=6))
@settings(max_examples=tries(300), deadline=None)
def test_any_members(changes: dict[str, Any]) -> None:
    """A good body with any of its members replaced by anything."""
    judge(send_of(**changes))
