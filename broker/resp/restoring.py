"""Restores the keyspace from the log when memory has changes that the log does not have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.node import Node
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.resp.keyspace_of import keyspace_of
from delaylog.storage.errors import DISTRUSTED

_BUG: Final = ErrorReply(b"ERR internal error; see the server's log. The command changed nothing")
_STOPPED: Final = ErrorReply(
    b"ERR Script stopped: it ran too long after a write. Its writes are undone"
)

log = logging.getLogger("delaylog.resp")


class Restoring:
    """Restores the keyspace of one endpoint."""

    def __init__(self, node: Node, forget_turn: Callable[[], None]) -> None:
        """`forget_turn` drops the effects and the replies of the current turn."""
        self._node = node
        self._forget_turn = forget_turn
        self._task: asyncio.Task[None] | None = None
        self.since = _BUG
        """The reason of the last restore: the error for the client that caused it."""

    def broken(self, error: Exception) -> None:
        """Restore the keyspace from the log: a write failed, and memory may be ahead of the log.

        The effects of this turn are not in the log, so clients that have seen them get no reply.
        """
        keyspace = keyspace_of(self._node.engine.state)
        if isinstance(error, DISTRUSTED):
            self._node.fail(error)
        elif not keyspace.condemned:
            log.error(
                "a command failed half-way: the keyspace is restored from the log, and clients "
                "that ran commands in the same turn are closed",
                exc_info=error,
            )
            self.since = _BUG
            self._begin()

    def undo_script(self) -> bool:
        """Undo the writes of a script that was stopped. Returns True: this is always possible."""
        keyspace = keyspace_of(self._node.engine.state)
        if not keyspace.condemned:
            log.warning(
                "a script ran too long after a write: the keyspace is restored from the log, and "
                "clients that ran commands in the same turn are closed"
            )
            self.since = _STOPPED
            self._begin()
        return True

    def _begin(self) -> None:
        keyspace_of(self._node.engine.state).condemn()
        self._forget_turn()
        self._task = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        try:
            await self._node.exchange.restore_keyspace()
            log.info("the keyspace is restored")
        except NotLeadingError:
            pass
        except Exception as error:
            self._node.fail(error)
