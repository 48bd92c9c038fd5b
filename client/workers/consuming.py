"""The part of the clients that consumes: `consumer`, `run`, `start` and `stop`.

The one rule: a client has one worker, made when it is first needed, with a port for each shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from delaylog.client.async_link import AsyncLink
from delaylog.client.hooks import Hooks
from delaylog.client.link import Link
from delaylog.client.workers.async_worker import AsyncWorker
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.declaring import Declaring
from delaylog.client.workers.link_ports import AsyncLinkPort, LinkPort
from delaylog.client.workers.thread_worker import ThreadWorker


class AsyncConsuming(Declaring):
    """Consumes in the event loop."""

    def _begin_consuming(self, links: Sequence[AsyncLink], hooks: Hooks | None) -> None:
        self._worker = AsyncWorker(
            lambda consumer: [AsyncLinkPort(link, consumer) for link in links], hooks=hooks
        )

    def _declare(self, consumer: Consumer) -> None:
        self._worker._declare(consumer)

    async def start(self) -> None:
        """Begin to handle messages, for a program that watches signals itself; see `stop`.

        RuntimeError where no handler was declared, or it runs already.
        """
        await self._worker.start()

    async def stop(self, *, grace_s: float | None = None) -> None:
        """Fetch no more, give back what is not begun, wait for handlers for a while.

        For `grace_s`, None: each consumer's own; then they are cancelled and their messages given
        back. A SystemExit or KeyboardInterrupt that a handler raised is raised here, and the
        refusal of a consumer that never got to begin. Fine to call when nothing runs. `close` does
        it too.
        """
        await self._worker.stop(grace_s=grace_s)

    async def run(self) -> None:
        """Handle messages until SIGTERM or SIGINT, then `stop`; a second signal ends the process.

        It ends by Unauthorized, Forbidden, NotFound (no such group) or another refusal where that
        is all that a consumer got from the start; once it was answered, refusals are waited out.
        RuntimeError outside the main thread. Handlers that block the loop cannot be stopped: the
        process is left when their grace and some seconds are over.
        """
        await self._worker.run()


class Consuming(Declaring):
    """Consumes in threads."""

    def _begin_consuming(self, links: Sequence[Link], hooks: Hooks | None) -> None:
        self._worker = ThreadWorker(
            lambda consumer: [LinkPort(link, consumer) for link in links], hooks=hooks
        )

    def _declare(self, consumer: Consumer) -> None:
        self._worker._declare(consumer)

    def start(self) -> None:
        """Begin to handle messages, for a program that watches signals itself; see `stop`.

        RuntimeError where no handler was declared, or it runs already.
        """
        self._worker.start()

    def stop(self, *, grace_s: float | None = None) -> None:
        """Fetch no more, give back what is not begun, wait for handlers for a while.

        For `grace_s`, None: each consumer's own; then their messages are given back, and what they
        decide counts no more. A SystemExit or KeyboardInterrupt that a handler raised is raised
        here, and the refusal of a consumer that the broker has never let begin. Fine to call when
        nothing runs. `close` does it too.
        """
        self._worker.stop(grace_s=grace_s)

    def run(self) -> None:
        """Handle messages until SIGTERM or SIGINT, then `stop`; a second signal ends the process.

        It ends by Unauthorized, Forbidden, NotFound (no such group) or another refusal where that
        is all that a consumer got from the start; once it was answered, refusals are waited out.
        RuntimeError outside the main thread.
        """
        self._worker.run()
