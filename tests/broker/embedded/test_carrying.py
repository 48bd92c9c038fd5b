"""Every call of the API, carried out without a socket: none asks its node for what it has not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import orjson
import pytest

from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from delaylog.broker.embedded.calls import OF_SERVERS
from delaylog.client import errors
from delaylog.client.calls.call import Call, Form, json_call
from delaylog.client.wire.bulk import BULK_TYPE, encode_send
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.table import ALL, BY_NAME

BODIES: Final[dict[str, Any]] = {
    "ackAndReceive": {"receipts": []},
    "send": {"body": "x"},
    "ack": {"receipts": []},
    "nack": {"receipts": []},
    "reject": {"receipts": []},
    "beginAttempts": {"receipts": []},
    "extend": {"receipts": [], "lease_ms": 1},
    "cancelMany": {"ids": ["m"]},
    "rescheduleMany": {"ids": ["m"], "delay_ms": 1},
    "replayMany": {"ids": ["m"]},
    "reschedule": {"delay_ms": 0},
    "acceptClock": {"accept": True},
    "releaseArchive": {"through_ms": 0},
    "begin": {"transaction": "x"},
    "commit": {"winners": []},
    "makeClaim": {"max": 1},
    "putSchedule": {"cron": "0 9 * * *", "body": "x"},
    "backfillSchedule": {"from_ms": 0, "until_ms": 10**12},
    "trySchedule": {"cron": "0 9 * * *"},
}
QUERIES: Final = {"stage": "?topic=t&part=0", "readClaim": "?from=0&to=1"}
ORDER: Final = ("begin", "stage", "makeClaim", "putGroup", "putSchedule")
"""What others need goes first."""
LAST: Final = ("deleteSchedule", "deleteGroup", "cancel", "purge", "deleteTopic")
NOT_HERE: Final = {"handOver", "changeMembers", *OF_SERVERS}
REFUSED: Final = {
    "reschedule": "too_late",
    "cancel": "too_late",
    "releaseClaim": "conflict",
    "releaseArchive": "conflict",
    "abort": "conflict",
    "deleteTopic": "conflict",
    "getCluster": "unknown",
}
"""What it says no to, as one that serves alone does: the calls before have decided otherwise."""


def calls() -> list[ApiCall]:
    """All that a broker alone answers, in an order in which each finds what it is about."""
    rank = {name: at - len(ORDER) for at, name in enumerate(ORDER)}
    rank |= {name: at + 1 for at, name in enumerate(LAST)}
    wanted = [each for each in ALL if each.name not in NOT_HERE]
    return sorted(wanted, key=lambda each: rank.get(each.name, 0))


def test_every_call_is_answered(open_embedded: Any) -> None:
    broker: EmbeddedBroker[ManualClock] = open_embedded(clock=ManualClock(), fsync="never")
    broker.put_topic("t")
    broker.send("t", "x", id="m", delay=timedelta(minutes=1))
    broker.send("t", "due")
    names = {
        "topic": "t",
        "id": "m",
        "group": "g",
        "claim": "c",
        "schedule": "s",
        "job": "j1",
        "transaction": "x",
    }
    broker.broker().begin_job("t", "cancel", {"key": "nobody"})
    asked = []
    for operation in calls():
        path = operation.path.format(**names) + QUERIES.get(operation.name, "")
        if operation.name == "stage":
            form, wire = Form(BULK_TYPE, "application/json"), encode_send([b"x"], delay_ms=0)
            call: Call[Any] = Call("POST", path, wire, form, orjson.loads)
        elif operation.method == "GET":
            call = json_call("GET", path)
        else:
            call = json_call(operation.method, path, BODIES.get(operation.name, {}))
        if operation.name in REFUSED:
            with pytest.raises(errors.ApiError) as refusal:
                broker.call(call)
            assert refusal.value.code == REFUSED[operation.name], operation.name
        else:
            assert isinstance(broker.call(call), dict), operation.name
        asked.append(operation.name)
    assert len(asked) == len(ALL) - len(NOT_HERE)


NAMES = {"principal": "p", "topic": "t", "group": "g"}


@pytest.mark.parametrize("name", sorted(OF_SERVERS))
def test_calls_of_servers_are_refused(open_embedded: Any, name: str) -> None:
    broker = open_embedded(clock=ManualClock(), fsync="never")
    call = BY_NAME[name]
    body = None if call.takes is None else {}
    with pytest.raises(errors.ApiError, match="an embedded broker has no principals"):
        broker.call(json_call(call.method, call.path.format(**NAMES), body))


def test_a_path_that_is_not_there_is_refused_as_over_http(open_embedded: Any) -> None:
    broker = open_embedded(clock=ManualClock(), fsync="never")
    for method, path, code in (
        ("GET", "/v1/nothing", "unknown"),
        ("DELETE", "/v1/topics", "method"),
        ("GET", "/v1/topics?colour=1", "bad_request"),
        ("GET", "/v1/ns/a%20b/topics/t", "bad_request"),
    ):
        with pytest.raises(errors.ApiError) as refused:
            broker.call(json_call(method, path))
        assert refused.value.code == code
