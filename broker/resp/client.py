"""One Redis client, as the rest of the endpoint sees its connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from delaylog.broker.keyspace.running.session import Session


class Cancellable(Protocol):
    """A command that takes more than one turn."""

    def cancel(self) -> object:
        """The client has left."""


class Client(Protocol):
    """Implemented by `Connection`."""

    session: Session
    owed: int
    """Turns whose replies wait for the log."""
    task: Cancellable | None
    """A command that takes more than one turn; later commands wait for it."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """Its transport; None once the connection is closed."""

    def finished(self) -> None:
        """Continue with the next command: the one that waited has been answered."""

    def has_output(self) -> None:
        """Count replies that came while no command of this client ran, and have them written."""

    def take(self) -> bytes:
        """Return the replies of the turn that ends."""

    def write(self, data: bytes) -> None:
        """Send replies that are safe in the log."""

    def stalls(self) -> bool:
        """Whether a command has been unfinished since the last sweep and hardly grew."""

    def abort(self) -> None:
        """Close the connection and drop its replies."""

    def close(self) -> None:
        """Close the connection after the replies that are written; a waiting command gets none."""
