"""A table of doors and of wrong times: each door refuses the same numbers, for the same reason.

A door is any interface that takes a time from a program. It is called with a number that should be
Unix milliseconds, and returns the refusal, or None.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest

import delaylog
from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.client import AsyncPlainClient, PlainClient
from delaylog.client.child_broker import free_port
from delaylog.client.errors import ClientError
from delaylog.contract.members import INT64_MAX
from tests.broker.calls.forms.arrow_streams import one, stream
from tests.broker.conftest import MSGPACK, Broker
from tests.broker.resp.resp_client import RespClient

NOW_MS = time.time_ns() // 1_000_000
SOON_MS = NOW_MS + 86_400_000
EPOCH = datetime.fromtimestamp(0, UTC)
WRONG = {
    NOW_MS // 1_000: "is before 2001-09-09",
    10**12 - 1: "is before 2001-09-09",
    1: "is before 2001-09-09",
    NOW_MS * 1_000: "looks like microseconds",
    NOW_MS * 1_000_000: "looks like nanoseconds",
    INT64_MAX: "looks like nanoseconds",
    -1: "is negative",
    -NOW_MS: "is negative",
}
FAR_MS = NOW_MS + 11 * 366 * 86_400_000
NO_INTEGERS = (SOON_MS + 0.5, str(SOON_MS), "soon", True, [SOON_MS])
NUMBERS = itertools.count()
Door = Callable[[Any, Any], str | None]


@pytest.fixture(scope="module")
def both(sound_broker: Callable[..., Broker]) -> Iterator[tuple[Broker, RespClient]]:
    """A broker, and a Redis client of it."""
    port = free_port()
    broker = sound_broker("--resp", f"127.0.0.1:{port}")
    broker.post("/v1/topics/t/messages", {"body": "x", "id": "m", "delay_ms": 86_400_000})
    client = RespClient(port)
    yield broker, client
    client.close()


def json_door(method: str, path: str, member: str, **members: Any) -> Door:
    def call(both: Any, value: Any) -> str | None:
        return refusal(both[0].call(method, path, {**members, member: value}), member)

    return call


def refusal(answer: Any, member: str) -> str | None:
    if answer.status == 400:
        assert answer.json["field"] == member, answer
        assert answer.json["detail"].startswith((member, f"filter.{member}")), answer
        return str(answer.json["detail"])
    assert answer.status in (200, 201, 202, 404, 409), answer
    return None


SENDS = "/v1/topics/t/messages"
RULE = {"interval_ms": 86_400_000, "body": "x"}


def msgpack_send(both: Any, value: Any) -> str | None:
    wire = msgpack.packb({"body": b"x", "deliver_at_ms": value})
    answer = both[0].call("POST", SENDS, wire, {"Content-Type": MSGPACK})
    return refusal(answer, "deliver_at_ms")


def array_send(both: Any, value: Any) -> str | None:
    good = {"body": "x", "delay_ms": 60_000}
    answer = both[0].call("POST", SENDS, [good, {"body": "x", "deliver_at_ms": value}])
    assert answer.status == 200 or answer.json["item"] == 1, answer
    return refusal(answer, "deliver_at_ms")


def filter_door(verb: str, member: str, **members: Any) -> Door:
    def call(both: Any, value: Any) -> str | None:
        body = {"filter": {member: value, "tag": "none"}, **members}
        return refusal(both[0].call("POST", f"{SENDS}:{verb}", body), member)

    return call


def query_door(path: str, member: str) -> Door:
    def call(both: Any, value: Any) -> str | None:
        return refusal(both[0].call("GET", f"/v1/topics/t/{path}?{member}={value}"), member)

    return call


ANY_NUMBER: dict[str, Door] = {
    "HTTP JSON": json_door("POST", SENDS, "deliver_at_ms", body="x"),
    "HTTP array": array_send,
    "HTTP msgpack": msgpack_send,
    "reschedule": json_door("PATCH", f"{SENDS}/m", "deliver_at_ms"),
    "reschedule many": json_door("POST", f"{SENDS}:reschedule", "deliver_at_ms", ids=["m"]),
    "replay": json_door("POST", f"{SENDS}:replay", "deliver_at_ms", ids=["m"]),
    "filter from": filter_door("cancel", "due_from"),
    "filter to": filter_door("reschedule", "due_to", delay_ms=86_400_000),
    "schedule end": json_door("PUT", "/v1/topics/t/schedules/s", "end_ms", **RULE),
    "schedule try": json_door("POST", "/v1/topics/t/schedules/s/preview", "end_ms", **RULE),
    "archive": json_door("POST", "/v1/archive/release", "through_ms"),
    "principal": json_door("PUT", "/v1/principals/p", "expires_at_ms", grants=[]),
}
QUERIES: dict[str, Door] = {
    "list from": query_door("messages", "due_from"),
    "list to": query_door("messages", "due_to"),
    "count": query_door("messages:count", "due_to"),
    "dead letters": query_door("dead", "due_from"),
}


def bulk_send(both: Any, value: int) -> str | None:
    return refusal(both[0].bulk(SENDS, bulk(value)), "deliver_at_ms")


def bulk(value: int) -> dict[str, Any]:
    times = np.array([0, value], "<i8").tobytes()
    return {"v": 1, "n": 2, "body_size": 1, "bodies": b"xy", "deliver_at_ms": times}


def bulk_scalar(both: Any, value: int) -> str | None:
    return refusal(both[0].bulk(SENDS, {**bulk(0), "deliver_at_ms": value}), "deliver_at_ms")


def bulk_reschedule(both: Any, value: int) -> str | None:
    fields = {"v": 1, "n": 1, "id_size": 1, "id": b"m", "deliver_at_ms": value}
    return refusal(both[0].bulk(f"{SENDS}:reschedule", fields), "deliver_at_ms")


def bulk_part(both: Any, value: int) -> str | None:
    both[0].call("POST", "/v1/transactions", {"transaction": "x"})
    path = f"/v1/transactions/x/parts?topic=t&producer=p&part=0&attempt=0&number={next(NUMBERS)}"
    return refusal(both[0].bulk(path, bulk(value)), "deliver_at_ms")


def arrow_wire(value: int) -> bytes:
    return stream(one(deliver_at=pa.array([0, value], pa.timestamp("ms"))))


def arrow_send(both: Any, value: int) -> str | None:
    answer = both[0].call("POST", SENDS, arrow_wire(value), {"Content-Type": ARROW})
    assert answer.status == 200 or answer.json["item"] == 1, answer
    return refusal(answer, "deliver_at")


def arrow_part(both: Any, value: int) -> str | None:
    both[0].call("POST", "/v1/transactions", {"transaction": "y"})
    path = f"/v1/transactions/y/parts?topic=t&producer=p&part=0&attempt=0&number={next(NUMBERS)}"
    answer = both[0].call("POST", path, arrow_wire(value), {"Content-Type": ARROW})
    return refusal(answer, "deliver_at")


def resp_door(*words: Any) -> Door:
    def call(both: Any, value: int) -> str | None:
        reply = both[1].call(*(f"@{value}" if word is None else word for word in words))
        assert not isinstance(reply, Exception) or "the due time" in str(reply), reply
        return str(reply) if isinstance(reply, Exception) else None

    return call


def sdk_door(send: Callable[[Any, int], Any]) -> Door:
    def call(both: Any, value: int) -> str | None:
        with PlainClient(both[0].url) as client:
            return raised(lambda: send(client, value))

    return call


def raised(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except (ClientError, ValueError, TypeError) as error:
        return str(error)
    return None


def async_sdk(both: Any, value: int) -> str | None:
    async def send() -> None:
        async with AsyncPlainClient(both[0].url) as client:
            await client.send_many("t", [{"body": "x", "deliver_at_ms": value}])

    return raised(lambda: asyncio.run(send()))


INTEGERS: dict[str, Door] = {
    "bulk": bulk_send,
    "bulk, one for all": bulk_scalar,
    "bulk reschedule": bulk_reschedule,
    "bulk part": bulk_part,
    "Arrow": arrow_send,
    "Arrow part": arrow_part,
    "DL.SEND": resp_door("DL.SEND", "t", None, "x"),
    "DL.MSEND": resp_door("DL.MSEND", "t", 60_000, "x", None, "x"),
    "DL.RESCHEDULE": resp_door("DL.RESCHEDULE", "t", "m", None),
    "SDK": sdk_door(lambda c, v: c.send_many("t", [{"body": "x", "deliver_at_ms": v}])),
    "SDK columns": sdk_door(lambda c, v: c.send_bulk("t", [b"x"] * 2, deliver_at_ms=[0, v])),
    "async SDK": async_sdk,
}


@pytest.mark.parametrize("name", [*ANY_NUMBER, *QUERIES, *INTEGERS])
def test_a_door_refuses_other_units(both: Any, name: str) -> None:
    door = (ANY_NUMBER | QUERIES | INTEGERS)[name]
    for value, words in WRONG.items():
        assert words in (door(both, value) or "accepted"), value
    if name not in ("principal", "archive"):
        assert door(both, SOON_MS) is None
    if name in ("HTTP JSON", "HTTP array", "HTTP msgpack", "reschedule", *INTEGERS):
        assert "years ahead, over the horizon" in (door(both, FAR_MS) or "accepted")


@pytest.mark.parametrize("name", ANY_NUMBER)
def test_a_door_takes_a_whole_number_only(both: Any, name: str) -> None:
    door = ANY_NUMBER[name]
    for value in NO_INTEGERS:
        assert "must be an integer, not" in (door(both, value) or "accepted"), value
    if name not in ("principal", "archive"):
        assert door(both, float(SOON_MS)) is None


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_takes_a_whole_number_only(both: Any, name: str) -> None:
    door = QUERIES[name]
    for value in (SOON_MS + 0.5, "soon", "1.8e12"):
        assert "must be an integer" in (door(both, value) or "accepted"), value
    assert door(both, float(SOON_MS)) is None


def test_zero_means_now_and_no_bound(both: Any) -> None:
    for name in ("HTTP JSON", "HTTP msgpack", "bulk", "Arrow", "DL.SEND", "SDK", "list from"):
        assert (ANY_NUMBER | QUERIES | INTEGERS)[name](both, 0) is None, name


def test_the_anchor_of_a_schedule_may_be_long_past(both: Any) -> None:
    """RFC 5545 has examples of 1997, which were never meant as seconds."""
    path = "/v1/topics/t/schedules/a"
    put = json_door("PUT", path, "start_ms", **RULE)
    fill = json_door("POST", f"{path}/backfill", "from_ms", until_ms=0)
    until = json_door("POST", f"{path}/backfill", "until_ms", from_ms=10**12)
    assert put(both, 873_205_200_000) is None
    for door in (put, fill, until):
        for value, words in WRONG.items():
            if value != 10**12 - 1:
                said = door(both, value) or "accepted"
                assert words.replace("2001-09-09", "1973-03-03") in said, value


@pytest.mark.parametrize(
    ("unit", "value", "words"),
    [
        ("s", NOW_MS // 1_000_000, "is before 2001-09-09"),
        ("s", NOW_MS, "looks like microseconds"),
        ("s", NOW_MS * 1_000, "looks like nanoseconds"),
        ("us", NOW_MS, "is before 2001-09-09"),
        ("us", NOW_MS * 1_000_000, "looks like microseconds"),
        ("ns", NOW_MS * 1_000, "is before 2001-09-09"),
        ("ns", -1_000_001, "is negative"),
    ],
    # The numbers differ from process to process.
    ids=lambda each: "" if isinstance(each, int) else each,
)
def test_a_timestamp_of_another_unit_is_refused(
    both: Any, unit: str, value: int, words: str
) -> None:
    raw = stream(one(deliver_at=pa.array([0, value], pa.timestamp(unit, tz="UTC"))))
    answer = both[0].call("POST", SENDS, raw, {"Content-Type": ARROW})
    assert answer.json["item"] == 1
    assert words in (refusal(answer, "deliver_at") or "accepted")


def test_a_datetime_made_from_another_unit_is_refused(both: Any, tmp_path: Path) -> None:
    """By each client and in each call that takes one; the epoch itself means now."""
    early = datetime.fromtimestamp(NOW_MS / 1_000_000, UTC)
    with (
        delaylog.Client(both[0].url) as client,
        delaylog.open(tmp_path, fsync="never") as embedded,
    ):
        for queue in (client, embedded):
            queue.send("t", "x", at=EPOCH)
            queue.send("t", "x", at=datetime.now(UTC) - timedelta(days=1))
            for call in (
                lambda queue=queue: queue.send("t", "x", at=early),
                lambda queue=queue: queue.send_many("t", [b"x"], at=early),
                lambda queue=queue: queue.reschedule("t", "m", at=early),
                lambda queue=queue: queue.timer("k").set(at=early),
                lambda queue=queue: list(queue.browse("t", due_from=early)),
            ):
                assert "is before 2001-09-09" in (raised(call) or "accepted")
            for number, words in ((NOW_MS // 1_000, "is before"), (NOW_MS * 1_000, "looks like")):
                send = lambda: queue.send("t", "x", deliver_at_ms=number)  # noqa: B023, E731
                assert words in (raised(send) or "accepted")


@pytest.mark.parametrize(
    "words",
    [
        ("send", "t", "x", "--at", "1970-01-21T21:20:27Z"),
        ("reschedule", "t", "m", "--at", "1970-01-21T21:20:27Z"),
        (
            "schedule",
            "put",
            "t",
            "s",
            "--body",
            "x",
            "--cron",
            "* * * * *",
            "--end",
            "1970-01-21T21:20Z",
        ),
        ("list", "t", "--due-from", "1970-01-21T21:20:27Z"),
    ],
)
def test_the_command_line_refuses_times_before_2001(both: Any, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "delaylog.broker", *words, "--url", both[0].url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    assert "is before 2001-09-09" in done.stderr
