"""The bulk codec: requests against the server's own decoder, answers against packed columns.

Round trips are searched by Hypothesis; the byte layout of one known request is pinned, so that a
change of the format is always deliberate; every way an answer can fail to add up is refused.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client.wire import bulk
from delaylog.client.wire.bulk import (
    BulkError,
    decode_changed,
    decode_received,
    decode_send_answer,
    decode_settled,
)
from delaylog.storage.messages.batch import decode_send

I64 = st.integers(-(2**63), 2**63 - 1)
REFS = st.lists(I64, max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TAG = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12)


def i64(values: list[int]) -> bytes:
    return np.array(values, "<i8").tobytes()


@st.composite
def sends(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of encode_send: each optional column absent, scalar or one value a row."""
    n = draw(st.integers(1, 8))

    def rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(values, min_size=n, max_size=n)

    def numbers(low: int, high: int) -> st.SearchStrategy[Any]:
        value = st.integers(low, high)
        return st.one_of(value, rows(value))

    arguments: dict[str, Any] = {"bodies": draw(rows(st.binary(max_size=20)))}
    time = draw(st.sampled_from(["deliver_at_ms", "delay_ms"]))
    arguments[time] = draw(numbers(0, 2**62))
    optional = {
        "priority": numbers(-(2**31), 2**31 - 1),
        "ttl_ms": numbers(-1, 2**62),
        "max_retry": numbers(0, 2**16 - 1),
        "ids": rows(TEXT),
        "keys": rows(TEXT),
        "tags": rows(st.lists(TAG, max_size=3)),
        "headers": rows(st.dictionaries(TEXT, TEXT, max_size=2)),
        "merge": st.sampled_from(["keep", "replace", "reject"]),
    }
    for name, strategy in optional.items():
        if draw(st.booleans()):
            arguments[name] = draw(strategy)
    if draw(st.booleans()):
        arguments["producer"] = draw(st.text("abc-0", min_size=1, max_size=8))
        arguments["sequence"] = draw(st.integers(0, 2**63 - 1))
    return arguments


def test_the_bytes_of_a_known_send_are_pinned() -> None:
    wire = bulk.encode_send(
        [b"one", b"three"], deliver_at_ms=[7, 8], ids=["a", ""], producer="p", sequence=9
    )
    assert msgpack.unpackb(wire) == {
        "v": 1,
        "n": 2,
        "deliver_at_ms": b"\x07" + bytes(7) + b"\x08" + bytes(7),
        "body_size": b"\x03\0\0\0\x05\0\0\0",
        "bodies": b"onethree",
        "id_size": b"\x01\0\0\0",
        "id": b"a",
        "producer": "p",
        "sequence": 9,
    }


@given(sends())
def test_the_server_reads_what_the_client_sends(arguments: dict[str, Any]) -> None:
    bodies = arguments["bodies"]
    n = len(bodies)
    batch = decode_send(bulk.encode_send(**arguments), rows_max=100)
    assert batch.n == n
    assert batch.body.values(n) == bodies
    assert (batch.merge, batch.producer) == (arguments.get("merge"), arguments.get("producer"))
    assert batch.sequence == arguments.get("sequence")
    for name in ("deliver_at_ms", "delay_ms", "priority", "ttl_ms", "max_retry"):
        column = getattr(batch, name)
        got = column.tolist() if isinstance(column, np.ndarray) else column
        assert got == arguments.get(name)
    for name, column in (("ids", batch.id), ("keys", batch.key)):
        if name in arguments:
            assert column.values(n) == [text.encode() for text in arguments[name]]
    if "tags" in arguments:
        assert batch.tags.values(n) == ["\n".join(tags).encode() for tags in arguments["tags"]]
    if "headers" in arguments:
        packed = batch.headers.values(n)
        assert [msgpack.unpackb(raw) if raw else {} for raw in packed] == arguments["headers"]


def test_columns_that_exist_already_are_sent_as_they_are() -> None:
    sizes = np.array([1, 2], np.int32)
    assert bulk.encode_send((sizes, b"abb"), delay_ms=0) == bulk.encode_send(
        [b"a", b"bb"], delay_ms=0
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "either deliver_at_ms or delay_ms"),
        ({"delay_ms": 1, "deliver_at_ms": 1}, "either deliver_at_ms or delay_ms"),
        ({"delay_ms": 1, "producer": "p"}, "come together"),
        ({"delay_ms": [1, 2]}, "delay_ms holds 2 values for 1 rows"),
        ({"delay_ms": np.array([[1]])}, "delay_ms must have one dimension, not 2"),
        ({"delay_ms": 1, "max_retry": [70_000]}, "max_retry holds a value outside"),
        ({"delay_ms": 1, "ids": ["a", "b"]}, "id_size holds 2 values"),
        ({"delay_ms": 1, "bodies": (np.array([2]), b"a")}, "do not add up"),
    ],
)
def test_a_send_that_does_not_add_up_is_refused_before_it_leaves(
    arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        bulk.encode_send(**{"bodies": [b"a"], **arguments})


@given(st.lists(st.tuples(I64, I64, st.integers(0, 3)), max_size=20), st.booleans())
def test_send_answers_are_read(rows: list[tuple[int, int, int]], alike: bool) -> None:
    refs, dues, results = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    fields: dict[str, Any] = {"n": len(rows), "refs": i64(refs), "deliver_at_ms": i64(dues)}
    if alike:
        results = [bulk.KEPT] * len(rows)
    fields["result"] = bulk.KEPT if alike else bytes(results)
    answer = decode_send_answer(msgpack.packb(fields))
    assert answer.n == len(rows)
    assert answer.refs.tolist() == refs
    assert answer.deliver_at_ms.tolist() == dues
    assert answer.result.tolist() == results


@given(
    st.lists(st.tuples(I64, I64, st.integers(0, 2**16 - 1), st.binary(max_size=9), TEXT)),
    st.integers(0, 2**64 - 1),
)
def test_received_batches_are_read(
    rows: list[tuple[int, int, int, bytes, str]], lease: int
) -> None:
    refs, dues, attempts, bodies, ids = map(list, zip(*rows, strict=True)) if rows else ([],) * 5
    raw_ids = [text.encode() for text in ids]
    batch = decode_received(
        msgpack.packb(
            {
                "n": len(rows),
                "lease": lease,
                "lease_until_ms": 5,
                "refs": i64(refs),
                "deliver_at_ms": i64(dues),
                "attempts": np.array(attempts, "<u2").tobytes(),
                "body_size": np.array([len(body) for body in bodies], "<u4").tobytes(),
                "bodies": b"".join(bodies),
                "id_size": np.array([len(raw) for raw in raw_ids], "<u2").tobytes(),
                "id": b"".join(raw_ids),
            }
        )
    )
    assert (batch.n, batch.lease, batch.lease_until_ms, batch.now_ms) == (len(rows), lease, 5, None)
    assert batch.refs.tolist() == refs
    assert batch.deliver_at_ms.tolist() == dues
    assert batch.attempts.tolist() == attempts
    assert batch.bodies() == bodies
    assert batch.ids == [own or bulk.ref_to_id(ref) for own, ref in zip(ids, refs, strict=True)]


def test_an_empty_receive_needs_no_columns() -> None:
    batch = decode_received(msgpack.packb({"n": 0}))
    assert (batch.n, batch.ids, batch.bodies()) == (0, [], [])


def test_a_server_made_id_is_its_ref_in_hex() -> None:
    assert bulk.ref_to_id(0x0123456789ABCDEF) == "~0123456789abcdef"
    assert bulk.ref_to_id(-1) == "~ffffffffffffffff"


@given(REFS, st.integers(0, 2**64 - 1))
def test_settle_bodies_carry_lease_and_refs(refs: list[int], lease: int) -> None:
    chosen = msgpack.unpackb(bulk.encode_settle(lease, refs, lease_ms=3))
    assert chosen == {"v": 1, "n": len(refs), "lease": lease, "refs": i64(refs), "lease_ms": 3}
    rest = msgpack.unpackb(bulk.encode_settle(lease, except_refs=refs, delay_ms=0))
    assert rest.pop("except", b"") == i64(refs)
    assert rest == {"v": 1, "n": len(refs), "lease": lease, "all": True, "delay_ms": 0}


def test_settling_takes_chosen_refs_or_all_but_some() -> None:
    with pytest.raises(ValueError, match="not both"):
        bulk.encode_settle(1, [1], except_refs=[2])


@given(REFS, REFS)
def test_settle_answers_are_read(gone: list[int], unknown: list[int]) -> None:
    fields = {"n": 9, "done": 4, "gone": i64(gone), "unknown": i64(unknown)}
    answer = decode_settled(msgpack.packb(fields))
    assert (answer.n, answer.done) == (9, 4)
    assert (answer.gone.tolist(), answer.unknown.tolist()) == (gone, unknown)


def test_cancel_and_reschedule_name_rows_by_ref_or_id() -> None:
    assert msgpack.unpackb(bulk.encode_change(refs=[3])) == {"v": 1, "n": 1, "refs": i64([3])}
    moved = msgpack.unpackb(bulk.encode_change(ids=["é"], deliver_at_ms=[8]))
    assert moved == {
        "v": 1,
        "n": 1,
        "id_size": 2,
        "id": "é".encode(),
        "deliver_at_ms": i64([8]),
    }
    for wrong in ({}, {"refs": [1], "ids": ["a"]}):
        with pytest.raises(ValueError, match="either refs or ids"):
            bulk.encode_change(**wrong)
    answer = decode_changed(msgpack.packb({"n": 2, "result": bytes([0, 2])}))
    assert answer.result.tolist() == [bulk.DONE, bulk.UNKNOWN]


RECEIVED = {"n": 1, "lease": 1, "refs": i64([1]), "deliver_at_ms": 1, "attempts": 1}
TWO = {"n": 2, "refs": i64([1, 2])}


@pytest.mark.parametrize(
    ("decode", "fields", "column"),
    [
        (decode_send_answer, [], "body"),
        (decode_send_answer, {}, "n"),
        (decode_send_answer, {"n": -1}, "n"),
        (decode_send_answer, {"n": 2, "refs": i64([1])}, "refs"),
        (decode_received, {**RECEIVED, "lease": None}, "lease"),
        (decode_received, {**RECEIVED, "body_size": 2, "bodies": b"a"}, "body_size"),
        (decode_received, {**RECEIVED, "lease_until_ms": "soon"}, "lease_until_ms"),
        (decode_received, {**RECEIVED, "n": 1 << 40, "refs": 1}, "n"),
        (decode_received, {**RECEIVED, "bodies": "a"}, "bodies"),
        (decode_received, {**RECEIVED, "bodies": b"a"}, "body_size"),
        (decode_received, {**RECEIVED, "id_size": 1, "id": b"\xff"}, "id"),
        (decode_received, {**RECEIVED, "tags_size": 4, "tags": b"abc"}, "tags_size"),
        (decode_received, {**RECEIVED, "priority": b"123"}, "priority"),
        # Two keys that are UTF-8 only together.
        (decode_received, {**RECEIVED, **TWO, "key_size": 1, "key": "é".encode()}, "key"),
        (decode_settled, {"n": 1}, "done"),
        (decode_settled, {"n": 1, "done": 1, "gone": b"abc"}, "gone"),
        (decode_changed, {"n": 2, "result": b"a"}, "result"),
        (decode_changed, {"n": 1, "result": 4}, "result"),
        (decode_send_answer, {"n": 1, "refs": 1, "deliver_at_ms": 1, "result": 77}, "result"),
    ],
)
def test_an_answer_that_does_not_add_up_names_its_column(
    decode: Any, fields: object, column: str
) -> None:
    with pytest.raises(BulkError) as caught:
        decode(msgpack.packb(fields))
    assert caught.value.column == column


def test_bytes_that_are_no_msgpack_are_refused() -> None:
    for wire in (b"", b"\xc1", b"\x81", msgpack.packb({"n": 0}) + b"x"):
        with pytest.raises(BulkError):
            decode_changed(wire)


@pytest.mark.parametrize("short", ["headers", "backoff"])
def test_a_list_that_is_too_short_is_refused(short: str) -> None:
    """Each row would lose what it says, were the rest filled up."""
    columns = {"headers": [{"a": "b"}, {}], "backoff": [None, {"first_ms": 5}]}
    columns[short] = columns[short][:1]
    with pytest.raises(ValueError, match=f"{short} holds 1 values for 2 rows"):
        bulk.encode_send([b"a", b"b"], delay_ms=1, **columns)  # type: ignore[arg-type]
