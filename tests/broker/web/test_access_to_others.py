"""What callers must not reach or learn: groups, names, keys and transactions of others."""

from __future__ import annotations

from typing import Any

import msgpack

from tests.broker.conftest import BULK, Broker, Secured
from tests.broker.web.access_calls import BODIES, NEEDS, assert_tells_nothing, filled, routes


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
    leased = secured.call("POST", f"{topic}/receive", {**there, "max": 2, "wait_ms": 20_000}).json
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
    ours = secured.call("POST", f"{topic}/receive", {"group": "ours", "wait_ms": 20_000}, token)
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


def test_a_count_needs_the_right_for_what_it_counts(secured: Secured) -> None:
    count = "/v1/topics/counted/messages:count"
    assert secured.call("PUT", "/v1/topics/counted/groups/ours", {}).status == 201
    token = secured.token("read:counted:ours")
    assert secured.call("GET", f"{count}?group=ours", None, token).status == 200
    for place in (count, f"{count}?group=default"):
        assert secured.call("GET", place, None, token).status == 403, place


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
