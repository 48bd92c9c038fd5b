"""Group commit of replies: a turn's effects are one frame, and its replies wait for that frame.

A connection with replies is touched. When the turn ends, all effects become one frame. The replies
of all touched connections are sent when the log is safe up to the last frame that they have seen.
`Restoring` restores the keyspace from the log when memory has changes that the log does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_snapshots import log_keyspace
from delaylog.broker.engine.state import EngineState
from delaylog.broker.host.node import Node
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.storage.errors import DISTRUSTED, StorageError

if TYPE_CHECKING:
    from delaylog.broker.resp.connection import Connection


# ---------------------------------------------------------------------------------------- turns

_AGAIN_SECONDS: Final = 0.005
"""Pause before effects are appended again, while the node hands over its leadership."""
_GATHERED_MAX: Final = 16
"""A turn takes at most this number of passes of the loop, however long a sync takes."""


class Turns:
    """Ends each turn in which Redis clients got replies."""

    def __init__(
        self,
        node: ServingNode,
        *,
        after_write: bool,
        before: Callable[[], None],
        note_lost: Callable[[Connection, Exception], None],
        broken: Callable[[Exception], None],
    ) -> None:
        """`after_write`: replies wait for the write only (everysec), not for the fsync. `before` is
        called when a turn ends, before its effects are logged. `note_lost` is called with a client
        that is closed instead of answered, and why; `broken` when the keyspace is ahead of the log.
        """
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._after_write = after_write
        self._before = before
        self._note_lost = note_lost
        self._broken = broken
        self._touched: dict[Connection, None] = {}
        self._scheduled = False
        self.begun = False
        """Commands have run in this turn already."""
        self._gathered = 0
        """Passes of the loop by which the end of this turn was deferred."""
        self._now, self._began_s = node.machine.steady_s, 0.0
        self._unsent: deque[_Release] = deque()
        """Turns whose replies wait for the log, oldest first."""

    @property
    def under_way(self) -> bool:
        """Whether clients get replies at the end of the present turn."""
        return bool(self._touched)

    def begin(self) -> bool:
        """Note that commands are about to run; returns whether they are the first of this turn."""
        if self.begun:
            return False
        self.begun = True
        self._schedule()
        return True

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._began_s = self._now()
            self._loop.call_soon(self._end)

    def touch(self, connection: Connection) -> None:
        """Note that a connection has replies, or that the turn has effects."""
        self._touched[connection] = None
        self._schedule()

    def reply_at_once(self, connection: Connection) -> None:
        """Send the replies of a client that need nothing of the log."""
        try:
            connection.write(connection.take())
        except Exception as error:
            self._note_lost(connection, error)
            connection.abort()

    def drop(self, connection: Connection) -> None:
        """Forget a connection that has gone."""
        self._touched.pop(connection, None)

    def give_up(self) -> None:
        """Close the clients of this turn, since the node has lost its leadership.

        The effects that they have seen may never be in the log.
        """
        self.begun = False
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.abort()

    def _end(self) -> None:
        self._scheduled = self.begun = False
        node = self._node
        if node.suspended:
            self._later()
            return
        if self._unsent and self._may_gather(self._unsent[-1]):
            self._gathered += 1
            return
        self._gathered = 0
        state = node.engine.state
        try:
            self._before()
            if state.keyspace.effects:
                self._log(state)
                node.appended()
        except NotLeadingError:
            # No reply was sent yet. Either the node may append again in a moment, or it has lost
            # its leadership and calls `give_up`.
            self._later()
            return
        except Exception as error:
            node.fail(error)
            return
        if state.keyspace.garbage:
            node.free_garbage()
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        replies = []
        for connection in touched:
            try:
                replies.append((connection, connection.take()))
            except Exception as error:
                # This client is closed without its replies; the others get theirs.
                self._note_lost(connection, error)
                connection.abort()
                replies.append((connection, b""))
        release = _Release(replies, state.position, self._note_lost, self._began_s)
        for connection in touched:
            connection.owed += 1
        self._unsent.append(release)
        if (self._after_write and node.write_through()) or not node.role.leading:
            # What a follower has applied is committed.
            self._safe(release, None)
        else:
            node.role.when_safe(state.position, None, partial(self._safe, release))

    def _log(self, state: EngineState) -> None:
        end = state.log.end_position
        try:
            log_keyspace(state, self._node.clock.now_ms())
        except (NotLeadingError, StorageError):
            raise
        except Exception as error:
            if state.log.end_position != end:
                # A part of the effects is in the log, and the rest is not.
                raise
            # There is no memory for the frame, so the changes of this turn are undone.
            self._broken(error)

    def _may_gather(self, last: _Release) -> bool:
        """Whether to extend the turn until the present sync ends, which the turn before waits for.

        The replies of this turn wait for the next sync anyway. Ending the turn now would make one
        more frame. When the sync has ended, `_safe` ends the turn.
        """
        node = self._node
        return (
            not self._after_write
            and node.role.cluster is None
            and self._gathered < _GATHERED_MAX
            and node.log_commits.is_syncing(last.position)
        )

    def _safe(self, release: _Release, error: BaseException | None) -> None:
        """Note that the log is safe up to what a turn saw, or never will be; turns reply in order.

        The log thread may be ahead of its notices to the loop, so a turn may be found safe before
        an earlier one is notified.
        """
        release.done, release.error = True, error
        while self._unsent and self._unsent[0].done:
            sent = self._unsent.popleft()
            sent.send()
            self._node.timings.note_request("resp", "turn", self._now() - sent.began_s)
        if self._gathered and not self._unsent and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end)

    def _later(self) -> None:
        self._scheduled = True
        self._loop.call_later(_AGAIN_SECONDS, self._end)


@dataclass(slots=True, eq=False)
class _Release:
    """The replies of a turn."""

    replies: list[tuple[Connection, bytes]]
    position: int
    """The log position that the replies depend on."""
    note_lost: Callable[[Connection, Exception], None]
    began_s: float
    """When the turn began, by the steady clock."""
    done: bool = False
    error: BaseException | None = None

    def send(self) -> None:
        """Write the replies, or close clients whose commands have an unknown outcome."""
        for connection, data in self.replies:
            connection.owed -= 1
            if self.error is not None:
                connection.abort()
                continue
            try:
                connection.write(data)
            except Exception as error:
                self.note_lost(connection, error)
                connection.abort()


def keyspace_of(state: EngineState) -> Keyspace:
    """Where this module is installed, the engine's keyspace is of this class."""
    return cast("Keyspace", state.keyspace)


# ------------------------------------------------------------------------------------ restoring

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
