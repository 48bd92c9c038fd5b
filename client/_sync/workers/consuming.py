"""The part of the clients that consumes: `consumer`, `run`, `start` and `stop`.

The one rule: a client has one worker, made when it is first needed, with a port for each shard.

Made from client/_async/workers/consuming.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Sequence

from delaylog.client._sync.link import Link
from delaylog.client._sync.workers.link_ports import LinkPort
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.hooks import Hooks
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.declaring import Declaring


class Consuming(Declaring):
    """Consumes by a worker of its own."""

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

        For `grace_s`, None: each consumer's own; then handlers are given up (tasks are cancelled,
        and what threads decide counts no more) and their messages given back. A SystemExit or
        KeyboardInterrupt that a handler raised is raised here, and the refusal of a consumer that
        never got to begin. Fine to call when nothing runs. `close` does it too.
        """
        self._worker.stop(grace_s=grace_s)

    def run(self) -> None:
        """Handle messages until SIGTERM or SIGINT, then `stop`; a second signal ends the process.

        It ends by Unauthorized, Forbidden, NotFound (no such group) or another refusal where that
        is all that a consumer got from the start; once it was answered, refusals are waited out.
        RuntimeError outside the main thread. Handlers that block an event loop cannot be stopped:
        the process is left when their grace and some seconds are over.
        """
        self._worker.run()
