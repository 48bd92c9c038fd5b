"""A live broker, and workers of both kinds with the same handlers, for tests that run in order.

Handlers are coroutine functions; in threads each runs in a loop of its own. A worker of tasks runs
in a thread of the test, so that a test reads the same for both.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from delaylog.client import AsyncClient, Client, PlainClient
from delaylog.client.hooks import Hooks
from tests.broker.conftest import Broker
from tests.waiting import await_that

Kind = Literal["tasks", "threads"]
KINDS: Final[tuple[Kind, ...]] = ("tasks", "threads")
WAIT_S: Final = 20.0


class Live:
    """One broker, and a namespace of it for one test; `client` asks it plainly."""

    def __init__(self, broker: Broker, namespace: str) -> None:
        self._broker = broker
        self.namespace = namespace
        self.url = broker.url
        self.client = PlainClient(broker.url, namespace=namespace)

    def kill(self) -> None:
        self._broker.crash()

    def restart(self) -> None:
        self._broker.start()

    def fresh(self, namespace: str) -> Live:
        """The same broker for another test."""
        return Live(self._broker, namespace)

    def send(self, bodies: Sequence[str], topic: str = "t", **columns: Any) -> None:
        self.client.send_bulk(topic, list(bodies), delay_ms=0, **columns)

    def counts(self, topic: str = "t", group: str | None = None) -> dict[str, int]:
        """How many are in each state, without those that are none."""
        counts = self.client.stats(topic, group=group, delay_buckets=False)["counts"]
        return {name: count for name, count in counts.items() if count}

    def await_counts(self, topic: str = "t", group: str | None = None, **counts: int) -> None:
        await_that(lambda: self.counts(topic, group) == counts, lambda: self.counts(topic, group))

    def life(self, message_id: str, topic: str = "t") -> list[dict[str, Any]]:
        return list(self.client.get(topic, message_id, life=True)["life"])


@contextmanager
def live_broker(folder: Path, name: str = "data") -> Iterator[Live]:
    (folder / name).mkdir()
    broker = Broker(folder / name)
    try:
        broker.start()
        with (live := Live(broker, "default")).client:
            yield live
    finally:
        broker.kill()


class Works:
    """A worker of one kind; leaving the block stops it."""

    def __init__(self, kind: Kind, *lives: Live, hooks: Sequence[Hooks] = ()) -> None:
        self.kind = kind
        urls = [live.url for live in lives]
        namespace = lives[0].namespace
        self.in_threads = Client(*urls, namespace=namespace, hooks=hooks)
        self._in_loop = AsyncClient(*urls, namespace=namespace, hooks=hooks)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def consumer(
        self, topic: str = "t", **members: Any
    ) -> Callable[[Callable[[Any], Awaitable[None]]], Any]:
        members = {"wait": timedelta(seconds=0.5), **members}
        if self.kind == "tasks":
            return self._in_loop.consumer(topic, **members)

        def declare(handler: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
            def in_thread(argument: Any) -> None:
                asyncio.run(handler(argument))  # type: ignore[arg-type]

            # Batches are told by the annotation.
            in_thread.__annotations__ = {"argument": handler.__annotations__.get("messages")}
            return self.in_threads.consumer(topic, **members)(in_thread)

        return declare

    def start(self) -> None:
        if self.kind == "threads":
            self.in_threads.start()
            return
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._turn, args=(self._loop,), daemon=True)
            self._thread.start()
        self._in_turn(self._in_loop.start())

    @staticmethod
    def _turn(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def halt(self, grace_s: float | None = 10.0) -> None:
        """Stop consuming; it may be started again. None: the grace of each consumer."""
        grace = None if grace_s is None else timedelta(seconds=grace_s)
        if self.kind == "threads":
            self.in_threads.stop(grace=grace)
            return
        assert self._loop is not None
        ended_by = self._in_turn(self._halted(grace))
        if ended_by is not None:
            raise ended_by

    def stop(self, grace_s: float | None = 10.0) -> None:
        """Stop consuming and close the client."""
        try:
            self.halt(grace_s)
        finally:
            self.in_threads.close()
            if self._loop is not None and self._thread is not None:
                self._in_turn(self._in_loop.close())
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()

    def _in_turn(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _halted(self, grace: timedelta | None) -> BaseException | None:
        try:
            await self._in_loop.stop(grace=grace)
        except (SystemExit, KeyboardInterrupt) as error:
            # Raised from here, it would end the loop before anybody heard of it.
            return error
        return None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
