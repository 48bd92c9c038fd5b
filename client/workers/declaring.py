"""The `consumer` decorator, shared by both clients and both workers.

It returns the decorated function unchanged, so that it can be called and tested directly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, Unpack

from delaylog.client.wire.checks import check_topic
from delaylog.client.workers.consumer import Consumer, ConsumerOptions, as_fields

Function = TypeVar("Function", bound=Callable[..., Any])


class NothingToRun(RuntimeError):
    """No handler was declared, so a worker would wait for nothing."""


class RunOnImport(RuntimeError):
    """The module of an application runs its workers when `delaylog worker` imports it."""


_IMPORTED: Final[list[str]] = []
"""The module that `delaylog worker` is importing."""


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Have workers that are started inside the block raise RunOnImport."""
    _IMPORTED.append(module)
    try:
        yield
    finally:
        _IMPORTED.pop()


def check_not_importing() -> None:
    """Raise RunOnImport inside of `importing`."""
    for module in _IMPORTED:
        raise RunOnImport(below_main(module))


def below_main(module: str) -> str:
    """What to change in a module that does on import what only a script may do."""
    return (
        f"{module} runs or closes its client when it is imported: put that below "
        '`if __name__ == "__main__":`'
    )


class Declaring(ABC):
    """Base class of the objects that have a `consumer` decorator."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise ClientClosed if this client or broker is closed."""

    @abstractmethod
    def _declare(self, consumer: Consumer) -> None:
        """Add a consumer. TypeError if the handler is of the wrong kind (coroutine or plain)."""

    def consumer(
        self,
        topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[Function], Function]:
        """Register the decorated function as the handler of a topic's messages.

        A message is acked when the handler returns. When the handler raises, the message is
        redelivered after `backoff` (None: the topic's), or as `Retry` says; after `max_retry`
        retries it is dead. `Reject` makes it dead at once. A message that the handler settled by
        its own methods is left alone. Durations are numbers with their unit in the name, or
        timedeltas without it: `lease_ms=60_000` or `lease=timedelta(minutes=1)`.

        `concurrency`: how many handlers run at the same time. Messages with the same key are
        handled one at a time, even if a lease is lost.
        `batch`: the handler takes a list of up to `batch_max` (100) messages, which are acked or
        redelivered together. None: true if `batch_max` is given or the parameter of the handler is
        annotated as a list.
        `prefetch`: the maximum number of messages that wait in the process. The worker fetches a
        quarter of a second of work, so that no message waits behind slow handlers. 0: it fetches
        only messages that a handler can take immediately.
        `lease_ms`: the lease of a message. It is extended at half-time while the message waits or
        is handled. Messages of a killed process are redelivered after this time.
        `wait_ms`: how long a receive waits at the broker. `group`, `tags`, `tags_mode` select the
        messages. The broker's check of tags is approximate; `exact_tags` adds an exact check in the
        worker.
        `grace_s`: how long `stop` waits for handlers before it returns their messages.
        `time_limit_s`: how long a handler may run (None: without limit). Then its message counts as
        failed, and TimeLimitExceeded is logged. A coroutine is cancelled. A thread cannot be
        stopped: it runs on, its result is ignored, and it occupies one place of `concurrency`.
        `consumer_name`: stored with each attempt (None: host name and process id).
        `on_error(message, error)`: called when a handler raises anything but Retry and Reject.
        It may return the milliseconds until redelivery, or None for the backoff.
        """

        self._check_open()
        # This also catches `@client.consumer` without parentheses.
        check_topic(topic)

        def declare(function: Function) -> Function:
            self._declare(Consumer(topic=topic, handler=function, **as_fields(options)))
            return function

        return declare
