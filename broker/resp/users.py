"""The users of the endpoint: the principals of the broker.

A client authenticates by a token or a password, or by its certificate. What it may do is decided by
its principal's rules for Redis commands, and for DL.* and ACL by the rights that all faces share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.access.authenticating import FOLLOWER_SECONDS
from delaylog.broker.calls.access.caller import ANYONE, Caller
from delaylog.broker.calls.problems import Problem
from delaylog.broker.engine.access.commands import leaves_no_admin, put_principal, revoke
from delaylog.broker.engine.access.key_grants import RIGHTS_OF
from delaylog.broker.engine.access.principals import Principal
from delaylog.broker.keyspace.access.rights import Denied, rights_of
from delaylog.broker.keyspace.access.rules import ALL_WORDS, Rules, parse_rules
from delaylog.broker.keyspace.access.users import DEFAULT, WRONG
from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import MASTER_DOWN, CommandError
from delaylog.broker.keyspace.replies import OK, Reply
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.watching import forget_watches
from delaylog.broker.resp.native.permits import denied_verb
from delaylog.broker.resp.native.words import refusal
from delaylog.broker.resp.user_words import changed_by

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.host.tls.client_certificates import ClientCertificate
    from delaylog.broker.keyspace.running.executor import Executor
    from delaylog.broker.keyspace.running.run import Run
    from delaylog.broker.resp.client import Client
    from delaylog.broker.resp.native.host import NativeHost

Carry = Callable[[Session, bytes, Args, Callable[[], Awaitable[Reply]]], Awaitable[Reply]]
"""Carries out a change of users. Its arguments: the client, the command's name, the users' names,
and the change.
"""

RIGHTS_OF_VERBS: Final = frozenset[str]().union(*RIGHTS_OF.values())


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
        self.carry: Carry = lambda session, command, names, change: change()
        """Records changes of users."""
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
        rights = rights_of(() if caller.principal is None else caller.principal.redis)
        session.rights = None if rights.is_full else rights
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

    # ------------------------------------------------------------------ questions

    def names(self) -> list[bytes]:
        """The names of all users."""
        named = sorted(name.encode() for name in self._node.engine.state.access.principals)
        return named if self.required else sorted({DEFAULT, *named})

    def find(self, name: bytes) -> Rules | None:
        """The rules of a user; None if there is no such user."""
        principal = self._principal(name)
        if principal is not None:
            return rights_of(principal.redis).rules
        return parse_rules(ALL_WORDS) if name == DEFAULT and not self.required else None

    def denied(self, name: bytes, command: Command, argv: Args) -> Denied | None:
        """Why a user may not run a command; None = it may. The user exists."""
        principal = self._principal(name)
        if principal is None:
            return None
        denied = rights_of(principal.redis).denied(command, argv)
        if denied is not None:
            return denied
        if command.name.startswith(b"acl|") and "admin" in command.flags and not principal.is_admin:
            return Denied("command", command.name)
        return denied_verb(principal.permissions, command, argv)

    def may_manage(self, session: Session) -> bool:
        """Whether a client may see and change users."""
        caller: Caller = session.caller or ANYONE
        return caller.permissions.may_everywhere("admin")

    def _principal(self, name: bytes) -> Principal | None:
        return self._node.engine.state.access.principals.get(name.decode("utf-8", "replace"))

    # ------------------------------------------------------------------ changes

    def change(self, run: Run, name: bytes, words: list[bytes]) -> Reply:
        """Create or change a user by the words of ACL SETUSER. Raises CommandError."""

        def put() -> Reply:
            state, now_ms = self._node.engine.state, self._node.clock.now_ms()
            old = self._principal(name)
            if not state.access.principals:
                raise CommandError(
                    b"CONFLICT the first user must be an administrator: make one with delaylog "
                    b"token create, since from then on clients have to authenticate"
                )
            put_principal(state, changed_by(name, old, words, now_ms), now_ms)
            return OK

        return self._logged(run, [name], put)

    def remove(self, run: Run, names: list[bytes]) -> Reply:
        """Remove users; replies with their number. Raises CommandError."""

        def drop() -> Reply:
            state, now_ms = self._node.engine.state, self._node.clock.now_ms()
            known = [each for each in map(self._principal, dict.fromkeys(names)) if each]
            if leaves_no_admin(state, known, now_ms):
                raise CommandError(b"CONFLICT no administrator would be left: nothing is removed")
            for each in known:
                revoke(state, each.name, now_ms)
            return len(known)

        return self._logged(run, names, drop)

    def _logged(self, run: Run, names: list[bytes], change: Callable[[], Reply]) -> Reply:
        """Make a change of these users, and reply when it is durable."""
        if not run.may_wait:
            raise CommandError(b"ERR users cannot be changed inside a transaction")
        node, session, command = self._node, run.session, run.command
        assert command is not None, "a command asks for it"

        async def work() -> Reply:
            # The node's role and the client's rights may have changed while the audit line was
            # written.
            node.role.check()
            if not self._authenticator.is_valid(session.caller or ANYONE):
                raise CommandError(b"NOPERM the rights of this user have changed")
            reply = change()
            node.appended()
            ends = session.caller is not None and not self._authenticator.is_valid(session.caller)
            if ends:
                # The client has changed its own rights: it is closed after the reply.
                session.caller, session.authenticated = None, False
            await node.durable(node.engine.state.position)
            session.closing = session.closing or ends
            return reply

        carried = self.carry(session, command.name, names, work)
        return self._native.answer_later(run, command.name.decode(), carried)


def _is_restricted(caller: Caller) -> bool:
    """Whether verbs of the delay log have to ask a caller's rights or count against its limits."""
    return (
        caller.calls is not None
        or caller.messages is not None
        or not all(map(caller.permissions.may_everywhere, RIGHTS_OF_VERBS))
    )
