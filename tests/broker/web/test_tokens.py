"""Tokens over their lives: rotated, expired, revoked while calls wait, limited, lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from delaylog.broker.calls.access.first_admin import leave_digest
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, is_token, make_token
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.conftest import Broker, Secured
from tests.waiting import await_that

WAIT_MS = 20_000
LIFE_MS = 5_000
"""A busy machine may need seconds to make a token and to use it."""


def works(secured: Secured, token: str) -> bool:
    status = secured.call("GET", "/v1/session", None, token).status
    assert status in (200, 401)
    return status == 200


def test_a_rotation_keeps_the_previous_token(secured: Secured) -> None:
    first = secured.principal("rotated", "send")
    path = "/v1/principals/rotated/rotate"
    second = secured.call("POST", path, {}).json["token"]
    third = secured.call("POST", path, {"grace_ms": 600_000}).json["token"]
    assert all(map(is_token, (first, second, third)))
    assert [works(secured, each) for each in (first, second, third)] == [False, True, True]
    shown = secured.call("POST", path, {"finish": True}).json
    assert shown["token"] is None
    assert len(shown["tokens"]) == 1
    assert [works(secured, each) for each in (second, third)] == [False, True]
    ended = secured.call("POST", path, {"grace_ms": 0}).json["token"]
    await_that(lambda: not works(secured, third), lambda: "it outlives its grace")
    assert works(secured, ended)


def test_a_rotation_keeps_the_lifetime(secured: Secured) -> None:
    """Otherwise a forgotten option would make a token without end."""
    now_ms = secured.call("GET", "/v1/clock").json["now_ms"]
    body = {"grants": ["send"], "expires_at_ms": now_ms + 90_000}
    assert secured.call("PUT", "/v1/principals/lasting", body).status == 201
    path = "/v1/principals/lasting/rotate"
    for body, lifetime_ms in (({}, 90_000), ({"expires_at_ms": now_ms + 500_000}, 500_000)):
        newest = secured.call("POST", path, body).json["tokens"][-1]
        assert abs(newest["expires_at_ms"] - newest["created_ms"] - lifetime_ms) < 30_000
    assert secured.call("POST", "/v1/principals/nobody/rotate", {}).status == 404
    endless = secured.principal("endless", "send")
    rotated = secured.call("POST", "/v1/principals/endless/rotate", {}).json
    assert rotated["tokens"][-1]["expires_at_ms"] is None
    assert works(secured, endless)


@pytest.mark.parametrize("member", ["grace_ms", "expires_at_ms"])
def test_a_finish_takes_nothing_of_a_new_token(secured: Secured, member: str) -> None:
    """It makes none; ignoring the member would let its caller believe in it."""
    secured.principal(f"finished-{member}", "send")
    path = f"/v1/principals/finished-{member}/rotate"
    assert secured.call("POST", path, {}).status == 200
    now_ms = secured.call("GET", "/v1/clock").json["now_ms"]
    refused = secured.call(
        "POST", path, {"finish": True, member: now_ms + 90_000 if member == "expires_at_ms" else 0}
    )
    assert (refused.status, refused.json["field"]) == (400, member)
    assert len(secured.call("GET", f"/v1/principals/finished-{member}").json["tokens"]) == 2


def test_a_token_expires(secured: Secured) -> None:
    now_ms = secured.call("GET", "/v1/clock").json["now_ms"]
    answer = secured.call(
        "PUT", "/v1/principals/short", {"grants": ["send"], "expires_at_ms": now_ms + LIFE_MS}
    )
    token = answer.json["token"]
    assert works(secured, token)
    await_that(lambda: not works(secured, token), lambda: "it does not expire")
    assert secured.call("GET", "/v1/clock").json["now_ms"] >= now_ms + LIFE_MS, "not before"
    past = secured.call("PUT", "/v1/principals/past", {"grants": [], "expires_at_ms": now_ms - 1})
    assert past.status == 400
    assert past.json["field"] == "expires_at_ms"


@pytest.mark.parametrize("change", ["revoke", "narrow"])
def test_a_waiting_call_ends_with_its_rights(secured: Secured, change: str) -> None:
    """A long poll of a revoked principal is cut within a second, and leases nothing."""
    # A busy machine may take longer once.
    turns = sorted(seconds_to_cut(secured, change, f"cut-{change}-{turn}") for turn in range(3))
    assert turns[1] < 1.0, turns


def seconds_to_cut(secured: Secured, change: str, name: str) -> float:
    """How long a long poll outlives the rights of its principal."""
    token = secured.principal(name, f"receive:{name}")
    headers = {"Authorization": f"Bearer {token}"}
    receive = f"/v1/topics/{name}/receive"
    waiting = secured.broker.later("POST", receive, {"wait_ms": WAIT_MS}, headers)
    secured.await_a_waiting_call()
    began = time.monotonic()
    if change == "revoke":
        assert secured.call("DELETE", f"/v1/principals/{name}").status == 200
    else:
        body = {"grants": [f"read:{name}"]}
        assert secured.call("PUT", f"/v1/principals/{name}", body).status == 200
    with pytest.raises(ConnectionError):
        waiting.result(WAIT_MS / 1000)
    took_s = time.monotonic() - began
    sent = secured.call("POST", f"/v1/topics/{name}/messages", {"body": "x"})
    assert sent.status == 200
    received = secured.call("POST", receive, {"wait_ms": WAIT_MS}).json
    assert len(received["messages"]) == 1, "nobody has leased it"
    return took_s


def test_a_waiting_call_survives_a_rotation(secured: Secured) -> None:
    token = secured.principal("steady", "receive:steady")
    headers = {"Authorization": f"Bearer {token}"}
    receive = "/v1/topics/steady/receive"
    waiting = secured.broker.later("POST", receive, {"wait_ms": WAIT_MS}, headers)
    assert secured.call("POST", "/v1/principals/steady/rotate", {}).status == 200
    time.sleep(1)
    assert secured.call("POST", "/v1/topics/steady/messages", {"body": "x"}).status == 200
    assert len(waiting.result(WAIT_MS / 1000).json["messages"]) == 1


def test_tokens_are_exchanged_under_load(secured: Secured) -> None:
    """Rotations fail no call of clients that follow; the first call after a revocation fails.

    A client that was slow would still use the token before the previous one, which has ended: so a
    rotation waits until each has begun a call with the newest.
    """
    name = "busy"
    current = [secured.principal(name, f"send:{name}")]
    used = [""] * 4
    stop = threading.Event()

    def send(number: int) -> list[int]:
        statuses = []
        while not stop.is_set():
            body = {"body": "x"}
            token = used[number] = current[0]
            answer = secured.call("POST", f"/v1/topics/{name}/messages", body, token)
            statuses.append(answer.status)
        return statuses

    with ThreadPoolExecutor(len(used)) as pool:
        sending = [pool.submit(send, number) for number in range(len(used))]
        try:
            for _ in range(10):
                rotated = secured.call("POST", f"/v1/principals/{name}/rotate", {})
                current[0] = rotated.json["token"]
                await_that(lambda: set(used) == {current[0]})
                time.sleep(0.05)
        finally:
            stop.set()
    statuses = [status for each in sending for status in each.result()]
    assert set(statuses) == {200}
    assert len(statuses) > 20
    assert secured.call("DELETE", f"/v1/principals/{name}").status == 200
    path = f"/v1/topics/{name}/messages"
    assert secured.call("POST", path, {"body": "x"}, current[0]).status == 401


def test_what_is_shown_of_a_principal(secured: Secured) -> None:
    """Never a token or its digest; when it was last used."""
    settings: dict[str, Any] = {
        "certificates": ["dns:shown.example"],
        "messages_per_s": 5,
        "calls_per_s": 1_000,
    }
    token = secured.principal("shown", "send:a", "receive:b/c:d", **settings)
    assert works(secured, token)
    shown = secured.call("GET", "/v1/principals/shown")
    assert shown.json["grants"] == ["send:default/a", "receive:b/c:d"]
    assert {name: shown.json[name] for name in settings} == settings
    now_ms = secured.call("GET", "/v1/clock").json["now_ms"]
    assert now_ms - 60_000 < shown.json["used_ms"] <= now_ms
    assert "dlt_" not in shown.body.decode()
    assert set(shown.json["tokens"][0]) == {"created_ms", "expires_at_ms"}
    assert secured.call("PUT", "/v1/principals/shown", {"grants": []}).json["token"] is None
    assert works(secured, token), "a change keeps the token"
    assert secured.call("POST", "/v1/topics/a/messages", {"body": "x"}, token).status == 403


def test_limits_of_a_principal(secured: Secured) -> None:
    token = secured.token("send:limited", messages_per_s=3)
    path = "/v1/topics/limited/messages"
    many = secured.call("POST", path, [{"body": "x"}] * 4, token)
    assert (many.status, many.json["code"]) == (413, "too_large"), "no repeat helps"
    assert "Retry-After" not in many.headers
    assert "the principal's limit of 3 a second: send fewer at once" in many.json["detail"]
    assert secured.call("POST", path, [{"body": "x"}] * 3, token).status == 200
    sent = 3
    while (refused := secured.call("POST", path, {"body": "x"}, token)).status == 200:
        # Before a slow machine asks, the limit has grown back a little.
        sent += 1
        assert sent < 100
    assert refused.status == 429
    assert refused.headers["Retry-After"] == "1"
    assert secured.call("GET", "/v1/topics/limited/stats").json["sent"] == sent
    calls = secured.token("read", calls_per_s=2)
    began_s = time.monotonic()
    statuses = [secured.call("GET", "/v1/topics", None, calls).status for _ in range(6)]
    took_s = time.monotonic() - began_s
    assert set(statuses) <= {200, 429}
    assert 2 <= statuses.count(200) <= 3 + 2 * took_s


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"grants": ["sends:x"]}, "grants"),
        ({"grants": "send"}, "grants"),
        ({"certificates": ["x"]}, "certificates"),
        ({"messages_per_s": -1}, "messages_per_s"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_wrong_settings(
    secured: Secured, assert_problem: Callable[..., Any], body: Any, field: str
) -> None:
    answer = secured.call("PUT", "/v1/principals/wrong", body)
    assert_problem(answer, 400, "bad_request", field=field)
    assert secured.call("GET", "/v1/principals/wrong").status == 404


def test_the_first_principal_is_an_administrator(broker: Broker) -> None:
    """Otherwise nobody could make another one."""
    path = "/v1/principals/first"
    refused = broker.call("PUT", path, {"grants": ["send"]})
    assert refused.status == 409
    assert "must have the grant admin" in refused.json["detail"]
    assert broker.call("GET", "/v1/topics").status == 200, "nobody needs a token yet"
    made = broker.call("PUT", path, {"grants": ["admin"]})
    assert made.status == 201
    assert broker.call("GET", "/v1/topics").status == 401
    headers = {"Authorization": f"Bearer {made.json['token']}"}
    assert broker.call("GET", "/v1/topics", None, headers).status == 200


@pytest.mark.parametrize("name", ["a%20b", "oidc:x", ".x", "a" * 101, "%ff"])
def test_wrong_names(secured: Secured, name: str) -> None:
    assert secured.call("PUT", f"/v1/principals/{name}", {"grants": []}).status == 400


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic YTpi", "bearer {}", "Bearer {} x", "Token {}", "{}"]
)
def test_other_headers_are_no_tokens(secured: Secured, header: str) -> None:
    given = {"Authorization": header.format(secured.admin)}
    assert secured.call("GET", "/v1/topics", None, None, given).status == 401


@pytest.mark.parametrize(
    "header",
    [b"Authorization: Bearer \xff", b'Cookie: delaylog-session="\xff"', b"Authorization: \xff"],
)
def test_bytes_that_are_not_utf_8_are_no_token(secured: Secured, header: bytes) -> None:
    """They are refused as any unknown token is, without a traceback in the log."""
    head = b"GET /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%b\r\n\r\n"
    assert secured.broker.raw(head % header).startswith(b"HTTP/1.1 401 ")


def test_a_restart_and_a_lost_token(secured_broker: Callable[..., Secured]) -> None:
    """Principals survive kill -9. The owner of the folder can make a new administrator's token."""
    secured = secured_broker()
    token = secured.token("send")
    folder = str(secured.broker.data_dir)
    waiting = secured.broker.data_dir / "first-admin"
    await_that(lambda: not waiting.exists(), lambda: "the digest stays in the folder")
    secured.broker.crash()
    fresh = make_token(os.urandom(RANDOM_BYTES))
    leave_digest(OsFileSystem(), folder, fresh)
    secured.broker.start()
    assert works(secured, token)
    assert works(secured, fresh)
    assert not works(secured, secured.admin), "the lost one ends at once"
    secured.admin = fresh
    assert secured.call("GET", "/v1/principals").status == 200
    for path in secured.broker.data_dir.rglob("*"):
        if path.is_file() and path.name != "reserve":
            content = path.read_bytes()
            assert token.encode() not in content
            assert fresh.encode() not in content
    assert "dlt_" not in secured.broker.log_path.read_text()
