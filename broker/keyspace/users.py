"""The interface to the host, which knows the users, and its default: one user with all rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from delaylog.broker.keyspace.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaylog.broker.keyspace.replies import Reply
    from delaylog.broker.keyspace.running.run import Run
    from delaylog.broker.keyspace.running.session import Session

DEFAULT: Final = b"default"
"""The name of clients that have not authenticated; with AUTH it means the owner of the secret."""
WRONG: Final = b"WRONGPASS invalid username-password pair or user is disabled."


class Users(Protocol):
    """What commands ask the host about users."""

    @property
    def required(self) -> bool:
        """Whether clients have to authenticate."""

    def enter(self, session: Session) -> None:
        """Set the user and the rights of a new client, or of a client after RESET."""

    def login(self, session: Session, name: bytes, secret: bytes) -> None:
        """Authenticate a client. Raises CommandError."""

    def later(self, run: Run, attempt: Callable[[], Reply]) -> Reply | None:
        """The reply of a login that is tried again soon, because this node may not have the newest
        users yet; None if it has them.
        """


class OneUser:
    """A server without users: every client is the user `default`, who may do everything."""

    required = False

    def enter(self, session: Session) -> None:
        """Accept every client."""
        session.authenticated = True

    def login(self, session: Session, name: bytes, secret: bytes) -> None:  # noqa: ARG002
        """Refuse every secret, since there are none."""
        raise CommandError(WRONG)

    def later(self, run: Run, attempt: Callable[[], Reply]) -> Reply | None:  # noqa: ARG002
        """Return None: there are no newer users."""
        return None
