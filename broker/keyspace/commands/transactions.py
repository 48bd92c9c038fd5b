"""MULTI, EXEC, DISCARD, WATCH, UNWATCH.

After MULTI commands are checked and queued, and EXEC runs them without interruption.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.errors import (
    EXEC_ABORT,
    EXEC_ABORTED_BY,
    MASTER_DOWN,
    READ_ONLY,
    CommandError,
)
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import (
    ANSWER_BYTES_MAX,
    NO_ARRAY,
    OK,
    QUEUED,
    WRITTEN,
    ErrorReply,
    Reply,
    Status,
    encode_into,
)
from delaylog.broker.keyspace.running.session import (
    Session,
    forget_watches,
    watch_keys,
    watched_is_over,
)
from delaylog.broker.keyspace.running.shared_state import SharedState

# ----------------------------------------------------------------------- the queue of a session

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


def drop_queue(session: Session) -> None:
    """DISCARD: end the transaction without running it."""
    session.queue = None
    session.failed_multi = False
    session.queued_bytes = 0
    forget_watches(session)
    session.update_special()


# ------------------------------------------------------------------------------------- commands

_FLAGS = "noscript loading stale fast allow_busy now"


@command("multi", 1, "transactions", _FLAGS)
def multi(run: Run, argv: Args) -> Reply:
    """Start a transaction: queue the following commands."""
    if run.session.queue is not None:
        raise CommandError(b"ERR MULTI calls can not be nested")
    run.session.queue = []
    run.session.update_special()
    return OK


@command("exec", 1, "transactions", "noscript loading stale skip_slowlog now")
def exec_(run: Run, argv: Args) -> Reply:
    """Run the queued commands, unless a watched key changed."""
    if run.session.queue is None:
        raise CommandError(b"ERR EXEC without MULTI")
    return run_queue(run)


@command("discard", 1, "transactions", _FLAGS)
def discard(run: Run, argv: Args) -> Reply:
    """Discard the queued commands."""
    session = run.session
    if session.queue is None:
        raise CommandError(b"ERR DISCARD without MULTI")
    drop_queue(session)
    return OK


@command("watch", -2, "transactions", _FLAGS, keys=(1, -1, 1))
def watch(run: Run, argv: Args) -> Reply:
    """Make EXEC do nothing if one of the keys changes before it."""
    if run.session.queue is not None:
        raise CommandError(b"ERR WATCH inside MULTI is not allowed")
    if not run.session.dirty_watch:
        watch_keys(run.session, argv[1:], run.now_ms)
    return OK


@command("unwatch", 1, "transactions", "noscript loading stale fast allow_busy")
def unwatch(run: Run, argv: Args) -> Reply:
    """Stop watching all keys."""
    forget_watches(run.session)
    return OK
