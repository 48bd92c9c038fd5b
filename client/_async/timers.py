"""Timers: one message per key, handled at its due time unless it is cancelled before.

A timer ends in one way. `cancelled` means that no handler has begun with it and none will. `fired`
means that a consumer has or had the message. The broker decides between the two, also when a cancel
and a receive arrive at the same moment.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Unpack

from delaylog.client.errors import NotFound, TooLate
from delaylog.client.keywords import ChangeKeywords, DueKeywords, TimeLimit, TimerKeywords
from delaylog.client.models import Sent, TimerState
from delaylog.client.wire.checks import check_keywords, check_text, check_topic

if TYPE_CHECKING:
    from delaylog.client._async.surface import AsyncQueueClient

TIMERS: Final = "timers"
"""The topic of timers, unless the caller names another one."""


class AsyncTimer:
    """The timer of a key, from `client.timer`.

    Its state is in the broker only, so several processes may use the same key.

    `set` returns a `Sent`, the others a `TimerState`. They raise the errors of the client's calls.
    """

    def __init__(self, client: AsyncQueueClient, topic: str, key: str) -> None:
        check_topic(topic)
        if not key:
            raise ValueError("a timer has a key")
        check_text("key", key)
        self.topic = topic
        self.key = key
        self._client = client

    async def set(self, delay: timedelta | None = None, /, **fields: Unpack[TimerKeywords]) -> Sent:
        """Start the timer, or start it again with this time and content.

        The result says when it is due: `deliver_at_ms`.

        Give a `delay`, or another of the times that `send` takes; `timedelta(0)` is at once. None
        is no time: ValueError. The content for the handler is a
        `body`, a `json` value, or a `value` for the codec of the client; without one the body is
        empty. If a handler has the timer at the moment, it fires once more afterwards.
        """
        check_keywords("set", fields, TimerKeywords)
        _add_delay(fields, delay)
        if not fields.keys() & ("body", "json", "value"):
            fields["body"] = b""
        return await self._client.send(self.topic, id=self.key, merge="replace", **fields)

    async def move(
        self, delay: timedelta | None = None, /, **due: Unpack[ChangeKeywords]
    ) -> TimerState:
        """Give a pending timer another time; any other timer stays as it is."""
        _add_delay(due, delay)
        try:
            await self._client.reschedule(self.topic, self.key, untried=True, **due)
        except TooLate as late:
            return _ended(late.state)
        except NotFound:
            return TimerState.UNSET
        return TimerState.PENDING

    async def fire(self, **limits: Unpack[TimeLimit]) -> TimerState:
        """Make a pending timer due now. It stays pending until a consumer receives it."""
        return await self.move(timedelta(0), **limits)

    async def cancel(self, **limits: Unpack[TimeLimit]) -> TimerState:
        """Cancel the timer, if no handler has begun with it."""
        try:
            await self._client.cancel(self.topic, self.key, untried=True, **limits)
        except TooLate as late:
            return _ended(late.state)
        except NotFound:
            return TimerState.UNSET
        return TimerState.CANCELLED

    async def state(self, **limits: Unpack[TimeLimit]) -> TimerState:
        """Ask the broker for the state of the timer."""
        try:
            found = await self._client.get(self.topic, self.key, **limits)
        except NotFound:
            return TimerState.UNSET
        if found.state in ("waiting", "ready") and not found.attempts:
            return TimerState.PENDING
        return _ended(found.state)

    def __repr__(self) -> str:
        return f"<timer {self.key} of topic {self.topic}>"


def _add_delay(fields: DueKeywords, delay: timedelta | None) -> None:
    """Add the delay that was given as a positional argument. ValueError without any time.

    A time that is missing, such as an absent setting, must not make a timer due now.
    """
    if delay is not None:
        if fields.get("delay") is not None:
            raise TypeError("the delay is given twice")
        fields["delay"] = delay
    if all(fields.get(name) is None for name in DueKeywords.__annotations__):
        raise ValueError("give a time: a timedelta, at or deliver_at_ms; timedelta(0) is at once")


def _ended(state: str | None) -> TimerState:
    """The state of a timer whose message can no longer be changed."""
    if state in ("cancelled", "replaced"):
        return TimerState.CANCELLED
    return TimerState.EXPIRED if state == "expired" else TimerState.FIRED
