"""What each call needs, who has it, and how tests of access make each call of the live document.

The calls come from the OpenAPI document that the broker serves, and from the handler of each face,
not from the table that the broker's own decision reads. What each call needs is written down here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.broker.answer import Answer
from tests.broker.conftest import Secured

NEEDS = {
    **dict.fromkeys(("getTopic", "listGroups", "listClaims", "getStats", "getForecast"), "read"),
    **dict.fromkeys(("listMessages", "listDead", "getMessage", "getGroup"), "read"),
    **dict.fromkeys(("getTail", "listDeadReasons"), "read"),
    **dict.fromkeys(("putTopic", "updateTopic", "deleteTopic"), "admin"),
    **dict.fromkeys(("putGroup", "deleteGroup"), "admin"),
    **dict.fromkeys(
        ("listTargets", "getTarget", "putTarget", "updateTarget", "deleteTarget"), "admin"
    ),
    **dict.fromkeys(("listSchedules", "getSchedule", "previewSchedule", "trySchedule"), "read"),
    **dict.fromkeys(("putSchedule", "updateSchedule", "deleteSchedule"), "admin"),
    **dict.fromkeys(("pauseSchedule", "resumeSchedule", "runSchedule"), "change"),
    "backfillSchedule": "change",
    **dict.fromkeys(("send",), "send"),
    **dict.fromkeys(
        ("receive", "ack", "nack", "reject", "extend", "beginAttempts", "ackAndReceive"), "receive"
    ),
    "stream": "receive",
    **dict.fromkeys(("makeClaim", "getClaim", "readClaim", "extendClaim"), "receive"),
    **dict.fromkeys(("ackClaim", "releaseClaim"), "receive"),
    **dict.fromkeys(("cancelMany", "rescheduleMany", "replayMany", "reschedule"), "change"),
    **dict.fromkeys(("cancel", "purge", "pause", "resume"), "change"),
    "countMessages": "read",
    "peek": "bodies",
}
"""The right that a call about a topic needs."""
ELSEWHERE = {
    "listTopics": "read",
    "getOverview": "dashboard",
    "listAllSchedules": "read",
    "listAllTargets": "admin",
    **dict.fromkeys(("listJobs", "getJob", "listTransactions"), "read"),
    "stopJob": "change",
    **dict.fromkeys(("begin", "getTransaction", "stage", "commit", "abort"), "send"),
    **dict.fromkeys(("acceptClock", "getArchive", "releaseArchive"), "operate"),
    **dict.fromkeys(("putHold", "releaseHold"), "operate"),
    **dict.fromkeys(("handOver", "changeMembers", "reload"), "operate"),
    **dict.fromkeys(("listPrincipals", "getPrincipal", "putPrincipal"), "admin"),
    **dict.fromkeys(("rotatePrincipal", "revokePrincipal"), "admin"),
    **dict.fromkeys(
        ("getClock", "getCluster", "getHold", "getSession", "openSession", "closeSession"), "any"
    ),
    "metrics": "metrics",
    **dict.fromkeys(("makeTicket", "openapi", "live", "about"), "any"),
    **dict.fromkeys(("health", "readiness"), "nothing"),
}
"""The same of calls about no topic."""
OF_CAMELLIA = {
    "sendMsg": "send",
    **dict.fromkeys(("pullMsg", "longPollingMsg", "ackMsg"), "receive"),
    "getMsg": "bodies",
    "deleteMsg": "change",
    **dict.fromkeys(("getTopicInfo", "getTopicInfoList", "getMonitorData"), "read"),
    "getMonitorString": "read",
    "metrics": "metrics",
    **dict.fromkeys(("status", "check"), "nothing"),
    **dict.fromkeys(("online", "offline"), "operate"),
}
ROLES = {
    "nobody": set[str](),
    "producer": {"send"},
    "consumer": {"receive"},
    "viewer": {"read"},
    "reader": {"read", "bodies"},
    "changer": {"change"},
    "owner": {"send", "receive", "read", "bodies", "change", "admin"},
}
"""Rights on one topic of each role."""
GRANTS = {
    "nobody": [],
    "producer": ["producer:mine"],
    "consumer": ["consumer:mine"],
    "viewer": ["viewer:mine"],
    "reader": ["read,bodies:mine"],
    "changer": ["change:mine"],
    "owner": ["admin:mine"],
}
BODIES: dict[str, Any] = {
    "send": {"body": "secret-body", "delay_ms": 3_600_000},
    **{name: {"receipts": []} for name in ("ack", "nack", "reject", "extend", "beginAttempts")},
    "ackAndReceive": {"receipts": []},
    **{name: {"ids": ["known-id"]} for name in ("cancelMany", "replayMany")},
    "rescheduleMany": {"ids": ["known-id"], "delay_ms": 1},
    "reschedule": {"delay_ms": 1},
    "putTarget": {"url": "https://example.com/"},
    "acceptClock": {"accept": True},
    "commit": {"winners": []},
    "putPrincipal": {"grants": ["admin"]},
    "putSchedule": {"cron": "0 9 * * *", "body": "x"},
    "backfillSchedule": {"from_ms": 0, "until_ms": 1},
    "trySchedule": {"cron": "0 9 * * *"},
    "releaseArchive": {"upto": "2020-01-01T00Z"},
    "changeMembers": {"action": "remove", "nodes": ["1"]},
}
NAMES = {
    "group": "default",
    "claim": "known-claim",
    "schedule": "known-schedule",
    "id": "known-id",
    "job": "j1",
    "transaction": "known-transaction",
    "principal": "admin",
}


def routes(secured: Secured) -> Iterator[tuple[str, str, str]]:
    """(operation, method, path) of every route of the live document but camellia's."""
    document = secured.call("GET", "/openapi.json").json
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters" and "camellia" not in operation["tags"]:
                yield operation["operationId"], method.upper(), path


def filled(path: str, namespace: str, topic: str) -> str:
    names = {**NAMES, "ns": namespace, "topic": topic}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], path)


def state(secured: Secured) -> Any:
    """All that a refused call must not have changed."""
    return [
        secured.call("GET", path).json
        for path in (
            "/v1/topics",
            "/v1/ns/else/topics",
            *(f"/v1/topics/{topic}/groups" for topic in ("mine", "theirs")),
            *(f"/v1/topics/{topic}/messages" for topic in ("mine", "theirs")),
            "/v1/topics/theirs/claims",
            *(f"/v1/topics/{topic}/schedules" for topic in ("mine", "theirs")),
            "/v1/transactions",
        )
    ] + [
        {
            each["principal"]: {**each, "used_ms": None}
            for each in secured.call("GET", "/v1/principals").json["principals"]
        }
    ]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "now_ms"}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def assert_tells_nothing(answer: Answer, code: str) -> None:
    problem = answer.json
    assert problem["code"] == code, problem
    for name in ("known-", "secret-body", "theirs-group"):
        assert name not in answer.body.decode(), problem
