"""How consumers are declared, the same for both clients and both workers.

The one rule: the decorated function stays what it was, so it can be called and tested by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from delaylog.client.wire.checks import check_topic
from delaylog.client.workers.consumer import Consumer, ConsumerOptions

Function = TypeVar("Function", bound=Callable[..., Any])


class Declaring(ABC):
    """Whatever has a `consumer` decorator."""

    @abstractmethod
    def _declare(self, consumer: Consumer) -> None:
        """Take one more. TypeError where the handler is not of the kind that runs here."""

    def consumer(
        self,
        topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[Function], Function]:
        """Have the decorated function handle the messages of a topic, once the worker runs.

        A message is acked when the handler returns. When it raises, the message comes again after
        `backoff` (None: the topic's), or as `Retry` says; past its `max_retry` it is dead.

        `concurrency`: handlers at once; of one key only one, whatever happens to its lease.
        `batch`: the handler takes a list of up to `batch_max` (100) messages, which are acked, or
        come again, together; None: if `batch_max` is given or its parameter is annotated as a list.
        `prefetch`: messages that may wait in the process; as many come as a quarter of a second
        of work, so none wait behind slow handlers; 0: as many as can begin at once.
        `lease_ms`: extended when half of it is gone, for as long as the message waits or runs. So
        long others wait for the messages of a process that was killed.
        `wait_ms`: how long one receive waits at the broker. `group`, `tags`, `tags_mode` choose
        what is received; `exact_tags` looks at the tags once more here, where the broker's test of
        tags may let others through.
        `grace_s`: how long `stop` waits for handlers before it gives their messages back.
        `on_error(message, error)`: called when a handler raised anything but Retry; it may return
        the milliseconds until the message comes again, None for the backoff.
        """

        # Also where `@client.consumer` stands without its parentheses.
        check_topic(topic)

        def declare(function: Function) -> Function:
            self._declare(Consumer(topic=topic, handler=function, **options))
            return function

        return declare
