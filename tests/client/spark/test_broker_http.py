"""Calls of the broker: what is repeated, where they go, and that the token stays hidden."""

from __future__ import annotations

import logging
import pickle
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from pyspark_delaylog import broker_http
from pyspark_delaylog.broker_http import BrokerHttp, retry_after_s, wait_s
from pyspark_delaylog.errors import BrokerError, RefusedError, UnreachableError
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker
from tests.client.spark.misbehaving_server import Call, Fault

CLOSED = "http://127.0.0.1:9"
CLOCK = ("GET", "/v1/clock")


class Clock:
    """The module `time` as calls see it: a pause takes no time, and is noted."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What would have been waited."""
    clock = Clock()
    monkeypatch.setattr(broker_http, "time", clock)
    return clock.pauses


@pytest.fixture
def follower(broker: FakeBroker) -> Iterator[FakeBroker]:
    """A node that sends everything on to the broker."""
    with FakeBroker() as follower:

        def redirect(call: Call) -> Fault | None:
            if call.path == "/v1/cluster":
                return None
            return Fault(307, {"Location": broker.url + call.path})

        follower.fault = redirect
        yield follower


def first(count: int, fault: Fault) -> object:
    """The first calls meet a fault."""
    left = [count]

    def meet(call: Call) -> Fault | None:
        left[0] -= 1
        return fault if left[0] >= 0 else None

    return meet


def test_a_broker_that_does_not_answer_in_time_is_asked_again_and_given_up(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    over = threading.Event()

    def rest(call: Call) -> Fault | None:
        assert over.wait(60)
        return None

    broker.fault = rest
    http = BrokerHttp(options_of(requestTimeoutMs=200, retryForMs=100))
    try:
        with pytest.raises(UnreachableError, match=r"in 2 tries.*timed out.*requestTimeoutMs"):
            http.json(*CLOCK)
    finally:
        over.set()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 507])
def test_what_may_pass_is_tried_again(
    broker: FakeBroker, options_of: OptionsOf, pauses: list[float], status: int
) -> None:
    broker.fault = first(2, Fault(status, {"Retry-After": "3"}))  # type: ignore[assignment]
    http = BrokerHttp(options_of(retryForMs=60_000))
    assert http.json(*CLOCK)["now_ms"] > 0
    assert [round(pause) for pause in pauses] == [3, 3]
    assert http.repeats == 2


def test_a_lost_answer_is_asked_for_again(
    broker: FakeBroker, options_of: OptionsOf, pauses: list[float]
) -> None:
    broker.fault = first(2, Fault(lose_answer=True))  # type: ignore[assignment]
    http = BrokerHttp(options_of())
    assert (
        http.json("POST", "/v1/transactions", {"transaction": "x", "ttl_ms": 1})["state"] == "open"
    )
    assert len(broker.calls) == 3
    assert len(pauses) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 415])
def test_what_will_not_pass_is_refused_at_once(
    broker: FakeBroker, options_of: OptionsOf, pauses: list[float], status: int
) -> None:
    problem = {"code": "c", "detail": "d", "state": "s", "item": 7}
    broker.fault = lambda call: Fault(status, document=problem)
    http = BrokerHttp(options_of())
    with pytest.raises(RefusedError, match=f"GET /v1/clock: {status} c d") as caught:
        http.json(*CLOCK)
    error = caught.value
    assert (error.status, error.code, error.state, error.item) == (status, "c", "s", 7)
    assert (len(broker.calls), pauses) == (1, [])


def test_a_refusal_without_a_document_says_the_status_and_the_remedy(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    """As of a proxy in front of the broker."""
    broker.fault = lambda call: Fault(401)
    with pytest.raises(RefusedError, match=r"^GET /v1/clock: 401 \(give a valid token: option tok"):
        BrokerHttp(options_of()).json(*CLOCK)


def test_the_last_retry_says_what_it_met(
    broker: FakeBroker, options_of: OptionsOf, pauses: list[float]
) -> None:
    broker.fault = lambda call: Fault(429, document={"code": "quota", "detail": "too many"})
    http = BrokerHttp(options_of())
    with pytest.raises(RefusedError, match=r"429 quota too many .*maxRowsPerSecond"):
        http.json(*CLOCK)
    assert len(broker.calls) == len(pauses) + 1


def test_nobody_there_names_the_option(options_of: OptionsOf, pauses: list[float]) -> None:
    http = BrokerHttp(options_of(endpoint=CLOSED))
    with pytest.raises(UnreachableError, match=r"no answer for 1 s, in \d+ tries.*option endpoint"):
        http.json(*CLOCK)
    assert sum(pauses) == pytest.approx(1)


@pytest.mark.parametrize("for_ms", [0, 1, 5_000, 300_000, 86_400_000])
def test_a_broker_that_is_away_is_asked_for_a_time(
    options_of: OptionsOf, pauses: list[float], caplog: pytest.LogCaptureFixture, for_ms: int
) -> None:
    """However many calls that are; a person is told once, if it takes long."""
    http = BrokerHttp(options_of(endpoint=CLOSED, retryForMs=for_ms, retryWaitMs=50))
    with pytest.raises(UnreachableError, match=f"no answer for {for_ms / 1000:.0f} s"):
        http.json(*CLOCK)
    assert sum(pauses) == pytest.approx(for_ms / 1000)
    assert len(pauses) <= for_ms / 5_000 + 10, "the pauses grow"
    told = [line for line in caplog.messages if "(option retryForMs)" in line]
    assert len(told) == (for_ms > 5_000)


def test_each_call_has_its_own_time(
    broker: FakeBroker, options_of: OptionsOf, pauses: list[float]
) -> None:
    http = BrokerHttp(options_of(retryForMs=10_000))
    for _ in range(5):
        broker.fault = first(2, Fault(503, {"Retry-After": "4"}))  # type: ignore[assignment]
        http.json(*CLOCK)
    assert sum(pauses) > 40


@pytest.mark.parametrize(
    ("status", "quota", "said"),
    [
        (429, "staged_bytes", "staged_bytes_max of the broker, 16 GiB by default"),
        (429, "staged_parts", r'df\.repartition\("topic"\)'),
        (429, "transactions", "abort abandoned loads"),
        (429, "tokens", "set maxRowsPerSecond"),
        (507, None, "twice its bytes on the broker's disk"),
    ],
)
def test_a_limit_is_named_with_what_to_do(
    broker: FakeBroker,
    options_of: OptionsOf,
    pauses: list[float],
    caplog: pytest.LogCaptureFixture,
    status: int,
    quota: str | None,
    said: str,
) -> None:
    """While the call is repeated, and at its end."""
    broker.fault = lambda call: Fault(status, document={"detail": "full", "quota": quota})
    with pytest.raises(RefusedError, match=f"full .*{said}"):
        BrokerHttp(options_of(retryForMs=60_000)).json(*CLOCK)
    assert pauses
    assert re.search(f"fails, and is repeated.*{said}", caplog.text)


def test_another_endpoint_is_asked_when_one_is_gone(
    broker: FakeBroker, options_of: OptionsOf, pauses: list[float]
) -> None:
    http = BrokerHttp(options_of(endpoint=f"{CLOSED},{broker.url}"))
    http.json(*CLOCK)
    http.json(*CLOCK)
    assert len(pauses) == 1, "the one that answered is asked again"


def test_the_leader_is_followed_with_the_token(
    broker: FakeBroker, follower: FakeBroker, options_of: OptionsOf
) -> None:
    broker.token = "s3cret"
    endpoint = f"{follower.url},{broker.url}"
    http = BrokerHttp(options_of(endpoint=endpoint, token="s3cret"))
    http.json(*CLOCK)
    http.json(*CLOCK)
    assert (len(follower.calls), len(broker.calls)) == (1, 2)


def test_a_leader_that_the_cluster_names_is_followed(
    broker: FakeBroker, follower: FakeBroker, options_of: OptionsOf
) -> None:
    follower.members = [{"http": broker.url}]
    http = BrokerHttp(options_of(endpoint=follower.url))
    http.json(*CLOCK)
    assert [call.path for call in follower.calls] == ["/v1/clock", "/v1/cluster"]
    in_a_task = pickle.loads(pickle.dumps(http))
    in_a_task.json(*CLOCK)
    assert len(follower.calls) == 2, "a task begins at the leader that the driver has found"


def test_nobody_else_is_followed(
    broker: FakeBroker, follower: FakeBroker, options_of: OptionsOf
) -> None:
    http = BrokerHttp(options_of(endpoint=follower.url, token="s3cret"))
    with pytest.raises(RefusedError, match=r"307 .*the leader is none of the nodes"):
        http.json(*CLOCK)
    assert broker.calls == []


def test_nodes_that_send_each_other_on_are_given_up(
    broker: FakeBroker, follower: FakeBroker, options_of: OptionsOf
) -> None:
    broker.fault = lambda call: Fault(307, {"Location": follower.url + call.path})
    http = BrokerHttp(options_of(endpoint=f"{follower.url},{broker.url}"))
    with pytest.raises(RefusedError, match="307"):
        http.json(*CLOCK)
    assert len(broker.calls) + len(follower.calls) < 10


def test_the_token_is_in_no_error_log_or_repr(
    broker: FakeBroker,
    options_of: OptionsOf,
    pauses: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Even a server that repeats it does not bring it out."""
    broker.token = "another"
    http = BrokerHttp(options_of(token="s3cret"))
    with caplog.at_level(logging.DEBUG), pytest.raises(RefusedError, match="tokenFile") as caught:
        http.json(*CLOCK)
    assert broker.calls[0].headers["Authorization"] == "Bearer s3cret"
    broker.fault = lambda call: Fault(503, document={"detail": call.headers["Authorization"]})
    with caplog.at_level(logging.DEBUG), pytest.raises(RefusedError) as later:
        http.json(*CLOCK)
    shown = [
        str(caught.value),
        repr(caught.value),
        caught.value.detail,
        repr(http),
        str(later.value),
    ]
    assert "s3cret" not in "".join(shown) + caplog.text
    assert "***" in str(later.value)


def test_no_password_of_a_netrc_goes_along(
    broker: FakeBroker,
    options_of: OptionsOf,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    netrc = f"{tmp_path}/netrc"
    with open(netrc, "w") as file:
        file.write("machine 127.0.0.1 login me password hidden\n")
    monkeypatch.setenv("NETRC", netrc)
    http = BrokerHttp(options_of())
    http.json(*CLOCK)
    assert "Authorization" not in broker.calls[0].headers


def test_an_answer_that_is_no_broker_s_says_so(broker: FakeBroker, options_of: OptionsOf) -> None:
    broker.answer = lambda call: b"<html>"  # type: ignore[method-assign]
    http = BrokerHttp(options_of())
    with pytest.raises(BrokerError, match="is not a JSON object; does option endpoint name"):
        http.json(*CLOCK)


def test_names_in_paths_are_encoded(options_of: OptionsOf) -> None:
    http = BrokerHttp(options_of(namespace="n.s"))
    assert http.of_topic("t", "claims", "a/b") == "/v1/ns/n.s/topics/t/claims/a%2Fb"


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("", None),
        (None, None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Thu, 01 Jan 2026 12:00:07 GMT", 7.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 12:00:07 -0000", 7.0),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW) == seconds


def test_the_broker_says_how_long_up_to_a_cap() -> None:
    assert wait_s(1, 2.0, 50, 0.0) == 2.0
    assert 2.0 < wait_s(1, 2.0, 50, 0.9) < 2.2
    assert wait_s(1, 3_600.0, 50, 0.0) == 30.0


def test_without_a_word_the_wait_doubles_up_to_a_cap_and_is_spread() -> None:
    assert [wait_s(tries, None, 100, 0.0) for tries in (1, 2, 3, 4)] == [0.05, 0.1, 0.2, 0.4]
    assert wait_s(1, None, 100, 0.999) == pytest.approx(0.1, rel=0.01)
    assert wait_s(1_000, None, 100, 0.0) == 5.0
