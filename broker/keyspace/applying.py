"""Applies effects: the same functions that made them, without clock, checks or replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from delaylog.broker.keyspace.old_effects import apply_old
from delaylog.broker.keyspace.registry import WORDS, Args, find_command
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.keyspace.running.executor import Executor

if TYPE_CHECKING:
    from delaylog.broker.keyspace.keyspace import Keyspace


def applier(keyspace: Keyspace) -> Callable[[Iterable[Args]], None]:
    """A function that brings effects about in `keyspace`."""
    executor = Executor(keyspace)
    run = executor.script_run
    session = executor.connect(0)

    def apply(effects: Iterable[Args]) -> None:
        session.database = keyspace.databases[0]
        for argv in effects:
            command = WORDS.get(argv[0])
            if command is None:
                if apply_old(session.database, argv):
                    continue
                found = find_command(argv)
                assert not isinstance(found, ErrorReply), found
                command = found
            reply = executor.call(run, session, command, argv)
            assert not isinstance(reply, ErrorReply), (argv[0], reply)

    return apply
