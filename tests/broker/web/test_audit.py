"""The audit log of a real broker: who called what, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import Broker, Secured
from tests.broker.web.test_fast_lane import request
from tests.waiting import await_that


def test_an_administrative_call(secured: Secured) -> None:
    """Its line is on disk before it is carried out, and its answer names the request."""
    headers = {"X-Request-Id": "mine-1"}
    made = secured.call("PUT", "/v1/topics/audited", {"order": "priority"}, headers=headers)
    assert made.headers["X-Request-Id"] == "mine-1"
    begun, done = secured.broker.await_audit_lines("putTopic", 2)
    assert begun["outcome"] == "begun"
    assert done["outcome"] == "done"
    for line in (begun, done):
        assert line["principal"] == "admin"
        assert line["address"] == "127.0.0.1"
        assert line["face"] == "http"
        assert line["right"] == "admin"
        assert (line["namespace"], line["topic"]) == ("default", "audited")
        assert line["request_id"] == "mine-1"
    token = secured.principal("seen", "send:a", "receive:b")
    (begun, done) = secured.broker.await_audit_lines("putPrincipal", 2)
    assert done["facts"] == {"principal": "seen", "grants": "send:a receive:b"}
    assert done["request_id"] not in ("", "mine-1")
    assert token not in json.dumps(secured.broker.audit_lines())


def test_changing_calls_and_no_others(secured: Secured) -> None:
    secured.call("POST", "/v1/topics/changed/messages", {"id": "one", "body": "secret-body"})
    cancelled = {"ids": ["one", "none"]}
    secured.call("POST", "/v1/topics/changed/messages:cancel", cancelled)
    (line,) = secured.broker.await_audit_lines("cancelMany", 1)
    assert (line["outcome"], line["count"]) == ("done", 2)
    secured.call("DELETE", "/v1/topics/changed/messages/none")
    (line,) = secured.broker.await_audit_lines("cancel", 1)
    assert (line["outcome"], line["facts"]["id"]) == ("unknown", "none")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/camellia/delayQueue/deleteMsg"
    assert secured.call("POST", path, b"topic=changed&msgId=x", headers=form).status == 200
    (line,) = secured.broker.await_audit_lines("deleteMsg", 1)
    assert (line["face"], line["topic"]) == ("camellia", "changed")
    everything = json.dumps(secured.broker.audit_lines())
    assert '"send"' not in everything, "a data call"
    assert "secret-body" not in everything


def test_refusals(secured: Secured) -> None:
    token = secured.principal("nosy", "send:mine")
    for _ in range(3):
        assert secured.call("POST", "/v1/topics/theirs/purge", {}, token).status == 403
    (line,) = secured.broker.await_audit_lines("purge", 1)
    assert (line["principal"], line["outcome"]) == ("nosy", "forbidden")
    assert secured.call("GET", "/v1/nothing", None, None).status == 401
    (line,) = secured.broker.await_audit_lines("/v1/nothing", 1)
    assert (line["principal"], line["outcome"]) == (None, "unauthorized")


def test_strangers_make_no_series_of_metrics(secured: Secured) -> None:
    """Whatever paths they ask for, by either way."""

    def series() -> set[str]:
        page = secured.call("GET", "/metrics").body.decode()
        return {line.split(" ")[0] for line in page.splitlines() if "request_seconds" in line}

    secured.call("POST", "/v1/topics/t/messages", {"body": "x", "delay_ms": 3_600_000})
    for path in ("/none", "/v1/topics/t/messages"):
        assert secured.call("POST", path, {}, None).status == 401
    before = series()
    for number in range(50):
        for path in (f"/x{number}", f"/v1/topics/t{number}/messages", f"/camellia/{number}"):
            for headers in ({}, {"X-Request-Id": "mine"}):
                assert secured.call("POST", path, {}, "dlt_x", headers).status == 401
    new = {line for line in series() - before if "camellia" not in line}
    assert not new
    assert "/camellia" not in "".join(series())


@pytest.mark.parametrize("known", [False, True])
def test_a_stranger_is_audited_alike_by_all_ways(
    secured_broker: Callable[..., Secured], known: bool
) -> None:
    """Lines of strangers are merged, so each way has a broker."""
    found = []
    for headers in ({}, {"X-Request-Id": "mine"}):
        secured = secured_broker()
        for _ in range(2 if known else 0):
            secured.call("POST", "/v1/topics/t/messages", {"body": "x"}, headers=headers)
        assert secured.call("POST", "/v1/topics/t/messages", {}, None, headers).status == 401
        (line,) = secured.broker.await_audit_lines("send", 1)
        found.append([line[name] for name in ("right", "namespace", "topic", "outcome")])
    assert found == [["send", "default", "t", "unauthorized"]] * 2


def test_what_a_call_changes(secured: Secured) -> None:
    """Lines name the settings, also what a principal gets besides its grants."""
    settings = {"grants": ["send:a"], "certificates": ["cn:eve"]}
    assert secured.call("PUT", "/v1/principals/eve", settings).status == 201
    assert secured.call("PUT", "/v1/topics/set", {"max_retry": 3}).status == 201
    assert secured.call("DELETE", "/v1/topics/set?force=true").status == 200
    job = secured.call("POST", "/v1/topics/a/messages:cancel", {"filter": {"tag": "x"}})
    assert job.status in (202, 404)
    done = {line["call"]: line["facts"] for line in await_lines(secured.broker, "cancelMany", "a")}
    assert done["putPrincipal"] == {
        "principal": "eve",
        "grants": "send:a",
        "certificates": "cn:eve",
    }
    assert done["putTopic"] == {"max_retry": 3}
    assert done["deleteTopic"] == {"force": True}
    assert done["cancelMany"]["filter"] == '{"tag":"x"}'


def await_lines(broker: Broker, call: str, topic: str) -> list[dict[str, Any]]:
    """All lines of outcomes, once there is one of this call and topic."""

    def found() -> list[dict[str, Any]]:
        return [line for line in broker.audit_lines() if line["outcome"] != "begun"]

    await_that(
        lambda: any((line["call"], line["topic"]) == (call, topic) for line in found()),
        lambda: f"{call}: {found()}",
    )
    return found()


def test_a_client_that_leaves(secured_broker: Callable[..., Secured]) -> None:
    """Its call may have been carried out: the line does not say that it failed."""
    secured = secured_broker("--audit", "all")
    with secured.broker.connect() as sock:
        token = f"Authorization: Bearer {secured.admin}\r\n"
        sock.sendall(request("/v1/topics/left/receive", b'{"wait_ms": 20000}', token))
        secured.await_a_waiting_call()
    (line,) = secured.broker.await_audit_lines("receive", 1)
    assert line["outcome"] == "client_left"


def test_refusals_over_camellia(secured: Secured) -> None:
    """Its refusals have status 200: the line tells them all the same, and names the face."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/camellia/delayQueue/deleteMsg"
    token = secured.principal("camel", "send:mine")
    refused = secured.call("POST", path, b"topic=theirs&msgId=y", token, form)
    assert refused.status == 403
    found = await_lines(secured.broker, "deleteMsg", "theirs")
    line = next(line for line in found if line["principal"] == "camel")
    assert (line["face"], line["outcome"]) == ("camellia", "forbidden")
    assert line["facts"] == {"id": "y"}


def test_all_calls(secured_broker: Callable[..., Secured]) -> None:
    secured = secured_broker("--audit", "all")
    secured.call("POST", "/v1/topics/a/messages", [{"body": "x"}] * 3)
    secured.call("POST", "/v1/topics/a/receive", {"max": 10, "wait_ms": 20_000})
    (sent,), (received,) = (
        secured.broker.await_audit_lines("send", 1),
        secured.broker.await_audit_lines("receive", 1),
    )
    assert (sent["count"], sent["right"]) == (3, "send")
    assert received["count"] == 3


def test_no_administration_without_an_audit(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """If the log cannot be written, data calls go on; administrative ones are refused."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "audit").write_text("in the way")
    broker = start_broker(folder=tmp_path)
    refused = broker.call("PUT", "/v1/topics/a", {})
    assert refused.status == 503
    assert "audit log cannot be written" in refused.json["detail"]
    assert broker.call("GET", "/v1/topics/a").status == 404, "nothing was done"
    assert broker.call("POST", "/v1/topics/b/messages", {"body": "x"}).status == 200
    (data / "audit").unlink()
    await_that(
        lambda: broker.call("PUT", "/v1/topics/a", {}).status == 201,
        lambda: "administration does not come back",
    )
