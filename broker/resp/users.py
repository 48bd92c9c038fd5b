"""The users of the endpoint: the principals of the broker.

A client authenticates by a token, or by its certificate. The right `redis` allows it every command
on keys; verbs of the delay log ask for the rights on topics that all faces share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.access.authenticating import FOLLOWER_SECONDS
from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.problems import Problem
from delaylog.broker.keyspace.errors import MASTER_DOWN, CommandError
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.watching import forget_watches
from delaylog.broker.keyspace.users import DEFAULT, WRONG
from delaylog.broker.resp.native.words import refusal

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.host.tls.client_certificates import ClientCertificate
    from delaylog.broker.keyspace.running.executor import Executor
    from delaylog.broker.keyspace.running.run import Run
    from delaylog.broker.resp.client import Client
    from delaylog.broker.resp.native.host import NativeHost

RIGHTS_OF_VERBS: Final = ("send", "receive", "read", "bodies", "change")


class NodeUsers:
    """The principals of a node, as commands see them. All methods belong to the loop's thread."""

    def __init__(
        self,
        node: ServingNode,
        executor: Executor,
        native: NativeHost,
        connections: Mapping[int, Client],
    ) -> None:
        """`connections`: those of the endpoint, by the number of their sessions."""
        self._node = node
        self._executor = executor
        self._native = native
        self._connections = connections
        self._authenticator = node.access.authenticator
        self._seen: tuple[object, int] = (None, -1)
        """The table of principals, and its version, that all sessions agree with."""
        node.access.rechecks.append(self.recheck)

    @property
    def required(self) -> bool:
        """Whether clients have to authenticate."""
        return self._authenticator.required

    # ------------------------------------------------------------------ sessions

    def enter(self, session: Session) -> None:
        """Set the user and the rights of a new client, or of a client after RESET."""
        session.authenticated = not self.required
        certificate: ClientCertificate | None = session.certificate
        if session.authenticated or certificate is None:
            return
        try:
            caller = self._authenticator.by_certificate(*certificate)
            if caller is None:
                return
            self._authenticator.admit(caller)
        except Problem:
            # The certificate has expired, or this node has no leader: the client may authenticate
            # later.
            return
        self._admit(session, caller)

    def login(self, session: Session, name: bytes, secret: bytes) -> None:
        """Authenticate a client. Raises CommandError, which is the same for a wrong name or secret.

        The user is found by the secret, so that an unknown name takes the time of a wrong secret.
        """
        try:
            caller = self._authenticator.by_token(secret.decode("utf-8", "replace"))
        except Problem as problem:
            if problem.code == "not_ready":
                raise CommandError(MASTER_DOWN) from None
            told = refusal(problem)
            assert told is not None, "a problem is a refusal"
            raise told from None
        if caller is None or name not in (DEFAULT, caller.name.encode()):
            raise CommandError(WRONG)
        if not self.required:
            # Every client may do everything.
            return
        if session.caller is not None and session.caller.name != caller.name:
            # The new user must not see what only the old one was allowed to see.
            self._executor.pubsub.leave(session)
            if session.watched:
                forget_watches(session)
                session.dirty_watch = True
        self._admit(session, caller)

    def later(self, run: Run, attempt: Callable[[], Reply]) -> Reply | None:
        """The reply of a login that is tried again soon, because this node may not have the newest
        users yet; None if it has them.
        """
        if self._node.role.leading or not run.may_wait:
            return None

        async def work() -> Reply:
            await self._node.pause(FOLLOWER_SECONDS)
            return attempt()

        return self._native.answer_later(run, "auth", work())

    def _admit(self, session: Session, caller: Caller) -> None:
        session.authenticated = True
        session.user = caller.name.encode()
        session.caller = caller
        session.restricted = caller if _is_restricted(caller) else None
        session.limited = not caller.permissions.may_everywhere("redis")
        session.update_special()

    def look(self) -> None:
        """Act on changed principals, before the first command of a turn runs."""
        table = self._node.engine.state.access
        if self._seen != (table, table.version):
            self.recheck()

    def recheck(self) -> None:
        """Close connections of users whose rights have changed or ended."""
        table = self._node.engine.state.access
        self._seen = table, table.version
        required = self.required
        for connection in list(self._connections.values()):
            session = connection.session
            caller = session.caller
            if caller is not None:
                if not self._authenticator.is_valid(caller):
                    self._end(connection)
            elif session.authenticated and required:
                session.authenticated = False
                session.update_special()
                if session.blocked is not None or session.subscribed or connection.task is not None:
                    self._end(connection)
            elif not session.authenticated and not required:
                session.authenticated = True
                session.update_special()

    def _end(self, connection: Client) -> None:
        """Close a connection at once. Its blocked command is not served any more."""
        self._executor.waits.end(connection.session)
        connection.abort()


def _is_restricted(caller: Caller) -> bool:
    """Whether verbs of the delay log have to ask a caller's rights or count against its limits."""
    return (
        caller.calls is not None
        or caller.messages is not None
        or not all(map(caller.permissions.may_everywhere, RIGHTS_OF_VERBS))
    )
