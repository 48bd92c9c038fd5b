"""Applies the effects of a KEYSPACE frame, at recovery and on followers."""

from __future__ import annotations

from collections.abc import Iterable

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.keyspace import Keyspace


def apply_effects(keyspace: Keyspace, effects: Iterable[Args]) -> None:
    """Run effects on a keyspace, without clock, checks or replies."""
    if keyspace.apply_commands is None:
        # It loads all commands. A broker that has no KEYSPACE frames starts without them.
        from delaylog.broker.keyspace.running.applier import applier

        keyspace.apply_commands = applier(keyspace)
    keyspace.applying = True
    try:
        keyspace.apply_commands(effects)
    finally:
        keyspace.applying = False
