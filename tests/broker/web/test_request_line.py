"""Heads by the letter of RFC 9110 and RFC 9112, on real sockets: forms of the target, methods,
versions, limits, HEAD, and what depends on the version of the client.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from delaylog.broker.web.request_heads import (
    FIELD_BYTES_MAX,
    FIELDS_MAX,
    METHODS,
    TARGET_BYTES_MAX,
)
from delaylog.contract.calls.table import ALL

HOST = b"Host: localhost\r\n"
CLOSE = b"Connection: close\r\n"


def head(line: bytes, *fields: bytes) -> bytes:
    return line + b"\r\n" + b"".join(fields) + b"\r\n"


def split(wire: bytes) -> tuple[bytes, int, dict[str, str], bytes]:
    """(version, status, headers, body) of the only answer."""
    top, _, body = wire.partition(b"\r\n\r\n")
    line, *lines = top.decode("latin-1").split("\r\n")
    fields = dict(each.split(": ", 1) for each in lines)
    version, status, *_ = line.split(" ")
    return version.encode(), int(status), fields, body


def ask(broker: Any, line: bytes, *fields: bytes) -> tuple[int, dict[str, str], bytes]:
    """The answer to a request that asks for the connection to be closed behind it."""
    _, status, headers, body = split(broker.raw(head(line, HOST, CLOSE, *fields)))
    return status, headers, body


TARGETS = [
    (b"http://127.0.0.1/healthz", 200),
    (b"http://localhost:1/healthz", 200),
    (b"HTTP://LOCALHOST/healthz", 200),
    (b"https://localhost/healthz", 200),
    (b"http://[::1]:80/healthz", 200),
    (b"http://localhost", 200),
    (b"http://localhost/v1/topics?limit=1", 200),
    (b"http://localhost?limit=1", 400),
    (b"http://localhost/v1/topics?none=1", 400),
    (b"http://localhost/nothing", 404),
    (b"http://localhost/ui/", 200),
    (b"http://localhost/camellia/health/status", 200),
    (b"http://evil.example/healthz", 421),
    (b"http://127.0.0.1:80@evil.example/healthz", 404),
    (b"http://user@localhost/healthz", 404),
    (b"ftp://localhost/healthz", 404),
    (b"localhost/healthz", 400),
]


@pytest.mark.parametrize(("target", "status"), TARGETS)
def test_absolute_form_is_the_path_at_the_host_of_the_url(
    broker: Any, target: bytes, status: int
) -> None:
    """RFC 9112 3.2.2: the host of the URL counts, whatever Host says."""
    for host in (HOST, b"Host: 10.0.0.1\r\n"):
        wire = broker.raw(head(b"GET %b HTTP/1.1" % target, host, CLOSE))
        assert split(wire)[1] == (status if target != b"localhost/healthz" else 400)


def test_absolute_form_sends_and_receives(broker: Any, topic: str) -> None:
    url = b"http://localhost/v1/topics/%b" % topic.encode()
    body = b'{"body":"x"}'
    size = b"Content-Length: %d\r\n" % len(body)
    wire = head(b"POST %b/messages HTTP/1.1" % url, HOST, CLOSE, size) + body
    assert split(broker.raw(wire))[1] == 200
    body = b'{"wait_ms":5000}'
    size = b"Content-Length: %d\r\n" % len(body)
    wire = head(b"POST %b/receive HTTP/1.1" % url, HOST, CLOSE, size) + body
    assert len(json.loads(split(broker.raw(wire))[3])["messages"]) == 1


@pytest.mark.parametrize(
    "method",
    [
        b"FOO",
        b"get",
        b"Post",
        b"PROPFIND",
        b"TRACE",
        b"CONNECT",
        b"QUERY",
        b"PRI",
        b"x-1.~",
        b"X" * 300,
    ],
)
@pytest.mark.parametrize("target", [b"/healthz", b"/v1/topics", b"/nothing", b"http://localhost/"])
def test_an_unknown_method_is_not_implemented(broker: Any, method: bytes, target: bytes) -> None:
    status, headers, body = ask(broker, b"%b %b HTTP/1.1" % (method, target))
    if method == b"CONNECT" and target.startswith(b"/"):
        # Its target is no host.
        assert status in (400, 501)
        return
    assert (status, json.loads(body)["code"]) == (501, "not_implemented")
    assert headers["Connection"] == "close"
    assert "no path offers the method" in json.loads(body)["detail"]


@pytest.mark.parametrize("line", [b"G@T / HTTP/1.1", b" / HTTP/1.1", b"G\xc3\x84T / HTTP/1.1"])
def test_what_is_no_token_is_no_method(broker: Any, line: bytes) -> None:
    assert ask(broker, line)[0] == 400


def test_options_lists_what_there_is(broker: Any) -> None:
    status, headers, _ = ask(broker, b"OPTIONS * HTTP/1.1")
    assert (status, headers["Allow"]) == (405, "DELETE, GET, HEAD, PATCH, POST, PUT")
    assert set(headers["Allow"].split(", ")) == METHODS - {"OPTIONS"}
    status, headers, _ = ask(broker, b"OPTIONS /v1/clock HTTP/1.1")
    assert (status, headers["Allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize("version", [b"2.0", b"3.0", b"1.2", b"0.9", b"9.9"])
def test_another_version_is_not_supported(broker: Any, version: bytes) -> None:
    wire = broker.raw(head(b"GET /healthz HTTP/" + version, HOST, CLOSE))
    answered, status, _, body = split(wire)
    assert (answered, status, json.loads(body)["code"]) == (b"HTTP/1.1", 505, "version")
    assert f"HTTP/{version.decode()} is not spoken here" in json.loads(body)["detail"]


@pytest.mark.parametrize(
    "version", [b"http/1.1", b"HTTP/1.1.1", b"HTTP/11", b"HTTP/x", b"HTPP/1.1"]
)
def test_what_is_no_version_is_no_http(broker: Any, version: bytes) -> None:
    answered, status, _, _ = split(broker.raw(head(b"GET /healthz " + version, HOST, CLOSE)))
    assert (answered, status) == (b"HTTP/1.1", 400)


def test_a_target_at_its_limit_and_over_it(broker: Any) -> None:
    path = b"/" + b"a" * (TARGET_BYTES_MAX - 1)
    assert ask(broker, b"GET %b HTTP/1.1" % path)[0] == 404
    for more in (1, 10_000, 300_000):
        status, _, body = ask(broker, b"GET %b%b HTTP/1.1" % (path, b"a" * more))
        assert (status, json.loads(body)["code"]) == (414, "target_too_long")
        assert f"at most {TARGET_BYTES_MAX} bytes" in json.loads(body)["detail"]
    query = b"/healthz?" + b"a" * TARGET_BYTES_MAX
    assert ask(broker, b"GET %b HTTP/1.1" % query)[0] == 414
    assert ask(broker, b"GET http://localhost%b HTTP/1.1" % path)[0] == 414


FIELDS = {
    "cookie of 8 KiB": (200, [b"Cookie: " + b"c" * 8_192 + b"\r\n"]),
    "token of 8 KiB": (200, [b"Authorization: Bearer " + b"t" * 8_192 + b"\r\n"]),
    "field at its limit": (200, [b"X: " + b"x" * FIELD_BYTES_MAX + b"\r\n"]),
    "field over its limit": (431, [b"X: " + b"x" * (FIELD_BYTES_MAX + 1) + b"\r\n"]),
    "huge field": (431, [b"X: " + b"x" * 300_000 + b"\r\n"]),
    "long name": (431, [b"x" * (FIELD_BYTES_MAX + 1) + b": x\r\n"]),
    "most fields": (200, [b"X%d: x\r\n" % number for number in range(FIELDS_MAX - 2)]),
    "too many fields": (431, [b"X%d: x\r\n" % number for number in range(FIELDS_MAX - 1)]),
    "far too many": (431, [b"X%d: x\r\n" % number for number in range(20_000)]),
}


@pytest.mark.parametrize("name", FIELDS)
def test_header_fields_at_their_limits_and_over_them(broker: Any, name: str) -> None:
    expected, fields = FIELDS[name]
    status, _, body = ask(broker, b"GET /healthz HTTP/1.1", *fields)
    assert status == expected
    if status == 431:
        assert json.loads(body)["code"] == "head_too_large"
        assert re.search(
            rf"at most ({FIELD_BYTES_MAX} bytes|{FIELDS_MAX} header fields)", str(body)
        )


def test_a_large_head_leaves_the_connection_to_small_ones(broker: Any, topic: str) -> None:
    """Also behind it on the same connection, and in the lane that knows heads."""
    path = b"GET /v1/topics/%b/stats HTTP/1.1" % topic.encode()
    broker.call("PUT", f"/v1/topics/{topic}", {})
    large = head(path, HOST, b"Cookie: " + b"c" * 10_000 + b"\r\n")
    wire = broker.raw(large + head(path, HOST) + large + head(path, HOST, CLOSE))
    assert wire.count(b"HTTP/1.1 200 OK") == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([], "Missing 'Host' header"),
        ([HOST, HOST], "Duplicate 'Host' header"),
        ([HOST, b"host: 127.0.0.1\r\n"], "Duplicate 'Host' header"),
    ],
)
def test_a_request_has_one_host(broker: Any, fields: list[bytes], words: str) -> None:
    """On each lane."""
    for path in (b"/healthz", b"/v1/topics/t/stats"):
        wire = head(b"GET %b HTTP/1.1" % path, *fields, CLOSE)
        _, status, _, body = split(broker.raw(wire))
        assert status == 400
        assert words in json.loads(body)["detail"]
    assert split(broker.raw(head(b"GET /healthz HTTP/1.0")))[:2] == (b"HTTP/1.0", 200)


READS = [
    call.path.replace("{topic}", "head").replace("{group}", "default")
    for call in ALL
    if call.method == "GET" and not call.streams
]


@pytest.mark.parametrize("path", [*READS, "/", "/healthz", "/readyz", "/metrics", "/openapi.json"])
def test_head_is_get_without_a_body(broker: Any, path: str) -> None:
    broker.call("PUT", "/v1/topics/head", {})
    got, asked = broker.call("GET", path), broker.call("HEAD", path)
    assert asked.status == got.status
    assert asked.body == b""
    assert asked.headers.keys() == got.headers.keys()
    assert asked.headers["Content-Type"] == got.headers["Content-Type"]
    if path not in ("/metrics", "/v1/overview", "/v1/diagnostics"):
        assert abs(int(asked.headers["Content-Length"]) - len(got.body)) < 8


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
def test_an_answer_to_head_ends_with_its_head(broker: Any, version: bytes) -> None:
    """The next answer on the connection begins right behind it."""
    wire = head(b"HEAD /v1/topics " + version, HOST, b"Connection: keep-alive\r\n")
    refused = head(b"HEAD /v1/topics/none " + version, HOST, b"Connection: keep-alive\r\n")
    last = head(b"GET /healthz " + version, HOST, CLOSE)
    answers = broker.raw(wire + refused + last).split(b"\r\n\r\n")
    assert [each.split(b" ")[1] for each in answers[:-1]] == [b"200", b"404", b"200"]
    assert answers[-1] == b'{"status":"ok"}'


@pytest.mark.parametrize(
    "path", ["/v1/live?read=/v1/topics", "/v1/topics/head/groups/default/stream"]
)
def test_head_opens_no_stream(broker: Any, path: str) -> None:
    """A stream leases messages, which a HEAD must not do, and it has no length to ask for."""
    broker.post("/v1/topics/head/messages", {"body": "x"})
    fields = {"Accept": "text/event-stream"}
    answer = broker.call("HEAD", path, headers=fields)
    assert (answer.status, answer.headers["Allow"], answer.body) == (405, "GET", b"")
    assert broker.counts("head")["leased"] == 0


def test_head_of_rows_has_no_rows(broker: Any, topic: str) -> None:
    """A claim's rows are written piece by piece."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    broker.post(f"/v1/topics/{topic}/claims/c", {})
    path = f"/v1/topics/{topic}/claims/c/rows"
    fields = {"Accept": "application/vnd.apache.arrow.stream"}
    got, asked = broker.call("GET", path, headers=fields), broker.call("HEAD", path, headers=fields)
    assert got.status == asked.status == 200, got
    assert got.body
    assert not asked.body
    lines = b"Accept: application/vnd.apache.arrow.stream\r\n"
    wire = head(b"HEAD %b HTTP/1.1" % path.encode(), HOST, lines) + head(
        b"GET /healthz HTTP/1.1", HOST, CLOSE
    )
    first, rest = broker.raw(wire).split(b"\r\n\r\n", 1)
    assert first.startswith(b"HTTP/1.1 200")
    assert rest.startswith(b"HTTP/1.1 200")


def test_a_client_of_http_1_0_gets_no_interim_answer(broker: Any, topic: str) -> None:
    """RFC 9110 10.1.1: its Expect is ignored."""
    body = b'{"body":"x"}'
    for version, interim in ((b"HTTP/1.0", 0), (b"HTTP/1.1", 1)):
        with broker.connect() as sock:
            fields = (HOST, CLOSE, b"Expect: 100-continue\r\n", b"Content-Length: 12\r\n")
            sock.sendall(head(b"POST /v1/topics/%b/messages " % topic.encode() + version, *fields))
            sock.settimeout(30 if interim else 0.5)
            try:
                got = sock.recv(100)
            except TimeoutError:
                got = b""
            assert got.count(b"100 Continue") == interim
            sock.settimeout(30)
            sock.sendall(body)
            assert version + b" 200" in sock.recv(1_000)
