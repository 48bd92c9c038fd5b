"""Push targets over HTTP: refusals, secrets that show nowhere, and a push end to end.

Their life is told by the scenes of tests/scenes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from delaylog.broker.rules.push_signatures import make_secret
from tests.broker.push.sink import Sink, started_sink
from tests.waiting import await_that

GOOD = {"url": "https://example.com/"}
SECRETS = [make_secret(bytes([number]) * 32) for number in (1, 2)]


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with started_sink() as server:
        yield server


@pytest.fixture(scope="module")
def pushing(sound_broker: Callable[..., Any], sink: Sink) -> Any:
    """A broker that may push to the sink."""
    ports = f"80,443,{sink.server_address[1]}"
    return sound_broker("--push-allow", "127.0.0.0/8", "--push-ports", ports)


def url_of(topic: str, group: str = "default") -> str:
    return f"/v1/topics/{topic}/groups/{group}/target"


@pytest.mark.parametrize(
    ("members", "field", "why"),
    [
        ({}, "url", "missing"),
        ({"url": "ftp://example.com/"}, "url", "https://"),
        ({"url": "https://u:p@example.com/"}, "url", "no user name"),  # pragma: allowlist secret
        ({"url": "https://example.com:22/"}, "url", "port 22 is not permitted: --push-ports of"),
        ({"url": "https://user@example.com/"}, "url", "verify the Standard Webhooks signature"),
        (
            GOOD | {"headers": {"authorization": "x"}},
            "headers",
            "unknown member 'headers'; pushes have no credentials; have the receiver verify the",
        ),
        (GOOD | {"token": "x"}, "token", "a proxy in front of it"),
        (
            {"url": "https://10.1.2.3/"},
            "url",
            "the address is not permitted: private (RFC 1918); --push-allow",
        ),
        (
            {"url": "https://[::ffff:127.0.0.1]/"},
            "url",
            "embeds one that is not permitted: loopback",
        ),
        (GOOD | {"timeout_ms": 10**30}, "timeout_ms", "must lie from 100"),
        (GOOD | {"timeout_ms": 500.5}, "timeout_ms", "not a number with a fraction"),
        (GOOD | {"concurrency": "9"}, "concurrency", "an integer, not text"),
        (GOOD | {"secrets": ["x"]}, "secrets", "24 to 64 bytes"),
        (GOOD | {"secrets": []}, "secrets", "1"),
        (GOOD | {"secrets": SECRETS + SECRETS}, "secrets", "2"),
        (GOOD | {"mode": "raw"}, "mode", "binary"),
        (GOOD | {"timeout_ms": 1}, "timeout_ms", "100"),
        (GOOD | {"concurrency": 0}, "concurrency", "1"),
        (GOOD | {"per_second": 0}, "per_second", "0.001"),
        (GOOD | {"method": "GET"}, "method", "unknown member"),
    ],
)
def test_refused_members(
    broker: Any, topic: str, assert_problem: Any, members: Any, field: str, why: str
) -> None:
    problem = assert_problem(broker.call("PUT", url_of(topic), members), 400, "bad_request", field)
    assert why in problem["detail"]
    # A refused target makes no topic.
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404


def test_statuses_and_a_group_that_does_not_exist(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    assert [broker.call("PUT", url_of(topic), GOOD).status for _ in range(2)] == [201, 200]
    assert_problem(broker.call("PUT", url_of(topic, "no"), GOOD), 404, "unknown", "group")
    assert broker.call("PATCH", url_of(topic), {"url": None}).status == 400
    limited = broker.call("PATCH", url_of(topic), {"per_second": 5})
    assert limited.json["per_second"] == 5
    assert broker.call("PATCH", url_of(topic), {"per_second": None}).json["per_second"] is None


def test_a_push_end_to_end_over_a_restart(pushing: Any, sink: Sink, topic: str) -> None:
    url = f"http://127.0.0.1:{sink.server_address[1]}/hook"
    pushing.call("PUT", url_of(topic), {"url": url, "secrets": SECRETS})
    pushing.post(
        f"/v1/topics/{topic}/messages", {"body": "1", "id": "my id", "headers": {"A": "b"}}
    )
    assert sink.arrived.acquire(timeout=30)
    assert pushing.stop() == 0
    pushing.start()
    pushing.post(f"/v1/topics/{topic}/messages", {"body": "2", "delay_ms": 50})
    assert sink.arrived.acquire(timeout=30)
    assert [body for _, body in sink.got] == [b"1", b"2"]
    for headers, body in sink.got:
        for secret in SECRETS:
            Webhook(secret).verify(body, headers)
    assert sink.got[0][0]["ce-subject"] == "my%20id"
    assert sink.got[0][0]["delaylog-header-a"] == "b"
    metrics = pushing.call("GET", "/metrics").body.decode()
    assert 'delaylog_push_targets{state="closed"} 1.0' in metrics
    assert 'delaylog_push_attempts_total{result="acked"} 1.0' in metrics


def test_a_broker_that_may_not_push_inside_says_so_in_the_life_line(
    start_broker: Any, tmp_path: Path, sink: Sink, topic: str
) -> None:
    """Loopback is refused by default, also for a target of a time when it was permitted."""
    broker = start_broker("--push-allow", "127.0.0.0/8,::1", folder=tmp_path)
    broker.call("PUT", f"/v1/topics/{topic}", {"max_retry": 0})
    assert broker.call("PUT", url_of(topic), {"url": "http://localhost/"}).status == 201
    assert broker.stop() == 0
    broker = start_broker(folder=tmp_path)
    before = len(sink.got)
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "m"})
    life = f"/v1/topics/{topic}/messages/m?life=true"
    await_that(lambda: broker.call("GET", life).json["state"] == "dead")
    found = broker.call("GET", life).json
    assert "is not permitted: loopback" in json.dumps(found["life"])
    assert '"consumer": "push"' in json.dumps(found["life"])
    assert len(sink.got) == before


def test_no_secret_is_logged_or_audited(broker: Any, topic: str) -> None:
    path = url_of(topic)
    made = broker.call("PUT", path, {"url": "https://example.com/?key=hidden"}).json["secret"]
    rotated = broker.call("PATCH", path, {"rotate": True, "timeout_ms": 7_000}).json["secret"]
    broker.call("PATCH", path, {"secrets": SECRETS})
    bad = "whsec_" + "A" * 20
    refused = broker.call("PATCH", path, {"secrets": [bad]})
    assert bad not in refused.body.decode()
    lines = broker.audit_lines()
    said = json.dumps(lines) + Path(broker.log_path).read_text()
    assert "7000" in said
    for hidden in (made, rotated, bad, *SECRETS, "hidden"):
        assert hidden.removeprefix("whsec_") not in said
