"""MULTI: commands are checked and queued, and EXEC runs them without interruption."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.encoding import ANSWER_BYTES_MAX, encode_into
from delaylog.broker.keyspace.errors import (
    EXEC_ABORT,
    EXEC_ABORTED_BY,
    MASTER_DOWN,
    READ_ONLY,
    CommandError,
)
from delaylog.broker.keyspace.replies import NO_ARRAY, QUEUED, WRITTEN, ErrorReply, Reply, Status
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import SharedState
from delaylog.broker.keyspace.running.watching import forget_watches, watched_is_over

MULTI_BYTES_MAX: Final = 64 << 20
"""The commands between MULTI and EXEC; Redis has no such limit."""
_QUEUED_BYTES: Final = 200
"""Approximate memory of a queued command, without its words."""
_LONG_MULTI: Final = b"ERR a transaction may have %d bytes of commands" % MULTI_BYTES_MAX
_LARGE_BYTES: Final = 4096
"""Memory for a smaller command is not checked."""


def enqueue(
    shared: SharedState, session: Session, command: Command, argv: Args
) -> Status | ErrorReply:
    """Queue a command for EXEC; returns QUEUED, or the error if it is refused."""
    assert session.queue is not None
    if command.no_multi:
        text = b"ERR Command not allowed inside a transaction"
        return ErrorReply(text)
    if command.write and (refusal := shared.refusal_of(command)) is not None:
        return refusal
    if shared.lacks_data(session, command):
        return ErrorReply(MASTER_DOWN)
    size = sum(map(len, argv)) + _QUEUED_BYTES
    session.queued_bytes += size
    if session.queued_bytes > MULTI_BYTES_MAX:
        # EXEC will be refused, so the queued commands are freed now.
        session.queue.clear()
        return ErrorReply(_LONG_MULTI)
    if size > _LARGE_BYTES and (refusal := shared.may_take(size)) is not None:
        return refusal
    session.queue.append((command, argv))
    return QUEUED


def run_queue(run: Run) -> Reply:
    """EXEC: run the queued commands, unless the transaction is aborted."""
    shared, session = run.shared, run.session
    queue, session.queue, session.queued_bytes = session.queue, None, 0
    assert queue is not None
    failed, session.failed_multi = session.failed_multi, False
    changed = session.dirty_watch or watched_is_over(session, run.keyspace.now_ms)
    forget_watches(session)
    session.update_special()
    if failed:
        raise CommandError(EXEC_ABORT)
    if changed:
        return NO_ARRAY
    if any(shared.lacks_data(session, command) for command, _ in queue):
        raise CommandError(EXEC_ABORTED_BY + MASTER_DOWN)
    refusals = (shared.refusal_of(command) for command, _ in queue if command.write)
    if (refusal := next((each for each in refusals if each is not None), None)) is not None:
        if refusal.text == READ_ONLY:
            raise CommandError(EXEC_ABORTED_BY + READ_ONLY)
        raise CommandError(refusal.text)
    out = session.out
    run.may_wait = False
    # Each reply is encoded before the next command runs, since HELLO changes the encoding, and
    # messages that the client publishes to itself come in between.
    out.append(b"*%d\r\n" % len(queue))
    room = ANSWER_BYTES_MAX
    try:
        for command, argv in queue:
            told = len(out)
            # AUTH may have changed the user since the command was queued.
            denied = shared.denied(session, command)
            reply = run.call(session, command, argv) if denied is None else denied
            if reply is not WRITTEN:
                encode_into(out, reply, session.resp)
            room -= sum(map(len, out[told:]))
            if room < 0:
                # The rest runs without replies, and the client is closed.
                out.clear()
                session.kill()
    finally:
        run.may_wait = True
    return WRITTEN


def discard(session: Session) -> None:
    """DISCARD: end the transaction without running it."""
    session.queue = None
    session.failed_multi = False
    session.queued_bytes = 0
    forget_watches(session)
    session.update_special()
