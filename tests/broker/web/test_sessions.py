"""Sessions of browsers: a cookie that scripts cannot read, a CSRF token, tickets."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Any

import pytest

from delaylog.broker.calls.access.sessions import SESSION_MS
from tests.broker.answer import Answer
from tests.broker.conftest import Broker, Secured


class Browser:
    """A browser that has logged in."""

    def __init__(self, secured: Secured, token: str) -> None:
        self._broker = secured.broker
        opened = secured.call("POST", "/v1/session", {}, token)
        assert opened.status == 201, opened
        self.csrf: str = opened.json["csrf"]
        self.cookie = SimpleCookie(opened.headers["Set-Cookie"])["delaylog-session"]

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        given = {"Cookie": f"other=1; delaylog-session={self.cookie.value}", **headers}
        return self._broker.call(method, path, body, given)


@pytest.fixture(scope="module")
def browser(secured: Secured) -> Browser:
    return Browser(secured, secured.token("admin:mine"))


def test_the_cookie(browser: Browser) -> None:
    assert browser.cookie["httponly"]
    assert browser.cookie["samesite"] == "Strict"
    assert browser.cookie["path"] == "/"
    assert browser.cookie["domain"] == "", "no other host gets it"
    assert len(browser.cookie.value) >= 43


def test_reads_need_the_cookie_and_changes_the_csrf_token(browser: Browser) -> None:
    assert browser.call("GET", "/v1/topics").status == 200
    path = "/v1/topics/mine/messages"
    for headers in ({}, {"Delaylog-CSRF": ""}, {"Delaylog-CSRF": browser.csrf[:-1] + "x"}):
        refused = browser.call("POST", path, {"body": "x"}, **headers)
        assert refused.status == 403
        assert "Delaylog-CSRF" in refused.json["detail"]
    csrf = {"Delaylog-CSRF": browser.csrf}
    assert browser.call("POST", path, {"body": "x"}, **csrf).status == 200
    assert browser.call("POST", "/v1/topics/other/messages", {"body": "x"}, **csrf).status == 403
    assert browser.call("GET", "/v1/topics/mine/stats").json["sent"] == 1


def test_a_csrf_token_that_is_not_utf_8(browser: Browser) -> None:
    head = (
        b"DELETE /v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Cookie: delaylog-session=%b\r\nDelaylog-CSRF: \xff\r\n\r\n"
    )
    answer = browser._broker.raw(head % browser.cookie.value.encode())
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_a_switch_needs_the_csrf_token_with_each_method(secured: Secured) -> None:
    """camellia takes a node out of service by GET, which any page on the same host can send."""
    operator = secured.token("operate")
    browser = Browser(secured, operator)
    path = "/camellia/health/online"
    assert browser.call("GET", path).status == 403
    ticket = secured.call("POST", "/v1/session/ticket", {}, operator).json["ticket"]
    assert secured.broker.call("GET", f"{path}?ticket={ticket}").status == 401
    assert browser.call("GET", path, None, **{"Delaylog-CSRF": browser.csrf}).status == 200
    assert secured.call("GET", path, None, operator).status == 200


def test_who_is_logged_in(secured: Secured, browser: Browser) -> None:
    shown = browser.call("GET", "/v1/session").json
    assert shown["csrf"] == browser.csrf
    assert shown["cluster"] is False
    assert shown["grants"] == [
        "admin,bodies,change,read,receive,send:default/mine",
    ]
    assert secured.call("GET", "/v1/session").json["csrf"] is None


def test_the_time_at_which_a_session_ends(secured: Secured) -> None:
    """Its token does not expire; a call with the token itself says so."""
    token = secured.token("send")
    browser = Browser(secured, token)
    now_ms = secured.call("GET", "/v1/clock").json["now_ms"]
    expires_at_ms = browser.call("GET", "/v1/session").json["expires_at_ms"]
    assert 0 <= now_ms + SESSION_MS - expires_at_ms < 60_000
    by_token = {"Authorization": f"Bearer {token}"}
    assert browser.call("GET", "/v1/session", None, **by_token).json["expires_at_ms"] is None


def test_another_page_cannot_use_it(browser: Browser) -> None:
    """SameSite is the browser's work; the broker itself refuses the origin of another page."""
    csrf = {"Delaylog-CSRF": browser.csrf}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert browser.call("GET", "/v1/topics", None, **headers).status == 403
        assert browser.call("POST", "/v1/topics/mine/purge", {}, **csrf, **headers).status == 403


def test_a_session_ends(secured: Secured) -> None:
    browser = Browser(secured, secured.token("read"))
    ended = browser.call("DELETE", "/v1/session", None, **{"Delaylog-CSRF": browser.csrf})
    assert ended.status == 200
    assert "Max-Age=0" in ended.headers["Set-Cookie"]
    assert browser.call("GET", "/v1/topics").status == 401


def test_a_session_does_not_renew_itself(browser: Browser) -> None:
    refused = browser.call("POST", "/v1/session", {}, **{"Delaylog-CSRF": browser.csrf})
    assert refused.status == 409
    assert "log in with a token" in refused.json["detail"]


def test_a_session_ends_with_its_token(secured: Secured) -> None:
    browser = Browser(secured, secured.principal("gone", "read"))
    assert browser.call("GET", "/v1/topics").status == 200
    assert secured.call("DELETE", "/v1/principals/gone").status == 200
    refused = browser.call("GET", "/v1/topics")
    assert refused.status == 401
    assert "revoked" in refused.json["detail"]


def test_a_ticket_is_for_one_request(secured: Secured) -> None:
    token = secured.token("read:mine")
    ticket = secured.call("POST", "/v1/session/ticket", {}, token).json["ticket"]
    broker = secured.broker
    assert broker.call("POST", f"/v1/topics/mine/pause?ticket={ticket}", {}).status == 401
    assert broker.call("GET", f"/v1/topics?ticket={ticket}").status == 200
    assert broker.call("GET", f"/v1/topics?ticket={ticket}").status == 401
    for wrong in ("", "x", "a" * 43, "%00", "x" * 2_000):
        refused = broker.call("GET", f"/v1/topics?ticket={wrong}")
        assert (refused.status, refused.json["detail"][:23]) == (401, "the ticket is not valid")
    other = secured.call("POST", "/v1/session/ticket", {}, token).json["ticket"]
    assert broker.call("GET", f"/v1/principals?ticket={other}").status == 403


def test_without_authentication_there_are_no_sessions(broker: Broker) -> None:
    assert broker.call("GET", "/v1/session").json["principal"] is None
    assert broker.call("POST", "/v1/session", {}).status == 409


@pytest.mark.parametrize(
    ("grant", "query", "refused"),
    [
        ("send:t", "may=send&topic=t", ""),
        ("send:t", "may=send&topic=u", "lacks the right send on topic 'u' of namespace 'default'"),
        ("send:n/t", "may=send&topic=t&ns=n", ""),
        ("send:n/t", "may=send&topic=t", "lacks the right send on topic 't'"),
        ("send:t", "may=receive&topic=t", "lacks the right receive on topic 't'"),
        ("receive:t:g", "may=receive&topic=t&group=g", ""),
        ("receive:t:g", "may=receive&topic=t", "group 'default'"),
        ("send:t", "may=send", ""),
        ("send:t", "may=operate", "lacks the right operate"),
        ("operator", "may=operate", ""),
        ("send:t", "topic=t", "give may too"),
        ("send:t", "may=fly", "may"),
    ],
)
def test_a_caller_may_ask_for_a_right(
    secured: Secured, grant: str, query: str, refused: str
) -> None:
    answer = secured.call("GET", f"/v1/session?{query}", None, secured.token(grant))
    if refused:
        assert refused in answer.json["detail"]
        assert answer.status == (403 if "lacks" in refused or "group" in refused else 400)
    else:
        assert (answer.status, "grants" in answer.json) == (200, True)


def test_where_no_authentication_is_required_every_right_is_there(broker: Broker) -> None:
    assert broker.call("GET", "/v1/session?may=send&topic=t").status == 200
    assert broker.call("GET", "/v1/topics/t").status == 404, "nothing is made"
