"""Tracing as a program builds it on `Hooks`, hooks that fail, and several of them.

Each call of a hook is counted by the tests of the instruments."""

from __future__ import annotations

import contextvars
import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import pytest

from delaylog.client import LeasedMessage
from delaylog.client.hooks import Around, Hooks, as_one, overridden
from delaylog.client.workers import Retry
from tests.client.rows import received
from tests.client.workers.live import Kind, Live, Works
from tests.waiting import await_that

PARENT: contextvars.ContextVar[str | None] = contextvars.ContextVar("traceparent", default=None)


class TraceHooks(Hooks):
    """Carries W3C's traceparent through a queue: each handler is a child of its sender's span."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, bool]] = []
        """(trace, parent span, whether it failed) of each handler."""

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:
        parent = PARENT.get()
        return None if parent is None else {"traceparent": parent}

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        found = re.fullmatch(
            "00-([0-9a-f]{32})-([0-9a-f]{16})-..", message.headers.get("traceparent", "")
        )
        trace, span = found.groups() if found else (secrets.token_hex(16), "")
        token = PARENT.set(f"00-{trace}-{secrets.token_hex(8)}-01")
        failed = True
        try:
            yield
            failed = False
        finally:
            self.spans.append((trace, span, failed))
            PARENT.reset(token)


def test_a_trace_goes_on_in_the_handler(live: Live, kind: Kind) -> None:
    hooks = TraceHooks()
    works = Works(kind, live, hooks=[hooks])
    inside: list[str | None] = []

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        inside.append(PARENT.get())
        if message.attempts == 1:
            raise Retry(delay=timedelta(0))

    trace, span = "0" * 31 + "7", "0" * 15 + "9"
    parent = f"00-{trace}-{span}-01"
    live.send(["x"], headers=[{"traceparent": parent}])
    with works:
        live.await_counts(acked=1)
    assert hooks.spans == [(trace, span, True), (trace, span, False)]
    assert all(each and each.startswith(f"00-{trace}-") and span not in each for each in inside)
    assert PARENT.get() is None


def test_a_hook_that_fails_changes_nothing(
    live: Live, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Hooks):
        def on_received(self, topic: str, n: int) -> None:
            raise RuntimeError("received")

        def on_handled(self, message: LeasedMessage, seconds: float) -> None:
            raise RuntimeError("handled")

        def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:
            raise RuntimeError("settled")

        @contextmanager
        def handling(self, message: LeasedMessage) -> Iterator[None]:
            yield
            raise RuntimeError("handling")

    works = Works(kind, live, hooks=[Failing()])

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        return

    live.send(["x"] * 3)
    with works, caplog.at_level(logging.ERROR):
        live.await_counts(acked=3)
        await_that(lambda: "hook on_settled failed" in caplog.text)
    assert "hook on_received failed" in caplog.text
    assert "hook on_handled failed" in caplog.text
    assert "hook handling failed" in caplog.text


def test_a_batch_is_inside_of_all_its_messages(live: Live, kind: Kind) -> None:
    hooks = TraceHooks()
    works = Works(kind, live, hooks=[hooks])

    @works.consumer(batch_max=10, concurrency=1)
    async def handle(messages: list[LeasedMessage]) -> None:
        return

    live.send(["x"] * 7)
    with works:
        live.await_counts(acked=7)
    assert len(hooks.spans) == 7


def test_a_hook_that_is_not_overridden_is_not_called() -> None:
    assert overridden(Hooks(), "on_handled") is None
    assert overridden(TraceHooks(), "on_handled") is None
    assert overridden(TraceHooks(), "handling") is not None


def test_a_manager_that_cannot_be_entered_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Closed(Hooks):
        def handling(self, message: LeasedMessage) -> None:  # type: ignore[override]
            return None

    around = Around(Closed(), received([1, 2]))
    around.leave(None)
    assert caplog.text.count("hook handling failed") >= 2


def test_a_manager_cannot_swallow_what_a_handler_raised(live: Live, kind: Kind) -> None:
    class Swallowing(Hooks):
        @contextmanager
        def handling(self, message: LeasedMessage) -> Iterator[None]:
            try:
                yield
            except RuntimeError:
                return

    works = Works(kind, live, hooks=[Swallowing()])

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        raise RuntimeError("still an error")

    live.send(["x"], max_retry=0)
    with works:
        live.await_counts(dead=1)


class Noting(Hooks):
    """Notes what it hears, under its name."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name, self.heard = name, heard

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        self.heard.append(f"{self.name} handled")

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:
        return {"last": self.name, self.name: topic}

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        self.heard.append(f"{self.name} enters")
        yield
        self.heard.append(f"{self.name} leaves")


class Deaf(Hooks):
    """Fails in each call."""

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        raise RuntimeError("handled")

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:
        raise RuntimeError("headers")

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        yield
        raise RuntimeError("handling")


def test_several_hooks_are_called_in_order(live: Live, kind: Kind) -> None:
    """Inside of each other, and one that fails does not disturb the others."""
    heard: list[str] = []
    works = Works(kind, live, hooks=[Noting("a", heard), Deaf(), Noting("b", heard)])
    found: list[Mapping[str, str]] = []

    @works.consumer()
    async def handle(message: LeasedMessage) -> None:
        found.append(message.headers)
        heard.append("handler")

    works.in_threads.send("t", "x", headers={"own": "1"})
    with works:
        live.await_counts(acked=1)
        await_that(lambda: len(heard) == 7)
    assert found == [{"own": "1", "last": "b", "a": "t", "b": "t"}]
    inner = ["a enters", "b enters", "handler", "b leaves", "a leaves"]
    assert heard == [*inner, "a handled", "b handled"]


def test_no_hooks_and_one_are_called_without_a_detour() -> None:
    one = Deaf()
    assert as_one([]) is None
    assert as_one([one]) is one
    several = as_one([one, Hooks()])
    assert several is not None
    assert overridden(several, "on_received") is None
