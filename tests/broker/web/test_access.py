"""Every route that a broker serves, for every role, on own and foreign topics.

The routes come from the OpenAPI document that the broker serves, and from the handler of each face,
not from the table that the broker's own decision reads. What each route needs is written down here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgpack
import pytest

from delaylog.broker.web.camellia.face import CALLS as CAMELLIA
from delaylog.broker.web.camellia.face import PLAIN
from tests.broker.answer import Answer
from tests.broker.conftest import BULK, Broker, Secured

NEEDS = {
    **dict.fromkeys(("getTopic", "listGroups", "listClaims", "getStats", "getForecast"), "read"),
    **dict.fromkeys(("listMessages", "listDead", "getMessage", "getGroup"), "read"),
    **dict.fromkeys(("putTopic", "deleteTopic", "putGroup", "deleteGroup"), "admin"),
    **dict.fromkeys(("send",), "send"),
    **dict.fromkeys(("receive", "ack", "nack", "extend", "ackAndReceive"), "receive"),
    **dict.fromkeys(("makeClaim", "getClaim", "readClaim", "extendClaim"), "receive"),
    **dict.fromkeys(("ackClaim", "releaseClaim"), "receive"),
    **dict.fromkeys(("cancelMany", "rescheduleMany", "replayMany", "reschedule"), "change"),
    **dict.fromkeys(("cancel", "purge", "pause", "resume"), "change"),
    "peek": "bodies",
}
"""The right that a call about a topic needs."""
ELSEWHERE = {
    "listTopics": "read",
    **dict.fromkeys(("listJobs", "getJob", "listTransactions"), "read"),
    "stopJob": "change",
    **dict.fromkeys(("begin", "getTransaction", "stage", "commit", "abort"), "send"),
    **dict.fromkeys(("acceptClock", "getArchive", "releaseArchive"), "operate"),
    **dict.fromkeys(("handOver", "changeMembers", "reload"), "operate"),
    **dict.fromkeys(("listPrincipals", "getPrincipal", "putPrincipal"), "admin"),
    **dict.fromkeys(("rotatePrincipal", "revokePrincipal"), "admin"),
    **dict.fromkeys(
        ("getClock", "getCluster", "getSession", "openSession", "closeSession", "makeTicket"), "any"
    ),
    "metrics": "metrics",
    **dict.fromkeys(("openapi", "about"), "any"),
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
    **{name: {"receipts": []} for name in ("ack", "nack", "extend")},
    "ackAndReceive": {"receipts": []},
    **{name: {"ids": ["known-id"]} for name in ("cancelMany", "replayMany")},
    "rescheduleMany": {"ids": ["known-id"], "delay_ms": 1},
    "reschedule": {"delay_ms": 1},
    "acceptClock": {"accept": True},
    "commit": {"winners": []},
    "putPrincipal": {"grants": ["admin"]},
    "releaseArchive": {"upto": "2020-01-01T00Z"},
    "changeMembers": {"action": "remove", "nodes": ["1"]},
}
NAMES = {
    "group": "default",
    "claim": "known-claim",
    "id": "known-id",
    "job": "j1",
    "transaction": "known-transaction",
    "principal": "admin",
}


@pytest.fixture(scope="module")
def tokens(secured: Secured) -> dict[str, str]:
    """A token for each role, and what they must not see or change."""
    for topic in ("mine", "theirs"):
        body = {"id": "known-id", "body": "secret-body", "delay_ms": 3_600_000}
        assert secured.call("POST", f"/v1/topics/{topic}/messages", body).status == 200
    assert secured.call("POST", "/v1/ns/else/topics/mine/messages", body).status == 200
    assert secured.call("POST", "/v1/topics/theirs/claims/known-claim", {}).status == 200
    begun = secured.call("POST", "/v1/transactions", {"transaction": "known-transaction"})
    assert begun.status == 200
    return {role: secured.token(*grants) for role, grants in GRANTS.items()}


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


def test_every_route_is_written_down(secured: Secured) -> None:
    found = {name.removesuffix("InNamespace") for name, _, _ in routes(secured)}
    assert found == NEEDS.keys() | ELSEWHERE.keys()
    plain = {path.rpartition("/")[2] for path in PLAIN}
    assert CAMELLIA.keys() | plain == OF_CAMELLIA.keys()


def test_without_a_token(secured: Secured, tokens: dict[str, str]) -> None:
    """No call but those of health is answered, whatever it would be, and nothing changes."""
    before = without_times(state(secured))
    wrong = "dlt_" + "A" * 49
    for name, method, path in routes(secured):
        place = filled(path, "default", "mine")
        for token in (None, wrong, tokens["owner"][:-1] + "x"):
            answer = secured.call(method, place, BODIES.get(name), token)
            if name in ("health", "readiness"):
                assert answer.status == 200, (name, answer)
                continue
            assert answer.status == 401, (name, answer)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert_tells_nothing(answer, "unauthorized")
    for place in ("/v1/nothing", "/v1/topics/none/stats", "/nothing", "/camellia/none"):
        assert secured.call("GET", place, None, None).status == 401, "even what is not there"
    assert without_times(state(secured)) == before


@pytest.mark.parametrize("role", ROLES)
def test_calls_about_topics(secured: Secured, tokens: dict[str, str], role: str) -> None:
    """A call is refused on every topic of others, and on an own one without the right."""
    before = without_times(state(secured))
    places = list(product(("default", "else"), ("mine", "theirs", "nowhere")))
    for name, method, path in routes(secured):
        call = name.removesuffix("InNamespace")
        if call not in NEEDS:
            continue
        for namespace, topic in places:
            if name == call and namespace != "default":
                continue
            own = (namespace, topic) == ("default", "mine")
            if own and NEEDS[call] in ROLES[role]:
                continue
            place = filled(path, namespace, topic)
            answer = secured.call(method, place, BODIES.get(call), tokens[role])
            assert answer.status == 403, (name, place, answer)
            assert_tells_nothing(answer, "forbidden")
    assert without_times(state(secured)) == before


@pytest.mark.parametrize("role", [role for role in ROLES if role != "nobody"])
def test_calls_that_a_role_may_make(secured: Secured, tokens: dict[str, str], role: str) -> None:
    """On its own topic each role does what its rights say: no call is refused for them."""
    allowed = [
        (name, method, filled(path, "default", "mine"))
        for name, method, path in routes(secured)
        if NEEDS.get(name) in ROLES[role] and name not in ("deleteTopic", "deleteGroup")
    ]
    assert allowed
    for name, method, place in allowed:
        answer = secured.call(method, place, BODIES.get(name), tokens[role])
        assert answer.status not in (401, 403), (name, answer)


def test_calls_about_no_topic(secured: Secured, tokens: dict[str, str]) -> None:
    before = without_times(state(secured))
    for name, method, path in routes(secured):
        needed = ELSEWHERE.get(name.removesuffix("InNamespace"))
        if needed in (None, "any", "nothing"):
            continue
        for role, rights in ROLES.items():
            if needed in rights and needed != "admin":
                continue
            place = filled(path, "default", "mine")
            answer = secured.call(method, place, BODIES.get(name), tokens[role])
            assert answer.status == 403, (name, role, answer)
            assert_tells_nothing(answer, "forbidden")
    assert without_times(state(secured)) == before


def test_lists_leave_out_what_is_not_theirs(secured: Secured, tokens: dict[str, str]) -> None:
    job = secured.call("POST", "/v1/topics/theirs/messages:cancel", {"filter": {"key": "none"}})
    assert job.status == 202
    name = job.json["job"]
    for path in ("/v1/topics", "/v1/jobs", "/v1/transactions"):
        mine = secured.call("GET", path, None, tokens["owner"])
        assert mine.status == 200
        assert "theirs" not in mine.body.decode()
        assert "known-" not in mine.body.decode()
    assert [each["topic"] for each in secured.call("GET", "/v1/topics").json["topics"]] == [
        "mine",
        "theirs",
    ]
    assert secured.call("GET", f"/v1/jobs/{name}").status == 200
    for method in ("GET", "DELETE"):
        assert secured.call(method, f"/v1/jobs/{name}", None, tokens["owner"]).status == 404


def test_transactions_of_others(secured: Secured, tokens: dict[str, str]) -> None:
    """Only the principal that began one may stage, commit or abort; to others it is unknown."""
    path = "/v1/transactions/known-transaction"
    for method, place, body in (
        ("GET", path, None),
        ("POST", f"{path}/commit", {"winners": []}),
        ("POST", f"{path}/abort", {}),
        ("POST", "/v1/transactions", {"transaction": "known-transaction"}),
    ):
        answer = secured.call(method, place, body, tokens["producer"])
        assert answer.status == 404, (method, place, answer)
    mine = secured.call("POST", "/v1/transactions", {}, tokens["producer"]).json["transaction"]
    assert secured.call("GET", f"/v1/transactions/{mine}", None, tokens["producer"]).status == 200
    assert secured.call("GET", f"/v1/transactions/{mine}").status == 200, "an administrator"
    begun = secured.call("POST", f"/v1/transactions/{mine}/abort", {}, tokens["producer"])
    assert begun.json["state"] == "aborted"


def test_a_commit_needs_the_rights_of_its_time(secured: Secured) -> None:
    token = secured.principal("stager", "send:staged", "send:other")
    name = secured.call("POST", "/v1/transactions", {}, token).json["transaction"]
    path = f"/v1/transactions/{name}"
    rows = msgpack.packb({"v": 1, "n": 1, "delay_ms": 0, "body_size": 1, "bodies": b"a"})
    bulk = {"Content-Type": BULK}
    for part, topic in enumerate(("other", "staged")):
        there = f"{path}/parts?topic={topic}&part={part}"
        assert secured.call("POST", there, rows, token, bulk).status == 200
    winners = [{"part": part, "attempt": 0, "rows": 1} for part in range(2)]
    for grants, status in ((["send:other"], 403), (["send:staged", "send:other"], 200)):
        assert secured.call("PUT", "/v1/principals/stager", {"grants": grants}).status == 200
        answer = secured.call("POST", f"{path}/commit", {"winners": winners}, token)
        assert answer.status == status, answer
    assert answer.json["rows"] == 2


def test_pages_of_topics_pass_over_others(secured: Secured) -> None:
    """Pages are as full as they can be, and no cursor names a foreign topic."""
    token = secured.token("read:page-*5")
    for number in range(30):
        secured.call("PUT", f"/v1/topics/page-{number:02}", {})
    found: list[str] = []
    cursor = ""
    while True:
        path = f"/v1/topics?limit=2&prefix=page-&cursor={cursor}"
        page = secured.call("GET", path, None, token).json
        found += [each["topic"] for each in page["topics"]]
        cursor = page["cursor"]
        if cursor is None:
            break
        assert cursor == found[-1]
    assert found == ["page-05", "page-15", "page-25"]


def test_groups_of_others(secured: Secured) -> None:
    """A grant for one group: receives, claims, settles and reads of other groups are refused."""
    topic = "/v1/topics/grouped"
    for group in ("theirs-group", "ours"):
        assert secured.call("PUT", f"{topic}/groups/{group}", {}).status == 201
    secured.call("POST", f"{topic}/messages", [{"body": "secret-body"}] * 4)
    token = secured.token("receive,read,bodies:grouped:ours")
    there = {"group": "theirs-group"}
    leased = secured.call("POST", f"{topic}/receive", {**there, "max": 2, "wait_ms": 2_000}).json
    receipts = [each["receipt"] for each in leased["messages"]]
    assert len(receipts) == 2
    for call, body in (
        ("receive", there),
        ("receive", {}),
        ("peek", there),
        ("claims/c", there),
        ("ack", {"ids": ["x"], "force": True, **there}),
        ("ack_and_receive", {"receipts": [], **there}),
    ):
        answer = secured.call("POST", f"{topic}/{call}", body, token)
        assert answer.status == 403, (call, answer)
    for path in ("", "/stats", "/stats?group=theirs-group", "/groups/theirs-group", "/messages"):
        answer = secured.call("GET", topic + path, None, token)
        assert answer.status == 403, (path, answer)
    groups = secured.call("GET", f"{topic}/groups", None, token).json["groups"]
    assert [each["group"] for each in groups] == ["ours"]
    settled = secured.call("POST", f"{topic}/ack", {"receipts": receipts}, token)
    assert settled.json["results"] == ["gone", "gone"], "as if the leases had ended"
    assert secured.call("POST", f"{topic}/ack", {"receipts": receipts}).json["results"] == [
        "done",
        "done",
    ]
    ours = secured.call("POST", f"{topic}/receive", {"group": "ours", "wait_ms": 2_000}, token)
    receipt = ours.json["messages"][0]["receipt"]
    assert secured.call("POST", f"{topic}/ack", {"receipts": [receipt]}, token).json["results"] == [
        "done"
    ]


def test_topics_with_names_of_camellia(secured: Secured) -> None:
    """A name that only camellia accepts is no name to callers that may not use the topic."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b"topic=odd%3Aname&msg=x&delayMillis=0"
    sent = secured.call("POST", "/camellia/delayQueue/sendMsg", body, headers=form)
    assert sent.json["code"] == 200
    token = secured.token("read:mine")
    found, none = (
        secured.call("GET", f"/v1/topics/odd%3A{name}/stats", None, token)
        for name in ("name", "none")
    )
    assert (found.status, found.body) == (none.status, none.body)
    owner = secured.token("read:odd*")
    assert secured.call("GET", "/v1/topics/odd%3Aname/stats", None, owner).status == 200


def test_readiness_tells_strangers_nothing_else(secured: Secured, broker: Broker) -> None:
    for token in (None, "dlt_wrong"):
        assert secured.call("GET", "/readyz", None, token).json == {"status": "ready"}
    for shown in (secured.call("GET", "/readyz"), broker.call("GET", "/readyz")):
        assert shown.json == {"status": "ready", "disk_full": False, "clock_held_ms": 0}


def test_each_call_that_names_a_group_asks_for_it(secured: Secured) -> None:
    """The decision before the handler is not enough for these: the body is not read by then."""
    document = secured.call("GET", "/openapi.json").json
    shapes = document["components"]["schemas"]
    token = secured.token("admin:mine:ours")
    asked = []
    for name, method, path in routes(secured):
        if name not in NEEDS:
            continue
        operation = document["paths"][path][method.lower()]
        query = [each.get("name") for each in operation.get("parameters", [])]
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        place, body = filled(path, "default", "mine"), BODIES.get(name)
        if "group" in query:
            place += "?group=theirs-group" + ("&from=0&to=1" if "from" in query else "")
        elif "'group'" in str(schema_of(content.get("schema", {}), shapes)):
            body = {**(body or {}), "group": "theirs-group"}
        else:
            continue
        asked.append(name)
        answer = secured.call(method, place, body, token)
        assert answer.status == 403, (name, answer)
        assert "theirs-group" in answer.json["detail"], (name, answer)
    assert {"receive", "purge", "getForecast", "listDead", "ackClaim", "readClaim"} < {*asked}


def schema_of(schema: dict[str, Any], shapes: dict[str, Any]) -> Any:
    """The names of the members that a schema declares."""
    if "$ref" in schema:
        return schema_of(shapes[schema["$ref"].rpartition("/")[2]], shapes)
    several = [each for word in ("anyOf", "oneOf", "allOf") for each in schema.get(word, ())]
    return [*schema.get("properties", ()), *(schema_of(each, shapes) for each in several)]


def test_names_of_groups(secured: Secured) -> None:
    """A refusal lists the groups of a topic only to callers that may know all of them."""
    topic = "/v1/topics/named"
    assert secured.call("PUT", f"{topic}/groups/theirs-group", {}).status == 201
    token = secured.token("receive,read,bodies,admin,change:named:ours")
    wanted = {"group": "ours"}
    for method, path, body in (
        *(("POST", each, wanted) for each in ("receive", "peek", "claims/c", "purge")),
        ("POST", "ack", {"ids": ["x"], "force": True, **wanted}),
        ("POST", "ack_and_receive", {"receipts": [], **wanted}),
        *(("GET", f"{each}?group=ours", None) for each in ("stats", "forecast", "messages")),
        ("GET", "groups/ours", None),
        ("DELETE", "groups/ours", None),
    ):
        answer = secured.call(method, f"{topic}/{path}", body, token)
        assert answer.status == 404, (path, answer)
        assert_tells_nothing(answer, "unknown")
        assert b"default" not in answer.body
    shown = secured.call("POST", f"{topic}/receive", wanted).json["detail"]
    assert "its groups are default, theirs-group" in shown


def test_keys_and_producers_of_others(secured: Secured) -> None:
    """Two principals may use the same key or producer: neither suppresses nor learns of sends."""
    first, second = (secured.token("send:shared") for _ in range(2))
    path, key = "/v1/topics/shared/messages", {"Idempotency-Key": "k"}
    sent = [secured.call("POST", path, {"body": "x"}, each, key).json for each in (first, second)]
    assert sent[0]["id"] != sent[1]["id"]
    other = secured.call("POST", path, {"body": "other"}, secured.token("send:shared"), key)
    assert other.status == 200
    assert secured.call("POST", path, {"body": "x"}, first, key).json == sent[0]
    columns = {"v": 1, "n": 1, "delay_ms": 0, "body_size": 1, "bodies": b"a"}
    columns |= {"producer": "p", "sequence": 1}
    bulk = {"Content-Type": BULK, "Accept": BULK}
    answers = [
        secured.call("POST", path, msgpack.packb(columns), token, bulk).body
        for token in (first, second, first)
    ]
    assert answers[0] == answers[2] != answers[1]
    assert secured.call("GET", "/v1/topics/shared/stats").json["sent"] == 5


def test_bodies_need_their_own_right(secured: Secured, tokens: dict[str, str]) -> None:
    for role, shown in (("viewer", False), ("reader", True)):
        path = "/v1/topics/mine/messages/known-id"
        found = secured.call("GET", path, None, tokens[role])
        if found.status == 404:
            pytest.fail("the message is gone: a refused call has changed something")
        assert ("secret-body" in found.body.decode()) == shown
        listed = secured.call("GET", "/v1/topics/mine/messages?bodies=true", None, tokens[role])
        assert listed.status == (200 if shown else 403)


@pytest.mark.parametrize("name", OF_CAMELLIA)
def test_camellia(secured: Secured, tokens: dict[str, str], name: str) -> None:
    (path,) = [
        *(f"/camellia/delayQueue/{call}" for call in CAMELLIA if call == name),
        *(path for path in PLAIN if path.rpartition("/")[2] == name),
    ]
    methods = (CAMELLIA[name].method,) if name in CAMELLIA else PLAIN[path][0]
    query = "topic={}&msg=secret-body&delayMillis=1&msgId=known-id&ack=true"
    needed = OF_CAMELLIA[name]
    before = without_times(state(secured))
    for method, role, topic in product(methods[:1], ROLES, ("mine", "theirs", "nowhere")):
        wide = name in ("getTopicInfoList", "getMonitorData", "getMonitorString")
        if needed in ROLES[role] and topic == "mine" and not wide:
            continue
        filled_in = query.format(topic)
        body = filled_in.encode() if method == "POST" else None
        place = path if method == "POST" else f"{path}?{filled_in}"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = secured.call(method, place, body, tokens[role], headers)
        assert answer.status == (200 if needed == "nothing" else 403), (role, topic, answer)
        anonymous = secured.call(method, place, body, None, headers)
        assert anonymous.status == (200 if needed == "nothing" else 401)
    assert without_times(state(secured)) == before


def test_refusals_are_alike(secured: Secured, tokens: dict[str, str]) -> None:
    """A topic that exists and one that does not are refused with the same words."""
    for name, method, path in routes(secured):
        if name in NEEDS:
            texts = [
                json.dumps(
                    secured.call(
                        method, filled(path, "default", topic), BODIES.get(name), tokens["nobody"]
                    ).json
                ).replace(topic, "T")
                for topic in ("theirs", "nowhere")
            ]
            assert texts[0] == texts[1], name
