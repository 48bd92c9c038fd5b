"""The interface to the host, which knows the users, and its default: one user with all rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from delaylog.broker.keyspace.access.rules import ALL_WORDS, Rules, parse_rules
from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable

    from delaylog.broker.keyspace.access.rights import Denied
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

    def names(self) -> list[bytes]:
        """The names of all users."""

    def find(self, name: bytes) -> Rules | None:
        """The rules of a user; None if there is no such user."""

    def denied(self, name: bytes, command: Command, argv: Args) -> Denied | None:
        """Why a user may not run a command; None = it may. The user exists."""

    def may_manage(self, session: Session) -> bool:
        """Whether a client may see and change users."""

    def change(self, run: Run, name: bytes, words: list[bytes]) -> Reply:
        """Create or change a user by the words of ACL SETUSER. Raises CommandError."""

    def remove(self, run: Run, names: list[bytes]) -> Reply:
        """Remove users; replies with their number. Raises CommandError."""


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

    def names(self) -> list[bytes]:
        """Return the one user."""
        return [DEFAULT]

    def find(self, name: bytes) -> Rules | None:
        """Return the rules of the one user."""
        return parse_rules(ALL_WORDS) if name == DEFAULT else None

    def denied(self, name: bytes, command: Command, argv: Args) -> Denied | None:  # noqa: ARG002
        """Return None: the one user may do everything."""
        return None

    def may_manage(self, session: Session) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def change(self, run: Run, name: bytes, words: list[bytes]) -> Reply:  # noqa: ARG002
        """Refuse: there is no place to store users."""
        raise CommandError(b"ERR this server has no place to store users")

    def remove(self, run: Run, names: list[bytes]) -> Reply:  # noqa: ARG002
        """Return 0: no named user exists."""
        return 0
