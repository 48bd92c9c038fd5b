"""Hypothesis against a live broker: whatever is sent, the answer is below 500 and well formed.

Each body is sent twice: to a plain path, which takes the fast lane where there is one, and with an
empty query, which is aiohttp's. Both refuse the same in the same words.

Bodies are built near the legal shapes (right names, odd values) so that they get past the first
check; bulk bodies are legal ones with a few columns replaced. A receive at the end of each run
shows that no accepted message broke its topic.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.web.test_fast_lane import fast
from tests.effort import tries

FUZZ = settings(
    max_examples=tries(250),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
BULK = "application/vnd.delaylog.batch"
RECEIPT = st.text("0123456789abcdef", min_size=32, max_size=32)
NUMBERS = st.one_of(
    st.integers(-2, 5),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([2**31, 2**53, 2**63 - 1, 65_535, 3_600_000]),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.floats(), st.text(max_size=20), st.binary(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = {
    "messages": "body body_base64 delay_ms deliver_at_ms id key tags headers priority ttl_ms "
    "max_retry merge",
    "receive": "max lease_ms columns group",
    "ack": "receipts ids force delay_ms lease_ms group",
    "messages:cancel": "ids force",
    "messages:reschedule": "ids deliver_at_ms delay_ms",
}
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "body": st.text(max_size=10),
    "delay_ms": st.integers(0, 3),
    "id": st.text(max_size=4),
    "key": st.text(max_size=4),
    "tags": st.lists(st.text(max_size=4), max_size=3),
    "headers": st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
    "merge": st.sampled_from(["keep", "replace", "reject"]),
    "max": st.integers(1, 10),
    "ids": st.lists(st.text(max_size=4), max_size=3),
    "receipts": st.lists(RECEIPT, max_size=3),
    "force": st.booleans(),
    "columns": st.lists(st.sampled_from(["key", "tags", "headers", "priority"])),
}


def members(call: str) -> st.SearchStrategy[Any]:
    """Bodies of a call: mostly its members with likely values, sometimes anything."""
    likely = st.fixed_dictionaries(
        {},
        optional={
            name: st.one_of(LIKELY[name], VALUES) if name in LIKELY else st.one_of(NUMBERS, VALUES)
            for name in NAMES[call].split()
        },
    )
    if call == "messages":
        likely = likely.map(lambda each: {"body": "x"} | each)
        return st.one_of(likely, st.lists(likely, max_size=3), VALUES)
    return st.one_of(likely, VALUES)


def judge(answer: Any) -> None:
    """Below 500; a refusal is a problem document, all else can be read."""
    assert answer.status in (200, 400, 404, 409, 413), answer
    if answer.status != 200:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert {"type", "title", "status", "code", "detail"} <= answer.json.keys()


def post(broker: Any, path: str, wire: bytes, kind: str) -> Any:
    """The answer of the plain path; that of the other one is compared if it is a refusal."""
    headers = {"Content-Type": kind} | ({"Accept": BULK} if kind == BULK else {})
    plain, queried = (broker.call("POST", f"{path}{end}", wire, headers) for end in ("", "?"))
    judge(plain)
    judge(queried)
    if 400 in (plain.status, queried.status):
        assert (queried.status, queried.json) == (plain.status, plain.json)
    return plain


def drain(broker: Any, topic: str) -> None:
    """Every ready message can be received in both forms, and acked."""
    path = f"/v1/topics/{topic}"
    for accept in ("application/json", BULK):
        ask = {"max": 100, "columns": ["key", "tags", "headers", "priority"]}
        answer = broker.call("POST", f"{path}/receive", ask, {"Accept": accept})
        assert answer.status == 200, answer
        if accept == BULK:
            continue
        receipts = [each["receipt"] for each in answer.json["messages"]]
        judge(broker.call("POST", f"{path}/nack", {"receipts": receipts, "delay_ms": 0}))


@pytest.mark.parametrize("call", NAMES)
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_members(broker: Any, call: str, form: str) -> None:
    """Members of any kind, as JSON and as msgpack."""
    topic = f"fuzz-{form}-{call.replace(':', '-')}"
    broker.call("PUT", f"/v1/topics/{topic}", {})
    before = fast(broker)

    @FUZZ
    @given(members(call))
    def run(body: Any) -> None:
        if form == "json":
            wire = json.dumps(body, default=lambda raw: raw.decode("latin-1")).encode()
            kind = "application/json"
        else:
            try:
                wire = msgpack.packb(body)
            except (OverflowError, ValueError):
                return
            kind = "application/msgpack"
        post(broker, f"/v1/topics/{topic}/{call}", wire, kind)

    run()
    assert fast(broker) > before + tries(50)
    drain(broker, topic)


def column(letter: str, n: int) -> st.SearchStrategy[Any]:
    """A numeric column: a scalar, n packed values, or something else."""
    width = struct.calcsize(letter)
    return st.one_of(
        NUMBERS, st.integers(0, 3), st.binary(min_size=n * width, max_size=n * width), SCALARS
    )


@st.composite
def texts(draw: st.DrawFn, n: int) -> tuple[Any, Any]:
    """Sizes and a block that mostly add up, though not to whole letters."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    block = draw(st.binary(min_size=sum(sizes), max_size=sum(sizes)))
    letters = "".join(draw(st.lists(st.sampled_from("aé\n~\0😀"), min_size=0, max_size=30)))
    near = letters.encode()[: sum(sizes)].ljust(sum(sizes), b"x")
    value = draw(st.sampled_from([block, near, near, near]))
    return struct.pack(f"<{n}H", *sizes), value


@st.composite
def send_bodies(draw: st.DrawFn) -> bytes:
    """A legal bulk send with odd columns, sometimes cut or lengthened."""
    n = draw(st.integers(1, 4))
    fields: dict[str, Any] = {"v": 1, "n": n, "delay_ms": 0, "body_size": 1, "bodies": b"x" * n}
    for name in ("id", "key", "tags", "headers"):
        if draw(st.booleans()):
            fields[f"{name}_size"], fields[name] = draw(texts(n))
    for name, letter in (("priority", "i"), ("ttl_ms", "q"), ("max_retry", "H"), ("delay_ms", "q")):
        if draw(st.integers(0, 3)) == 0:
            fields[name] = draw(column(letter, n))
    if draw(st.integers(0, 3)) == 0:
        fields[draw(st.sampled_from([*fields, "merge", "producer", "sequence", "x"]))] = draw(
            SCALARS
        )
    return draw(damaged(fields))


@st.composite
def damaged(draw: st.DrawFn, fields: dict[str, Any]) -> bytes:
    """The packed map, one time in four with its end changed."""
    wire: bytes = msgpack.packb(fields)
    if draw(st.integers(0, 3)) == 0:
        wire = wire[: draw(st.integers(0, len(wire)))] + draw(st.binary(max_size=4))
    return wire


@st.composite
def settle_bodies(draw: st.DrawFn) -> bytes:
    """A bulk ack, nack, extend, cancel or reschedule with odd columns."""
    refs = draw(st.binary(max_size=4).map(lambda raw: b"".join(bytes([b] * 8) for b in raw)))
    fields: dict[str, Any] = {"v": 1, "n": len(refs) // 8}
    names = {"lease": draw(NUMBERS), "refs": refs, "all": draw(st.booleans()), "except": refs}
    names |= {"id": refs, "id_size": 8, "deliver_at_ms": draw(column("q", 1)), "delay_ms": 0}
    for name in draw(st.sets(st.sampled_from(sorted(names)))):
        fields[name] = names[name]
    if draw(st.integers(0, 3)) == 0:
        fields[draw(st.sampled_from([*fields, *names]))] = draw(SCALARS)
    return draw(damaged(fields))


def test_bulk_sends(broker: Any) -> None:
    """Bulk sends with odd columns; what was taken can be received."""

    @FUZZ
    @given(send_bodies())
    def run(wire: bytes) -> None:
        answer = post(broker, "/v1/topics/fuzz-bulk/messages", wire, BULK)
        if answer.status == 200:
            drain(broker, "fuzz-bulk")

    run()


@pytest.mark.parametrize(
    "call", ["ack", "nack", "extend", "messages:cancel", "messages:reschedule"]
)
def test_bulk_settles(broker: Any, call: str) -> None:
    """Bulk settles and changes with odd columns change nothing they have no lease for."""
    topic = f"fuzz-settle-{call.replace(':', '-')}"
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 20_000, "lease_ms": 3_600_000})

    @FUZZ
    @given(settle_bodies())
    def run(wire: bytes) -> None:
        post(broker, f"/v1/topics/{topic}/{call}", wire, BULK)

    run()
    assert broker.counts(topic)["leased"] == 1
