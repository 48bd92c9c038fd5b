"""Sending: the handle of a queued message.

One is created per send, so it stores only the batch and the row number; the outcome is in the
batch. A failure counts as read when the program looks at it. `flush()` and `close()` raise the
failures that were never read.
"""

from __future__ import annotations

from delaylog.client.holding import noted
from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch


class Sending:
    """The handle of one queued message."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: Batch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<{type(self).__name__} to {self._batch.topic}: {state}>"

    def done(self) -> bool:
        """Whether the message was sent or has failed."""
        return self._batch.is_settled(self._row)

    def exception(self) -> BaseException | None:
        """The error, or None if the message was sent. InvalidStateError while it is pending."""
        outcome = self._outcome()
        return None if isinstance(outcome, Sent) else outcome

    def _outcome(self) -> Sent | BaseException:
        if not self._batch.is_settled(self._row):
            # Imported here: a program with threads does without asyncio.
            from asyncio import InvalidStateError

            raise InvalidStateError("the message is under way")
        return self._batch.outcome(self._row)

    def _ended(self) -> Sent:
        outcome = self._batch.outcome(self._row)
        if isinstance(outcome, BaseException):
            # Several callers may raise this exception, each with its own traceback.
            raise outcome.with_traceback(None)
        return noted(self._batch.topic, outcome)
