"""A receive that may be cancelled: what it has taken by then is found, so that it can go back.

Cancelled while it waits for messages a call has taken nothing, and is simply closed. Once it has
leased some it waits for the log only, and nobody else would hear of them before their lease ends.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from delaylog.broker.embedded.calls import Steps
from delaylog.broker.embedded.steps import Safe, Step

T = TypeVar("T")


class Taking(Coroutine[Step, None, T]):
    """A call as its driver sees it, but that one which has taken messages is not closed."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.taken = False
        """Whether what was last waited for is the log: there is something to give back."""

    def __await__(self) -> Generator[Any, Any, T]:
        return self._steps.__await__()

    def send(self, value: None) -> Step:
        """Go on. StopIteration has the answer."""
        self.taken = False
        step = self._steps.send(value)
        self.taken = isinstance(step, Safe)
        return step

    def throw(self, *error: Any) -> Step:
        """Go on with an error."""
        self.taken = False
        return self._steps.throw(*error)

    def close(self) -> None:
        """End it, unless it has taken something: then whoever began it gives that back."""
        if not self.taken:
            self._steps.close()
