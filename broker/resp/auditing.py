"""Writes commands of Redis clients to the audit log.

It records administrative commands (`Command.administrative`), DL verbs that change messages, and
every refusal of a caller. Commands run to their end within a turn of the loop, so they cannot wait
for their lines: administrative ones are refused while the audit log cannot be written, and their
lines are durable within a second.
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
            line.outcome = _first_word(reply.text)
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


def _first_word(error: bytes) -> str:
    return error.partition(b" ")[0].decode("latin-1")
