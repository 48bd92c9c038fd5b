"""The SDK's clients, and the embedded brokers, which have the same methods."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from delaylog.client import Changed, Message, NewMessage, Settled
from delaylog.client.errors import ApiError, NotFound, TooLate
from delaylog.client.keywords import SettingsSpans
from delaylog.client.wire.times import in_ms
from tests.scenes.faces.face import (
    OF_BROKERS,
    Face,
    Refused,
    Seen,
    Sent,
    Taken,
    nonzero,
    steps,
)


@contextmanager
def refusals() -> Iterator[None]:
    """What a client finds wrong before it asks a broker is a bad request too."""
    try:
        yield
    except ApiError as error:
        raise Refused(error.code) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused("bad_request") from error


SPANS = {"catch_up_window", "delay", "interval", "jitter", "lease", "ttl", "wait"}


def spelled(members: dict[str, Any]) -> dict[str, Any]:
    """Members of the API as keywords of the SDK, which takes durations as timedelta."""
    said: dict[str, Any] = {}
    for name, value in members.items():
        stem = name.removesuffix("_ms")
        if stem == name or stem not in SPANS or value is None:
            said[stem if stem in SPANS else name] = value
        elif (stem, value) == ("ttl", -1):
            said[stem] = timedelta.max
        else:
            said[stem] = timedelta(milliseconds=value)
    return said


SOON = {"timeout": timedelta(seconds=3)}
"""Of sends to a topic with a quota: one that the quota refuses is repeated until its time limit."""


class ClientFace(Face):
    """A client for threads. Its clock is the broker's."""

    cannot = frozenset({"clock"})

    def __init__(self, name: str, client: Any, topic: str) -> None:
        self.name = name
        self.client = client
        self.topic = topic
        self._limit: dict[str, timedelta] = {}

    def do(self, name: str, *given: Any, **options: Any) -> Any:
        """Make a call about the topic."""
        with refusals():
            return getattr(self.client, name)(self.topic, *given, **spelled(options))

    def each(self, name: str, **options: Any) -> list[Any]:
        """All that a call lists."""
        with refusals():
            return list(getattr(self.client, name)(self.topic, **options))

    def send(self, body: bytes | str, **fields: Any) -> Sent:
        sent = self.do("send", body, **fields, **self._limit)
        return Sent(sent.id, sent.result)

    def send_many(self, messages: Sequence[dict[str, Any]]) -> list[Sent]:
        rows = [NewMessage(**spelled(each)) for each in messages]
        return [Sent(each.id, each.result) for each in self.do("send_many", rows)]

    def receive(self, max: int = 1, **asked: Any) -> list[Taken]:
        return [taken(each) for each in self.do("receive", max=max, **asked)]

    def settle(self, verb: str, settled: Sequence[Taken], **how: Any) -> list[str]:
        with refusals():
            results: list[Settled] = getattr(self.client, verb)(
                [each.handle for each in settled], **spelled(how)
            )
        return [each.value for each in results]

    def ack(self, taken: Sequence[Taken]) -> list[str]:
        return self.settle("ack", taken)

    def nack(self, taken: Sequence[Taken], **how: Any) -> list[str]:
        return self.settle("nack", taken, **how)

    def extend(self, taken: Sequence[Taken], lease_ms: int) -> list[str]:
        return self.settle("extend", taken, lease_ms=lease_ms)

    def begin(self, taken: Sequence[Taken], lease_ms: int | None = None) -> list[str]:
        return self.settle("begin", taken, **({} if lease_ms is None else {"lease_ms": lease_ms}))

    def reject(self, taken: Sequence[Taken], **how: Any) -> list[str]:
        return self.settle("reject", taken, **how)

    def peek(self, **asked: Any) -> list[str]:
        return [each.id for each in self.do("peek", **asked)]

    def get(self, id: str, group: str | None = None) -> Seen | None:
        try:
            found = self.do("get", id, group=group)
        except Refused as refused:
            if refused.code != "unknown":
                raise
            return None
        backoff = None if found.backoff is None else dict(found.backoff)
        seen = (found.state, found.deliver_at_ms, found.attempts, found.cause, backoff)
        return Seen(*seen, found.reason)

    def changed(self, name: str, *given: Any, **options: Any) -> str:
        try:
            changed: Changed = self.do(name, *given, **options)
        except Refused as refused:
            error = refused.__cause__
            if not isinstance(error, (NotFound, TooLate)):
                raise
            return str(error.state) if isinstance(error, TooLate) else "unknown"
        return changed.result

    def cancel(self, id: str, *, force: bool = False) -> str:
        return self.changed("cancel", id, force=force)

    def reschedule(self, id: str, **when: int) -> str:
        return self.changed("reschedule", id, **when)

    def replay(self, *ids: str) -> list[str]:
        return [each.result for each in self.do("replay", ids)]

    def listed(self, **filters: Any) -> dict[str, str]:
        return {each.id: each.state for each in self.each("browse", **filters)}

    def dead(self, **filters: str) -> list[tuple[str, str | None, str | None, list[str]]]:
        found = self.each("dead", **filters)
        short = self.each("dead", history=False, **filters)
        assert [each.reason for each in found] == [each.reason for each in short]
        assert not any(each.life for each in short)
        return [
            (each.id, each.cause, each.reason, [step["event"] for step in each.life])
            for each in found
        ]

    def life(self, id: str) -> list[tuple[str, str | None, str | None]]:
        return steps(self.do("get", id, life=True).life)

    def plain(self, name: str, *given: Any, **members: Any) -> dict[str, Any]:
        topic = () if name in OF_BROKERS else (self.topic,)
        with refusals():
            found: dict[str, Any] = getattr(self.client.broker(), name)(
                *topic, *given, **spelled(members)
            )
        return found

    def configure(self, **settings: Any) -> None:
        self.do("put_topic", settings)
        self._limit = SOON if "quota" in settings else {}

    def exists(self) -> bool:
        try:
            self.do("get_topic")
        except Refused as refused:
            if refused.code != "unknown":
                raise
            return False
        return True

    def update(self, **settings: Any) -> dict[str, Any]:
        changed = self.do("update_topic", **settings).settings
        return in_ms(asdict(changed), *SettingsSpans.__annotations__)

    def counts(self, group: str | None = None) -> dict[str, int] | None:
        try:
            return nonzero(asdict(self.do("stats", group=group).counts))
        except Refused as refused:
            if refused.code != "unknown":
                raise
            return None

    def put_group(self, group: str) -> None:
        self.do("put_group", group)

    def drop_group(self, group: str) -> None:
        self.do("drop_group", group)

    def purge(self, *, force: bool = False) -> int:
        return int(self.do("purge", force=force))

    def pause(self, *, on: bool) -> None:
        self.do("pause" if on else "resume")

    def drop(self, *, force: bool = False) -> None:
        self.do("drop_topic", force=force)

    def now_ms(self) -> int:
        with refusals():
            return int(self.client.broker().clock()["now_ms"])


def taken(message: Message) -> Taken:
    fields = {
        "key": message.key,
        "tags": list(message.tags),
        "headers": dict(message.headers),
        "priority": message.priority,
    }
    return Taken(message.id, message.body, message.attempts, message.deliver_at_ms, message, fields)


class AsyncClientFace(ClientFace):
    """A client for event loops, on a loop that runs while it is asked."""

    def __init__(self, name: str, client: Any, topic: str, runner: asyncio.Runner) -> None:
        super().__init__(name, _Awaited(client, runner), topic)


class _Awaited:
    """A client for event loops whose methods are called without one."""

    def __init__(self, client: Any, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def broker(self) -> _Awaited:
        return _Awaited(self._client.broker(), self._runner)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*given: Any, **options: Any) -> Any:
            async def awaited() -> Any:
                asked = method(*given, **options)
                return (
                    [each async for each in asked] if hasattr(asked, "__aiter__") else await asked
                )

            return self._runner.run(awaited())

        return call


class EmbeddedFace(ClientFace):
    """An embedded broker under a clock that the scene moves. It pushes nothing."""

    cannot = frozenset({"targets"})

    def now_ms(self) -> int:
        return int(self.client.clock.now_ms())

    def advance(self, ms: int) -> None:
        self.client.clock.advance(ms=ms)

    def await_message(self, **asked: Any) -> Taken:
        for _ in range(10_000):
            if found := self.receive(**asked):
                return found[0]
            self.advance(1)
        raise AssertionError("nothing came in ten seconds")

    def pass_a_moment(self) -> None:
        self.advance(50)
