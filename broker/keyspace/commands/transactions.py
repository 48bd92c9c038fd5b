"""MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

from __future__ import annotations

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Reply
from delaylog.broker.keyspace.running.multi import discard as drop_queue
from delaylog.broker.keyspace.running.multi import run_queue
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.running.watching import forget_watches, watch_keys

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
