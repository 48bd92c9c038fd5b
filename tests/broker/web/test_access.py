"""Every route that a broker serves, for every role, on topics of its own and of others."""

from __future__ import annotations

import json
from itertools import product

import pytest

from delaylog.broker.camellia.face import CALLS as CAMELLIA
from delaylog.broker.camellia.face import PLAIN
from delaylog.broker.engine.access.token_form import make_token
from tests.broker.conftest import Secured
from tests.broker.web.access_calls import (
    BODIES,
    ELSEWHERE,
    GRANTS,
    NEEDS,
    OF_CAMELLIA,
    ROLES,
    assert_tells_nothing,
    filled,
    routes,
    state,
    without_times,
)


@pytest.fixture(scope="module")
def tokens(secured: Secured) -> dict[str, str]:
    """A token for each role, and what they must not see or change."""
    for topic in ("mine", "theirs"):
        body = {"id": "known-id", "body": "secret-body", "delay_ms": 3_600_000}
        assert secured.call("POST", f"/v1/topics/{topic}/messages", body).status == 200
        yearly = {"cron": "0 0 29 2 *", "body": "secret-body"}
        place = f"/v1/topics/{topic}/schedules/known-schedule"
        assert secured.call("PUT", place, yearly).status == 201
    assert secured.call("POST", "/v1/ns/else/topics/mine/messages", body).status == 200
    assert (
        secured.call("POST", "/v1/topics/theirs/claims/known-claim", {"lease_ms": 600_000}).status
        == 200
    )
    begun = secured.call("POST", "/v1/transactions", {"transaction": "known-transaction"})
    assert begun.status == 200
    return {role: secured.token(*grants) for role, grants in GRANTS.items()}


def test_every_route_is_written_down(secured: Secured) -> None:
    found = {name.removesuffix("InNamespace") for name, _, _ in routes(secured)}
    known = NEEDS.keys() | ELSEWHERE.keys()
    assert found == known, "NEEDS of access_calls.py says which right each call needs"
    plain = {path.rpartition("/")[2] for path in PLAIN}
    assert CAMELLIA.keys() | plain == OF_CAMELLIA.keys()


def test_strangers_learn_no_versions(secured: Secured) -> None:
    """Of Python and aiohttp, by refusals on all paths of the parser and by an open call."""
    wires = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"nonsense\r\n\r\n",
    ]
    for wire in wires:
        answer = secured.broker.raw(wire)
        assert answer.startswith(b"HTTP/1.")
        assert b"aiohttp" not in answer, wire
        assert b"Python" not in answer, wire


def test_without_a_token(secured: Secured, tokens: dict[str, str]) -> None:
    """No call but those of health is answered, whatever it would be, and nothing changes."""
    before = without_times(state(secured))
    owner = tokens["owner"]
    altered = owner[:-1] + ("y" if owner.endswith("x") else "x")
    for name, method, path in routes(secured):
        place = filled(path, "default", "mine")
        for token in (None, make_token(bytes(32)), altered):
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


def test_bodies_need_their_own_right(secured: Secured, tokens: dict[str, str]) -> None:
    for role, shown in (("viewer", False), ("reader", True)):
        path = "/v1/topics/mine/messages/known-id"
        found = secured.call("GET", path, None, tokens[role])
        if found.status == 404:
            pytest.fail("the message is gone: a refused call has changed something")
        assert ("secret-body" in found.body.decode()) == shown
        listed = secured.call("GET", "/v1/topics/mine/messages?bodies=true", None, tokens[role])
        assert listed.status == (200 if shown else 403)
        # A count by reason would confirm what a failure said.
        count = "/v1/topics/mine/messages:count?reason=no%20paper"
        counted = secured.call("GET", count, None, tokens[role])
        assert counted.status == (200 if shown else 403)


def test_reasons_need_the_right_to_bodies(secured: Secured) -> None:
    """Reasons may quote messages: without `bodies` a dead letter shows how its attempts failed."""
    topic = "/v1/topics/quoted"
    secured.call("POST", f"{topic}/messages", {"id": "m", "body": "x"})
    asked = {"wait_ms": 5_000, "consumer": "w-1"}
    (got,) = secured.call("POST", f"{topic}/receive", asked).json["messages"]
    rejected = {"receipts": [got["receipt"]], "reason": "secret-body"}
    assert secured.call("POST", f"{topic}/reject", rejected).json["results"] == ["done"]
    paths = [f"{topic}/messages/m?life=true", f"{topic}/dead?history=true", f"{topic}/dead/reasons"]
    for grant, shown in (("viewer", False), ("read,bodies", True)):
        token = secured.token(grant)
        for path in paths:
            answer = secured.call("GET", path, None, token)
            assert ("secret-body" in answer.body.decode()) is shown, path
            assert b"rejected" in answer.body, path
        (failure,) = secured.call("GET", paths[0], None, token).json["failures"]
        assert (failure["cause"], failure["consumer"]) == ("rejected", "w-1")


def test_the_reason_of_a_job_needs_the_right_bodies(secured: Secured) -> None:
    """The filter of a job may name what a failure said."""
    secured.call("PUT", "/v1/topics/jobbed", {})
    body = {"filter": {"state": "waiting", "reason": "secret-reason", "cause": "nack"}}
    begun = secured.call("POST", "/v1/topics/jobbed/messages:cancel", body).json
    assert begun["filter"] == body["filter"]
    for grant, shown in (("read:jobbed", False), ("read,bodies:jobbed", True)):
        token = secured.token(grant)
        (listed,) = secured.call("GET", "/v1/jobs", None, token).json["jobs"]
        one = secured.call("GET", f"/v1/jobs/{begun['job']}", None, token).json
        assert listed["filter"] == one["filter"]
        assert ("reason" in one["filter"]) == shown
        assert one["filter"]["cause"] == "nack"


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
