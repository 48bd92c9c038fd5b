"""Writes commands of Redis clients to the audit log.

It records administrative commands (`Command.administrative`), DL verbs that change messages, and
every refusal of a caller. A change of users is carried out after its line is durable, like an
administrative call over HTTP. Other commands run to their end within a turn of the loop, so they
cannot wait: administrative ones are refused while the audit log cannot be written, and their lines
are durable within a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from delaylog.broker.host.audit.audit_log import AuditError, AuditLog
from delaylog.broker.host.audit.lines import BEGUN, DONE, AuditLine
from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.replies import WAITS, ErrorReply, Reply
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import SharedState
from delaylog.broker.resp.facts import host_in
from delaylog.broker.resp.native.words import refusal, topic_key
from delaylog.broker.resp.users import NodeUsers

FACE: Final = "redis"
_NAMED: Final = {
    b"acl|setuser": slice(2, 3),
    b"acl|deluser": slice(2, None),
    b"config|set": slice(2, None, 2),
    b"client|kill": slice(2, None),
}
"""Which words of these commands are recorded: they name what is changed, and are no secrets."""
_REFUSED: Final = ErrorReply(b"ERR the audit log cannot be written, so the command was not run")


class CommandAudit:
    """The audit of one endpoint."""

    def __init__(self, log: AuditLog, shared: SharedState, users: NodeUsers) -> None:
        self._log = log
        users.carry = self._carry
        shared.may_administer = self._may_administer
        shared.on_audited = self._record
        shared.on_denied = self._note_denied

    def _may_administer(self) -> ErrorReply | None:
        return None if self._log.failing is None else _REFUSED

    def _record(self, session: Session, command: Command, argv: Args, reply: Reply) -> None:
        right = "admin" if command.administrative else "change"
        if not self._log.records(right) or (command.administrative and reply is WAITS):
            # An administrative command that waits is a change of users: see `_carry`.
            return
        line = _line(session, command.name)
        line.right = right
        if reply is WAITS:
            line.outcome = BEGUN
        elif isinstance(reply, ErrorReply):
            line.outcome = _first_word(reply.text)
        else:
            line.outcome = DONE
        named = _NAMED.get(command.name)
        if named is not None:
            line.facts = _facts(argv[named])
        if not command.administrative:
            try:
                line.namespace, line.topic = topic_key(argv[1])
            except CommandError:
                line.facts = {"topic": "not a name"}
        self._log.record(line)

    async def _carry(
        self,
        session: Session,
        command: bytes,
        names: Args,
        change: Callable[[], Awaitable[Reply]],
    ) -> Reply:
        """Carry out a change of users and record it. Raises CommandError if its line cannot be
        written.
        """
        # Made now: the change may take the client's own rights, and with them its name.
        line = _line(session, command)
        line.right, line.facts = "admin", _facts(names)
        try:
            return await self._log.carry(
                "admin", lambda outcome: replace(line, outcome=outcome), change, _code_of
            )
        except AuditError:
            raise CommandError(_REFUSED.text) from None

    def _note_denied(self, session: Session, reason: str, command: bytes) -> None:
        line = _line(session, command)
        line.outcome = "unauthorized" if reason == "auth" else "forbidden"
        self._log.refused(line)


def _code_of(error: Exception) -> str | None:
    told = refusal(error)
    return None if told is None else _first_word(told.text)


def _line(session: Session, name: bytes) -> AuditLine:
    return AuditLine(
        principal=None if session.caller is None else session.user.decode("utf-8", "replace"),
        address=host_in(session.address),
        face=FACE,
        call=name.replace(b"|", b" ").upper().decode("utf-8", "replace"),
    )


def _facts(names: Args) -> dict[str, str]:
    return {"name": b" ".join(names).decode("utf-8", "replace")}


def _first_word(error: bytes) -> str:
    return error.partition(b" ")[0].decode("latin-1")
