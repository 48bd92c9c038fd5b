"""Who may do what at the endpoint: users, failed logins, and the audit log.

The users are the principals of the broker. A client authenticates by a token, or by its
certificate. The right `redis` allows it every command on keys; verbs of the delay log ask for the
rights on topics that all faces share.

Guesses of passwords from one address are slowed down. Tokens are not: nobody guesses 32 random
bytes. Otherwise a stranger, or clients with an old token, could keep all clients behind the same
proxy or on the same machine from logging in.

The audit log gets administrative commands (`Command.administrative`), DL verbs that change
messages, and every refusal of a caller. Commands run to their end within a turn of the loop, so
they cannot wait for their lines: administrative ones are refused while the audit log cannot be
written, and their lines are durable within a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.access.authenticator import FOLLOWER_SECONDS
from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.answers import Problem
from delaylog.broker.engine.access.token_form import is_token
from delaylog.broker.host.watch.audit_files import BEGUN, DONE, AuditLine
from delaylog.broker.host.watch.audit_log import AuditLog
from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import MASTER_DOWN, CommandError
from delaylog.broker.keyspace.replies import WAITS, ErrorReply, Reply
from delaylog.broker.keyspace.running.session import Session, forget_watches
from delaylog.broker.keyspace.running.shared_state import DEFAULT, WRONG, SharedState
from delaylog.broker.resp.facts import host_in
from delaylog.broker.resp.native_words import refusal, topic_key

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.host.tls.contexts import ClientCertificate
    from delaylog.broker.keyspace.registry import Run
    from delaylog.broker.keyspace.running.executor import Executor
    from delaylog.broker.resp.connection import Connection
    from delaylog.broker.resp.native_host import NativeHost


# ---------------------------------------------------------------------------------------- users

RIGHTS_OF_VERBS: Final = ("send", "receive", "read", "bodies", "change")


class NodeUsers:
    """The principals of a node, as commands see them. All methods belong to the loop's thread."""

    def __init__(
        self,
        node: ServingNode,
        executor: Executor,
        native: NativeHost,
        connections: Mapping[int, Connection],
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

    def _end(self, connection: Connection) -> None:
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


# -------------------------------------------------------------------------------- failed logins

AUTH_WAIT_SECONDS: Final = 0.5
"""After a wrong password, the next one from that address is checked only after this time."""
_ADDRESSES_MAX: Final = 1_024

log = logging.getLogger("delaylog.resp")


class FailedLogins:
    """Recent wrong secrets by address."""

    def __init__(self, time: Callable[[], float]) -> None:
        """`time` = the loop's clock."""
        self._time = time
        self._failed: dict[str, tuple[int, float]] = {}
        """Address -> number of failures, and the time of the next attempt."""

    def note(self, session: Session, secret: bytes) -> None:
        """Count a wrong secret. The first one and every doubling are logged."""
        host = host_in(session.address)
        count, next_s = self._failed.pop(host, (0, 0.0))
        count += 1
        if len(self._failed) >= _ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        if not _is_token(secret):
            next_s = self._time() + AUTH_WAIT_SECONDS
        self._failed[host] = count, next_s
        if count & (count - 1) == 0:
            log.warning(
                "a Redis client sent a wrong token or password",
                extra={"address": host, "failures": count},
            )

    def left(self, session: Session, words: Iterable[bytes]) -> float:
        """Return the seconds until the address of a client may try again.

        `words` = the client's command. 0 if one of its words has the form of a token.
        """
        failed = self._failed.get(host_in(session.address))
        if failed is None or any(map(_is_token, words)):
            return 0.0
        return failed[1] - self._time()


def _is_token(secret: bytes) -> bool:
    return is_token(secret.decode("latin-1"))


# ------------------------------------------------------------------------------------ audit log

FACE: Final = "redis"
_REFUSED: Final = ErrorReply(b"ERR the audit log cannot be written, so the command was not run")


class CommandAudit:
    """The audit of one endpoint."""

    def __init__(self, log: AuditLog, shared: SharedState) -> None:
        self._log = log
        shared.may_administer = self._may_administer
        shared.on_audited = self._record
        shared.on_denied = self._note_denied

    def _may_administer(self) -> ErrorReply | None:
        return None if self._log.failing is None else _REFUSED

    def _record(self, session: Session, command: Command, argv: Args, reply: Reply) -> None:
        right = "admin" if command.administrative else "change"
        if not self._log.records(right):
            return
        line = _line(session, command.name)
        line.right = right
        if reply is WAITS:
            line.outcome = BEGUN
        elif isinstance(reply, ErrorReply):
            line.outcome = reply.text.partition(b" ")[0].decode("latin-1")
        else:
            line.outcome = DONE
        if command.name == b"client|kill":
            line.facts = {"name": b" ".join(argv[2:]).decode("utf-8", "replace")}
        if not command.administrative:
            try:
                line.namespace, line.topic = topic_key(argv[1])
            except CommandError:
                line.facts = {"topic": "not a name"}
        self._log.record(line)

    def _note_denied(self, session: Session, outcome: str, command: bytes) -> None:
        line = _line(session, command)
        line.outcome = outcome
        self._log.refused(line)


def _line(session: Session, name: bytes) -> AuditLine:
    return AuditLine(
        principal=None if session.caller is None else session.user.decode("utf-8", "replace"),
        address=host_in(session.address),
        face=FACE,
        call=name.replace(b"|", b" ").upper().decode("utf-8", "replace"),
    )
