"""Clients that are wrong on purpose, to show that the drills of the SDK find it.

The one rule: each fault is one that a client might really have, and breaks one promise.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from delaylog.client import NotReached
from delaylog.client._async.link import AsyncLink
from delaylog.client.errors import AnswerLost
from delaylog.client.sending.lane import Attempt
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.wire.exchange import OnRepeat


@contextmanager
def new_sequence() -> Iterator[None]:
    """Retries go out under another name, so a broker cannot know them: what was sent twice is."""

    def wire(attempt: Attempt) -> bytes:
        return attempt.batch.encode(attempt.rows, uuid.uuid4().hex, 0)

    with patch.object(Attempt, "wire", property(wire)):
        yield


@contextmanager
def told_done() -> Iterator[None]:
    """A send that reached nobody is told to be done: it is acknowledged and lost."""
    post, numbers = AsyncLink.post, count(1 << 40)

    async def posted(
        link: AsyncLink,
        topic: str,
        wire: bytes,
        on_repeat: OnRepeat | None = None,
        limit_s: float | None = None,
    ) -> SendAnswer:
        try:
            return await post(link, topic, wire, on_repeat, limit_s)
        except NotReached:
            ref = next(numbers)
            return SendAnswer(1, array("q", [ref]), array("q", [0]), array("B", [0]))

    with patch.object(AsyncLink, "post", posted):
        yield


@contextmanager
def too_certain() -> Iterator[None]:
    """A lost answer is told as one that reached nobody, though it may have been carried out."""
    post = AsyncLink.post

    async def posted(
        link: AsyncLink,
        topic: str,
        wire: bytes,
        on_repeat: OnRepeat | None = None,
        limit_s: float | None = None,
    ) -> SendAnswer:
        try:
            return await post(link, topic, wire, on_repeat, limit_s)
        except AnswerLost as error:
            raise NotReached(str(error)) from error

    with patch.object(AsyncLink, "post", posted):
        yield


SOUND: Final = "none"
FAULTS: Final[Mapping[str, Callable[[], Any]]] = {
    SOUND: nullcontext,
    "new-sequence": new_sequence,
    "told-done": told_done,
    "too-certain": too_certain,
}
