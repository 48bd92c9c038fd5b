"""A keyspace without sockets, fed with bytes: for the differential tests and the drills."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import time

import hiredis

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import ServerState


class Connection:
    """One session; `send` takes requests as arrays of bulk strings and gives the replies' bytes.

    It gives all that came, also without being asked for: `send(b"")` is a look at that.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._reader = hiredis.Reader(notEnoughData=False)
        self._waiting: list[list[bytes]] = []
        self.session: Session = shared.executor.connect(shared.now_ms())

    def send(self, data: bytes) -> bytes:
        """Run requests; what waits for something, or a time, gives its reply to a later call."""
        self._reader.feed(data)
        while (request := self._reader.gets()) is not False:
            self._waiting.append(request)
        self._shared.turn()
        return self.take()

    def take(self) -> bytes:
        """What came meanwhile."""
        out, self.session.out = self.session.out, []
        return b"".join(out)

    def close(self) -> None:
        """The client goes away, whatever it waits for or listens to."""
        self._waiting.clear()
        self._shared.connections.remove(self)
        self._shared.executor.disconnect(self.session)

    def go_on(self) -> bool:
        """Run what is there to run; True if something was."""
        if self.session.blocked is not None or self.session.closing or not self._waiting:
            return False
        done = self._shared.executor.handle(self.session, self._waiting)
        del self._waiting[:done]
        return True


class Shared:
    """The keyspace and executor of all connections."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.keyspace = Keyspace(Random())
        self.executor = Executor(self.keyspace, ServerState(started_ms=now_ms()))
        self.connections: list[Connection] = []
        self.logged: list[list[bytes]] = []
        """All effects so far, as they would stand in the log."""

    def connect(self) -> Connection:
        """One more session."""
        connection = Connection(self)
        self.connections.append(connection)
        return connection

    def turn(self) -> None:
        """One turn of a loop."""
        self.executor.begin(self.now_ms())
        while sum(connection.go_on() for connection in self.connections):
            pass
        self.executor.waits.end_late()
        self.logged += self.keyspace.take_effects()


_SHARED = Shared(lambda: int(time() * 1000))


def connect() -> Connection:
    """A session of the one keyspace of this process."""
    return _SHARED.connect()
