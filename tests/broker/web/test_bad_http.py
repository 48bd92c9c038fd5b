"""Bad HTTP on real sockets: wrong methods and paths, sizes, broken framing, slow and vanishing
senders. The broker answers with a problem document or closes; it never fails and stays up.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urljoin

import pytest

from delaylog.contract.calls.table import ALL
from tests.broker.web.access_calls import filled
from tests.broker.web.test_fast_lane import request

OK = b'{"body":"x","delay_ms":3600000}'
CLOSE = "Connection: close\r\n"
BODY_MAX, REQUEST_MAX = 10_000, 50_000


@pytest.fixture(scope="module")
def small(sound_broker: Any) -> Any:
    """A broker with small limits, so that large things are quickly made."""
    return sound_broker(limits=f"body_bytes_max = {BODY_MAX}\nrequest_bytes_max = {REQUEST_MAX}")


def split(wire: bytes) -> tuple[int, bytes, bytes]:
    """(status, head, body) of the first answer."""
    head, _, body = wire.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


METHODS = [
    ("GET", "/v1/topics/t/receive", "POST"),
    ("PUT", "/v1/topics/t/messages", "GET, HEAD, POST"),
    ("DELETE", "/v1/topics/t/ack", "POST"),
    ("GET", "/v1/topics/t/messages:cancel", "POST"),
    ("POST", "/v1/topics/t", "DELETE, GET, HEAD, PATCH, PUT"),
    ("POST", "/v1/topics/t/stats", "GET, HEAD"),
    ("POST", "/v1/topics/t/messages/a", "DELETE, GET, HEAD, PATCH"),
    ("POST", "/v1/topics", "GET, HEAD"),
    ("POST", "/healthz", "GET, HEAD"),
    ("DELETE", "/metrics", "GET, HEAD"),
    ("PUT", "/", "GET, HEAD"),
    ("OPTIONS", "/v1/topics/t", "DELETE, GET, HEAD, PATCH, PUT"),
]


@pytest.mark.parametrize(("method", "path", "allow"), METHODS)
def test_wrong_method(broker: Any, assert_problem: Any, method: str, path: str, allow: str) -> None:
    """405 with Allow, on each kind of path."""
    answer = broker.call(method, path)
    assert_problem(answer, 405, "method")
    assert answer.headers["Allow"] == allow


PATHS = [
    "/nothing",
    "/v1",
    "/v1/",
    "/v2/topics",
    "/v1/nothing",
    "/v1/archive/x",
    "/v1/archive/release/x",
    "/v1/topics/t/nothing",
    "/v1/topics/t/messages/a/b",
    "/v1/topics/t/messages:nothing",
    "/v1/topics/t/receive/more",
    "/v1/ns",
    "/v1/ns/a",
    "/v1/ns/a/nothing",
    "/v1/ns/a/b/topics",
    "//v1/topics",
    "/v1//topics",
    "/%ff",
]


@pytest.mark.parametrize("path", PATHS)
def test_unknown_path(broker: Any, assert_problem: Any, path: str) -> None:
    """404 as a problem document."""
    assert_problem(broker.call("GET", path), 404, "unknown")
    assert_problem(broker.call("POST", path, OK), 404, "unknown")


BELOW = ["messages/..", "groups/..", "schedules/..", "groups/x/../.."]


@pytest.mark.parametrize("below", BELOW)
def test_dots_that_a_client_removes_do_not_reach_the_topic(
    broker: Any, topic: str, assert_problem: Any, below: str
) -> None:
    """Browsers and curl ask for the folder above `..`, with a slash at the end: 404, no change."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {})
    asked = urljoin("http://a/", f"{path}/{below}").removeprefix("http://a")
    assert asked == f"{path}/"
    for method in ("DELETE", "PUT", "PATCH", "GET"):
        assert_problem(broker.call(method, f"{asked}?force=true", {}), 404, "unknown")
    assert broker.call("GET", path).status == 200


NAMES = [
    "a%20b",
    "a%2Fb",
    "%C3%A9",
    "%ff",
    "a%00",
    "a:b",
    "x" * 201,
    "a%0A",
    "~a",
    "a,b",
    ".",
    "%2e.",
]


@pytest.mark.parametrize("name", NAMES)
def test_bad_names(broker: Any, assert_problem: Any, name: str) -> None:
    """A topic or namespace outside [A-Za-z0-9._-]{1,200} is refused by every call."""
    for path in (f"/v1/topics/{name}", f"/v1/ns/{name}/topics/t"):
        assert_problem(broker.call("PUT", path, {}), 400, "bad_request")
        assert_problem(broker.call("POST", f"{path}/messages", OK), 400, "bad_request")
        assert_problem(broker.call("POST", f"{path}/receive", {}), 400, "bad_request")
        assert_problem(broker.call("GET", f"{path}/messages/a"), 400, "bad_request")
        assert_problem(broker.call("GET", f"{path}/stats"), 400, "bad_request")


RAW_PATHS = [
    b"/v1/topics/t/messages/\xff\xfe",
    b"/v1/topics/t/messages/%ff%fe",
    b"/v1/topics/\xff",
    b"/\xff\xfe",
    b"/v1/topics/t/messages/a?\xff=\xfe",
    b"/v1/topics/t/messages/a?read=\xff",
    b"/v1/topics/t/messages/a?%ff=1",
    b"/v1/topics/t/messages/\xc3\xa9",
    b"/v1/topics/t/messages/%",
    b"/v1/topics/t/messages/%zz",
    b"/v1/topics/t/messages/%C3",
    b"/v1/topics/t/messages/~",
    b"/v1/topics/t/messages/~ffffffffffffffff",
    b"/v1/topics/t/messages/~7fffffffffffffff",
    b"/v1/topics/t/messages/~0000000000000000",
    b"/v1/topics/t/messages/",
    b"/v1/topics/t/messages/a#b",
    b"/v1/topics/t/messages/" + b"x" * 4_000,
    b"http://[::1/",
    b"*",
]


@pytest.mark.parametrize("path", RAW_PATHS)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
def test_odd_paths(broker: Any, path: bytes, method: str) -> None:
    """Bytes that are no UTF-8, no percent code, no id: refused or unknown, never more."""
    broker.call("PUT", "/v1/topics/t", {})
    body = b'{"delay_ms":0}'
    # Not every path is a text.
    wire = request("PATH", body, CLOSE, method).replace(b"PATH", path)
    status, head, body = split(broker.raw(wire))
    assert status in (400, 404, 405), head
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == status


TYPES = [
    "application/xml",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "text/plain",
    "text/plain; charset=utf-8",
    "TEXT/json",
]


@pytest.mark.parametrize("kind", TYPES)
def test_wrong_content_type(broker: Any, topic: str, assert_problem: Any, kind: str) -> None:
    """415 by every call that reads a body."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", OK)
    for call in (
        "messages",
        "receive",
        "peek",
        "ack",
        "nack",
        "reject",
        "extend",
        "messages:cancel",
        "purge",
    ):
        answer = broker.call("POST", f"{path}/{call}", OK, {"Content-Type": kind})
        assert_problem(answer, 415, "unsupported")
    assert_problem(broker.call("PUT", path, OK, {"Content-Type": kind}), 415, "unsupported")
    bulk = {"Content-Type": "application/vnd.delaylog.batch"}
    for method, tail in (("PUT", ""), ("PATCH", "/messages/a"), ("POST", "/peek")):
        assert_problem(broker.call(method, path + tail, OK, bulk), 415, "unsupported")
    assert broker.counts(topic)["waiting"] == 1


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", ""])
def test_read_as_json(broker: Any, topic: str, kind: str) -> None:
    """Nothing is read as JSON, parameters are passed over."""
    broker.post(f"/v1/topics/{topic}/messages", OK, Content_Type=kind)


def test_large_bodies(small: Any, topic: str, assert_problem: Any) -> None:
    """A body over its limit and a request over its limit are 413; what just fits is taken."""
    path = f"/v1/topics/{topic}/messages"
    fits = {"body": "x" * BODY_MAX, "delay_ms": 3_600_000}
    over = fits | {"body": "x" * (BODY_MAX + 1)}
    small.post(path, fits)
    assert_problem(small.call("POST", path, over), 413, "too_large", "body")
    assert_problem(small.call("POST", path, [fits, over]), 413, "too_large", "body", item=1)
    columns = {"v": 1, "n": 1, "delay_ms": 0, "body_size": BODY_MAX + 1, "bodies": b"x" * 10_001}
    assert_problem(small.bulk(path, columns), 413, "too_large", "body")
    for size in (REQUEST_MAX + 1, 1_000_000, 20_000_000):
        assert_problem(small.call("POST", path, b" " * size), 413, "too_large")
        assert_problem(small.bulk(path, b"\0" * size), 413, "too_large")
    assert small.counts(topic)["waiting"] == 1


def test_large_request_is_refused_before_it_arrives(small: Any, topic: str) -> None:
    """A length over the limit is answered by its announcement, with and without Expect."""
    for extra in ("X: y", "Expect: 100-continue"):
        head = f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n"
        with small.connect() as sock:
            sock.sendall(head.encode() + b"Content-Length: 99999999999\r\n\r\n")
            assert split(sock.recv(65_536))[0] == 413
    assert small.counts(topic) is None


def test_expect_continue(broker: Any, topic: str) -> None:
    """A client that waits for 100 gets it before it sends its body."""
    head = (
        f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    )
    with broker.connect() as sock:
        sock.sendall(f"{head}Content-Length: {len(OK)}\r\nConnection: close\r\n\r\n".encode())
        assert sock.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(OK)
        assert split(sock.recv(65_536))[0] == 200
    with broker.connect() as sock:
        sock.sendall(f"{head}Content-Length: {len(OK)}\r\n\r\n".encode() + OK)
        answer = sock.recv(65_536)
        assert b"200 OK" in answer or b"100 Continue" in answer
    assert broker.counts(topic)["waiting"] >= 1


def test_chunked_bodies(broker: Any, topic: str) -> None:
    """A chunked body is a body, in pieces of any size; bad chunks are refused."""
    head = f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    good = b"".join(b"1\r\n%c\r\n" % byte for byte in OK) + b"0\r\n\r\n"
    with broker.connect() as sock:
        sock.sendall(head.encode())
        for at in range(0, len(good), 50):
            sock.sendall(good[at : at + 50])
        assert split(sock.recv(65_536))[0] == 200
    for bad in (b"zz\r\nx\r\n0\r\n\r\n", b"-5\r\nx\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n"):
        assert split(broker.raw(head.encode() + bad))[0] == 400
    assert broker.counts(topic)["waiting"] == 1


GARBAGE = [
    b"\x00\x01\x02\x03\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 100,
    b"hello\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
    b"GET / HTTP/1.1\r\nA\x00B: c\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\nGARBAGE GARBAGE\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
]


@pytest.mark.parametrize("wire", GARBAGE)
def test_http_garbage(broker: Any, wire: bytes) -> None:
    """What is no HTTP is answered by a problem or by closing; the broker goes on."""
    with broker.connect() as sock:
        sock.settimeout(5)
        sock.sendall(wire)
        sock.shutdown(socket.SHUT_WR)
        parts = []
        try:
            while part := sock.recv(65_536):
                parts.append(part)
        except (ConnectionResetError, TimeoutError):
            pass
    answer = b"".join(parts)
    for piece in answer.split(b"HTTP/1.1 ")[1:]:
        assert piece[:1] in b"24" or piece[:3] in (b"501", b"505"), piece
        if piece.startswith(b"400"):
            assert b"application/problem+json" in piece
            assert json.loads(piece.partition(b"\r\n\r\n")[2])["code"] == "bad_request"
    assert broker.call("GET", "/healthz").status == 200


KEYS = [b"", b"k" * 201, b"\xff\xfe", b"\xc3\xa9" * 201]


@pytest.mark.parametrize("key", KEYS)
def test_bad_idempotency_keys(broker: Any, topic: str, key: bytes) -> None:
    """An empty, too long or undecodable Idempotency-Key is refused before anything is sent."""
    for body in (OK, b"[" + OK + b"]"):
        wire = request(f"/v1/topics/{topic}/messages", body, CLOSE)
        wire = wire.replace(b"\r\n", b"\r\nIdempotency-Key: " + key + b"\r\n", 1)
        status, head, _ = split(broker.raw(wire))
        assert status == 400, head
    assert broker.counts(topic) is None


QUERIES = ["acks=some", "colour=red", "acks=leader&x", "acks=leader&acks=none", "%00"]


@pytest.mark.parametrize("query", QUERIES)
def test_bad_queries(broker: Any, topic: str, assert_problem: Any, query: str) -> None:
    """Unknown query parameters and values are refused."""
    path = f"/v1/topics/{topic}/messages"
    assert_problem(broker.call("POST", f"{path}?{query}", OK), 400, "bad_request")
    assert broker.counts(topic) is None
    broker.post(path, OK.replace(b"{", b'{"id":"a",'))
    assert_problem(broker.call("GET", f"{path}/a?{query}"), 400, "bad_request")
    assert_problem(broker.call("GET", f"{path}/a?read=elsewhere"), 400, "bad_request")
    assert_problem(broker.call("DELETE", f"{path}/a?{query}"), 400, "bad_request")
    assert_problem(broker.call("DELETE", f"{path}/a?force=maybe"), 400, "bad_request")
    assert broker.counts(topic)["waiting"] == 1


def test_slow_body_is_taken(broker: Any, topic: str) -> None:
    """A body that trickles in byte by byte is one body."""
    wire = request(f"/v1/topics/{topic}/messages", OK, CLOSE)
    with broker.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in wire:
            sock.sendall(bytes([byte]))
            time.sleep(0.001)
        assert split(sock.recv(65_536))[0] == 200
    assert broker.counts(topic)["waiting"] == 1


def test_half_closed_connection(broker: Any, topic: str) -> None:
    """A client that closes its sending side behind a request: carried out once, or not at all."""
    with broker.connect() as sock:
        sock.sendall(request(f"/v1/topics/{topic}/messages", OK, CLOSE))
        sock.shutdown(socket.SHUT_WR)
        answer = sock.recv(65_536)
    assert answer == b"" or split(answer)[0] == 200
    broker.post(f"/v1/topics/{topic}/messages", OK)
    assert broker.counts(topic)["waiting"] in (1, 2)


CALLS = [
    *((each.method, each.path) for each in ALL if not each.local),
    *(("GET", path) for path in ("/", "/healthz", "/readyz", "/metrics", "/openapi.json")),
]


def test_a_parameter_given_twice(broker: Any, topic: str, assert_problem: Any) -> None:
    """One of the two would be ignored, so a list by two tags would be one by a single tag."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "tags": ["a"]})
    for call in ("messages", "messages:count"):
        answer = broker.call("GET", f"/v1/topics/{topic}/{call}?tag=b&tag=a")
        problem = assert_problem(answer, 400, "bad_request")
        assert problem["field"] == "tag"
        assert problem["detail"] == "tag is given 2 times; give it once"


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_every_call_refuses_an_unknown_query(
    broker: Any, topic: str, assert_problem: Any, call: tuple[str, str]
) -> None:
    """Nobody takes a misspelt parameter for one that works; the second time by the kept route."""
    method, path = call
    path = filled(path, "default", topic)
    for _ in range(2):
        assert_problem(broker.call(method, f"{path}?colour=red", b"{}"), 400, "bad_request")
    assert broker.counts(topic) is None


def test_a_query_is_utf_8(broker: Any, topic: str, assert_problem: Any) -> None:
    broker.post(f"/v1/topics/{topic}/messages", OK)
    answer = broker.call("GET", f"/v1/topics/{topic}/messages?tag=%ff")
    assert_problem(answer, 400, "bad_request")
