"""Writes commands of Redis clients to the audit log.

It records administrative commands (`Command.administrative`), DL verbs that change messages, and
every refusal of a caller. A command runs to its end within a turn of the loop, so it cannot wait
for its line as a call over HTTP does: administrative commands are refused while the audit log
cannot be written, and their lines are durable within a second.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.host.audit.audit_log import AuditLog
from delaylog.broker.host.audit.lines import BEGUN, DONE, AuditLine
from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.replies import WAITS, ErrorReply, Reply
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import SharedState
from delaylog.broker.resp.facts import host_in
from delaylog.broker.resp.native.words import topic_key

FACE: Final = "redis"
_NAMED: Final = frozenset({b"acl|setuser", b"acl|deluser", b"config|set", b"client|kill"})
"""Commands whose third word is recorded: it names what they change, and is no secret."""
_REFUSED: Final = ErrorReply(b"ERR the audit log cannot be written, so the command was not run")


class CommandAudit:
    """The audit of one endpoint."""

    def __init__(self, log: AuditLog, shared: SharedState) -> None:
        self._log = log
        shared.may_administer = self._may_administer
        shared.on_audited = self._record
        shared.on_denied = self._note_denied

    def _may_administer(self) -> ErrorReply | None:
        return _REFUSED if self._log.on and self._log.failing is not None else None

    def _record(self, session: Session, command: Command, argv: Args, reply: Reply) -> None:
        right = "admin" if command.administrative else "change"
        if not self._log.settings.records(right):
            return
        line = _line(session, command.name)
        line.right = right
        if reply is WAITS:
            line.outcome = BEGUN
        elif isinstance(reply, ErrorReply):
            line.outcome = reply.text.partition(b" ")[0].decode("latin-1")
        else:
            line.outcome = DONE
        if command.name in _NAMED and len(argv) > 2:
            line.facts = {"name": argv[2].decode("utf-8", "replace")}
        if not command.administrative:
            try:
                line.namespace, line.topic = topic_key(argv[1])
            except CommandError:
                line.facts = {"topic": "not a name"}
        self._log.record(line)

    def _note_denied(self, session: Session, reason: str, command: bytes) -> None:
        line = _line(session, command)
        line.outcome = "unauthorized" if reason == "auth" else "forbidden"
        self._log.refused(line)


def _line(session: Session, name: bytes) -> AuditLine:
    return AuditLine(
        principal=None if session.caller is None else session.user.decode("utf-8", "replace"),
        address=host_in(session.address),
        face=FACE,
        call=name.replace(b"|", b" ").upper().decode("utf-8", "replace"),
    )
