"""LeaseKeeper: leases of held messages are extended until they are settled. No broker is needed."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from delaylog.client import Client, NotReached, Settled
from delaylog.client._sync.message import Message
from delaylog.client.errors import ClientError, api_error
from delaylog.client.job_systems import leases
from delaylog.client.job_systems.leases import LeaseKeeper
from tests.waiting import await_that

LEASE = timedelta(milliseconds=30)


@dataclass(frozen=True)
class FakeMessage:
    receipt: str
    topic: str = "t"

    @property
    def id(self) -> str:
        return self.receipt


@dataclass
class FakeClient:
    """Records calls; `gone` are receipts whose lease has ended, `failing` the broker is away.

    `refusals` answer the next calls.
    """

    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    failing: bool = False
    refusals: list[ClientError] = field(default_factory=list)

    def ack(self, message: FakeMessage) -> list[Settled]:
        return self._settled("ack", [message])

    def nack(self, message: FakeMessage) -> list[Settled]:
        return self._settled("nack", [message])

    def reject(self, message: FakeMessage, *, reason: str | None) -> list[Settled]:
        return self._settled("reject", [message])

    def release(self, messages: list[FakeMessage]) -> list[Settled]:
        return self._settled("release", messages)

    def extend(self, messages: list[FakeMessage], *, lease: timedelta) -> list[Settled]:
        return self._settled("extend", messages)

    def _settled(self, verb: str, messages: list[FakeMessage]) -> list[Settled]:
        self.calls.append((verb, [each.receipt for each in messages]))
        if self.refusals:
            raise self.refusals.pop()
        if self.failing:
            raise NotReached("nobody listens")
        return [Settled.GONE if each.receipt in self.gone else Settled.DONE for each in messages]

    def count(self, verb: str) -> int:
        return [call[0] for call in self.calls].count(verb)


def message(receipt: str) -> Message:
    return cast(Message, FakeMessage(receipt))


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def keeper(client: FakeClient) -> Any:
    keeper = LeaseKeeper(cast(Client, client), LEASE)
    yield keeper
    keeper.close()


def test_held_messages_are_extended_until_they_are_settled(
    client: FakeClient, keeper: LeaseKeeper
) -> None:
    keeper.hold([message("a"), message("b")])
    await_that(lambda: client.count("extend") >= 3)
    keeper.ack(message("a"))
    keeper.release([message("b")])
    assert len(keeper) == 0
    assert client.calls[-2:] == [("ack", ["a"]), ("release", ["b"])]
    client.calls.clear()
    keeper.close()
    assert client.count("extend") == 0


def test_a_lost_lease_is_extended_no_more(
    client: FakeClient, keeper: LeaseKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    client.gone.add("a")
    keeper.hold([message("a"), message("b")])
    await_that(lambda: client.calls[-1:] == [("extend", ["b"])])
    assert "the lease of message a of topic t has ended" in caplog.text


def test_an_ack_that_came_too_late_is_logged(
    client: FakeClient, keeper: LeaseKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    client.gone.add("a")
    keeper.ack(message("a"))
    assert "had ended before it was settled" in caplog.text


def test_extensions_go_on_after_the_broker_was_away(
    client: FakeClient, keeper: LeaseKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    client.failing = True
    keeper.hold([message("a")])
    await_that(lambda: client.count("extend") >= 2)
    client.failing = False
    tried = client.count("extend")
    await_that(lambda: client.count("extend") > tried)
    assert "nobody listens" in caplog.text


def test_messages_that_cannot_be_returned_are_held_no_more(
    client: FakeClient, keeper: LeaseKeeper
) -> None:
    """Their leases end by themselves; a failure to settle is the caller's affair."""
    client.failing = True
    keeper.hold([message("a"), message("b"), message("c"), message("d")])
    keeper.release([message("a")])
    for settle, receipt in [(keeper.ack, "b"), (keeper.reject, "c"), (keeper.nack, "d")]:
        with pytest.raises(NotReached):
            settle(message(receipt))
    assert len(keeper) == 0


def used_up(retry_after_s: float) -> ClientError:
    return api_error(429, {"code": "quota", "detail": "used up"}, retry_after_s)


def test_a_quota_is_waited_for_and_the_lease_is_kept(client: FakeClient) -> None:
    """A worker of a job system would end by the error, which it does not know."""
    client.refusals = [used_up(0.3)] * 5
    keeper = LeaseKeeper(cast(Client, client), timedelta(seconds=3))
    keeper.hold([message("a")])
    keeper.ack(message("a"))
    assert client.refusals == []
    # Leases are extended three times a lease, so once within what five pauses take.
    assert client.count("extend") >= 1
    assert len(keeper) == 0
    keeper.close()


def test_a_quota_that_lasts_longer_than_a_lease_costs_a_delivery(
    client: FakeClient, keeper: LeaseKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    client.refusals = [used_up(1)]
    keeper.hold([message("a")])
    keeper.ack(message("a"))
    assert "message a of topic t was not settled, so it is delivered again" in caplog.text
    assert len(keeper) == 0


@pytest.mark.parametrize("lease", [LEASE, timedelta(minutes=10)])
def test_the_chore_runs_often_however_long_leases_are(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, lease: timedelta
) -> None:
    """Bindings last a minute, and a lease may last twelve hours."""
    if lease > LEASE:
        monkeypatch.setattr(leases, "ROUND_S_MAX", 0.01)
    ran: list[int] = []
    keeper = LeaseKeeper(cast(Client, client), lease, chore=lambda: ran.append(1))
    keeper.start()
    await_that(lambda: len(ran) >= 2)
    keeper.close()


def test_an_unexpected_error_of_the_chore_ends_no_extensions(
    client: FakeClient, keeper: LeaseKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """A message of another program may raise it; running tasks must keep their leases."""

    def fail() -> None:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    keeper._chore = fail
    keeper.hold([message("a")])
    await_that(lambda: client.calls.count(("extend", ["a"])) >= 3)
    assert "surrogates not allowed" in caplog.text


def test_a_thread_that_cannot_be_started_is_started_with_the_next_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = threading.Thread.start

    def start(_: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", real)
        raise RuntimeError("can't start new thread")

    client = FakeClient()
    keeper = LeaseKeeper(cast(Client, client), LEASE)
    monkeypatch.setattr(threading.Thread, "start", start)
    for receipt in ("first", "second"):
        keeper.hold([cast(Message, FakeMessage(receipt))])
    assert "leases are not extended for now: can't start new thread" in caplog.text
    await_that(lambda: ("extend", ["first", "second"]) in client.calls)
    keeper.close()
