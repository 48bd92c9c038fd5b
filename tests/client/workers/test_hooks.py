"""Hooks that fail, and several of them; each call of a hook is counted by tests of instruments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from delaylog.client import LeasedMessage
from delaylog.client.hooks import Around, Hooks, as_one, overridden
from tests.client.rows import received
from tests.client.workers.live import Kind, Live, Works
from tests.waiting import await_that


def test_a_batch_is_inside_of_all_its_messages(live: Live, kind: Kind) -> None:
    heard: list[str] = []
    works = Works(kind, live, hooks=[Noting("a", heard)])

    @works.consumer(batch_max=10, concurrency=1)
    async def handle(messages: list[LeasedMessage]) -> None:
        return

    live.send(["x"] * 7)
    with works:
        live.await_counts(acked=7)
    assert [heard.count(f"a {what}") for what in ("enters", "leaves")] == [7, 7]


def test_a_hook_that_is_not_overridden_is_not_called() -> None:
    assert overridden(Hooks(), "on_handled") is None
    noting = Noting("a", [])
    assert overridden(noting, "on_received") is None
    assert overridden(noting, "handling") is not None


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

    def on_received(self, topic: str, n: int) -> None:
        raise RuntimeError("received")

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:
        raise RuntimeError("settled")

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        raise RuntimeError("handled")

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:
        raise RuntimeError("headers")

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        yield
        raise RuntimeError("handling")


def test_several_hooks_are_called_in_order(
    live: Live, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    """Inside of each other; one that fails changes nothing, and is logged."""
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
        await_that(lambda: "hook on_settled failed" in caplog.text)
    assert found == [{"own": "1", "last": "b", "a": "t", "b": "t"}]
    inner = ["a enters", "b enters", "handler", "b leaves", "a leaves"]
    assert heard == [*inner, "a handled", "b handled"]
    for name in ("on_received", "on_handled", "outgoing_headers", "handling"):
        assert f"hook {name} failed" in caplog.text


def test_no_hooks_and_one_are_called_without_a_detour() -> None:
    one = Deaf()
    assert as_one([]) is None
    assert as_one([one]) is one
    several = as_one([one, Hooks()])
    assert several is not None
    assert overridden(several, "on_receive") is None
