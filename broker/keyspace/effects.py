"""Applies the effects of a KEYSPACE frame, at recovery and on followers.

Effects are applied by the command functions that made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.registry import WORDS, find_command
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.keyspace.running.executor import Executor


class UnknownEffectError(Exception):
    """An effect is a command that this version does not have; the text names it."""


def applier(keyspace: Keyspace) -> Callable[[Iterable[Args]], None]:
    """Return a function that applies effects to `keyspace`."""
    executor = Executor(keyspace)
    run = executor.script_run
    session = executor.connect(0)

    def apply(effects: Iterable[Args]) -> None:
        session.database = keyspace.databases[0]
        for argv in effects:
            command = WORDS.get(argv[0])
            if command is None:
                found = find_command(argv)
                if isinstance(found, ErrorReply):
                    raise UnknownEffectError(f"the Redis command {argv[0]!r} in the log")
                command = found
            reply = run.call(session, command, argv)
            assert not isinstance(reply, ErrorReply), (argv[0], reply)

    return apply


def apply_effects(keyspace: Keyspace, effects: Iterable[Args]) -> None:
    """Run effects on a keyspace, without clock, checks or replies."""
    if keyspace.apply_commands is None:
        keyspace.apply_commands = applier(keyspace)
    keyspace.applying = True
    try:
        keyspace.apply_commands(effects)
    finally:
        keyspace.applying = False
