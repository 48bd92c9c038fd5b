"""Waits for messages in an embedded broker, with the interface of a server's `Waiters`."""

from __future__ import annotations

from collections.abc import Callable

from delaylog.broker.embedded.waits.steps import News
from delaylog.broker.host.open_streams import GroupKey
from delaylog.broker.host.waiters import WaitKey


class Waiting:
    """All waiting receives, of any topic. Any news wakes all of them."""

    def __init__(self, tell_news: Callable[[], None]) -> None:
        self._tell_news = tell_news

    def wake(self, key: WaitKey, count: int = 1) -> None:  # noqa: ARG002 (the form of `Waiters`)
        """Wake all waiting receives."""
        self._tell_news()

    def join(self, key: WaitKey, takes: int = 1) -> Waiting:  # noqa: ARG002
        """Return this object: there is no queue of waiting receives."""
        return self

    def waiting(self, group: GroupKey) -> None:
        """None: waiting calls are not counted."""

    def leave(self) -> None:
        """Do nothing: there is no queue to leave."""

    async def wait(self, seconds: float) -> bool:
        """Wait for news; False if there is no time left for that."""
        if seconds <= 0:
            return False
        await News(seconds)
        return True
