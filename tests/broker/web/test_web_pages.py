"""Requests as web pages make them: refused on every face, whatever they would do."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from delaylog.broker.calls.answers import Problem
from delaylog.broker.web.request_heads import RequestChecks

LATER = {"body": "x", "delay_ms": 3_600_000}
OFFLINE, STATUS = "/camellia/health/offline", "/camellia/health/status"
CALLS = [
    ("POST", "/v1/topics/{topic}/purge", b'{"force":true}'),
    ("POST", "/v1/topics/{topic}/messages", b'{"body":"x"}'),
    ("GET", "/v1/topics/{topic}/stats", None),
    ("GET", "/metrics", None),
    ("GET", "/nothing", None),
    ("POST", "/camellia/delayQueue/deleteMsg?topic={topic}&msgId=a", b""),
    ("GET", OFFLINE, None),
    ("HEAD", OFFLINE, None),
]
FOREIGN: list[tuple[dict[str, str], int, str]] = [
    ({"Origin": "https://evil.example"}, 403, "forbidden"),
    ({"Origin": "null"}, 403, "forbidden"),
    ({"Origin": "http://127.0.0.1:1"}, 403, "forbidden"),
    ({"Origin": "http://evil.example", "Sec-Fetch-Site": "none"}, 403, "forbidden"),
    ({"Sec-Fetch-Site": "cross-site"}, 403, "forbidden"),
    ({"Sec-Fetch-Site": "Cross-Site", "Sec-Fetch-Mode": "navigate"}, 403, "forbidden"),
    ({"Host": "evil.example"}, 421, "misdirected"),
    ({"Host": "127.0.0.1.evil.example:8711"}, 421, "misdirected"),
    ({"Host": "localhost.evil.example"}, 421, "misdirected"),
    ({"Host": "evil.example", "Origin": "http://evil.example"}, 421, "misdirected"),
]


@pytest.fixture(scope="module")
def served(sound_broker: Any) -> Any:
    """A broker with a name of its own, and a page that may call it."""
    return sound_broker(
        *("--http-host", "delaylog, Broker.Internal"),
        *("--http-allowed-origin", "https://console.example:8443,http://localhost:3000"),
    )


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]} {call[1]}")
@pytest.mark.parametrize(("headers", "status", "code"), FOREIGN)
def test_foreign_requests_are_refused(
    broker: Any, topic: str, call: Any, headers: dict[str, str], status: int, code: str
) -> None:
    """A problem document and the end of the connection; nothing is done."""
    method, path, body = call
    answer = broker.call(method, path.format(topic=topic), body, headers)
    assert answer.status == status
    assert answer.headers["Connection"] == "close"
    if method != "HEAD":
        assert answer.json["code"] == code
    assert broker.counts(topic) is None
    assert broker.call("GET", STATUS).status == 200


OWN: list[dict[str, str]] = [
    {},
    {"Host": "localhost"},
    {"Host": "LocalHost.:80"},
    {"Host": "127.0.0.1"},
    {"Host": "10.1.2.3:8711"},
    {"Host": "[::1]:8711"},
    {"Host": "[fe80::1]"},
    {"Host": "localhost:8711", "Origin": "http://localhost:8711", "Sec-Fetch-Site": "same-origin"},
    {"Host": "localhost", "Origin": "https://LOCALHOST"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin"},
]


@pytest.mark.parametrize("headers", OWN)
def test_own_requests_are_taken(broker: Any, topic: str, headers: dict[str, str]) -> None:
    """Programs, the broker's own pages, and who types an address."""
    path = f"/v1/topics/{topic}/messages"
    assert broker.call("POST", path, LATER, headers).status == 200
    assert broker.call("GET", "/camellia/health/online", None, headers).status == 200


CONFIGURED: list[tuple[dict[str, str], int]] = [
    ({"Host": "delaylog:8711"}, 200),
    ({"Host": "broker.internal"}, 200),
    ({"Host": "BROKER.internal:1"}, 200),
    ({"Host": "internal"}, 421),
    ({"Origin": "https://console.example:8443", "Sec-Fetch-Site": "cross-site"}, 200),
    ({"Origin": "http://localhost:3000"}, 200),
    ({"Origin": "https://console.example"}, 403),
    ({"Origin": "http://localhost"}, 403),
]


@pytest.mark.parametrize(("headers", "status"), CONFIGURED)
def test_configured_names(served: Any, headers: dict[str, str], status: int) -> None:
    assert served.call("GET", "/healthz", None, headers).status == status


def test_old_http_names_no_host(broker: Any) -> None:
    """A browser always does, so this is no page."""
    assert b" 200 " in broker.raw(b"GET /healthz HTTP/1.0\r\n\r\n")[:20]
    assert b" 403 " in broker.raw(b"GET / HTTP/1.0\r\nOrigin: http://localhost\r\n\r\n")[:20]


FRAMINGS = ["x, chunked", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunkedx"]
FRAMINGS.append("chunked\r\nTransfer-Encoding: gzip")


@pytest.mark.parametrize("encoding", FRAMINGS)
def test_doubtful_framing(broker: Any, topic: str, encoding: str) -> None:
    """What a proxy may read in another way is 400, and nothing behind it is a request."""
    body = b'{"body":"x","delay_ms":3600000}'
    head = (
        f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nHost: localhost\r\n"
        f"Transfer-Encoding: {encoding}\r\n\r\n"
    )
    answer = broker.raw(head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert answer[8:13] == b" 400 "
    assert answer.count(b"HTTP/1.") == 1
    assert broker.counts(topic) is None


def test_hosts_without_number_are_not_all_remembered() -> None:
    """Numeric hosts are good whatever they are; the memory of them is bounded."""

    def headers(host: str) -> CIMultiDictProxy[str]:
        return CIMultiDictProxy(CIMultiDict({"Host": host}))

    checks = RequestChecks()
    tracemalloc.start()
    try:
        for number in range(20_000):
            checks.check(headers(f"10.{number % 250}.{number // 250}.1"))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 200_000, "all of them would take two megabytes"
    with pytest.raises(Problem):
        checks.check(headers("10.0.0.300"))
