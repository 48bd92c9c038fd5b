"""Applies the effects of a KEYSPACE frame, at recovery and on followers."""

from __future__ import annotations

from collections.abc import Iterable

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.keyspace import Keyspace


def apply_effects(keyspace: Keyspace, effects: Iterable[Args]) -> None:
    """Run effects on a keyspace, without clock, checks or replies."""
    if keyspace.apply_commands is None:
        # Imported here: it loads all commands, which a broker without KEYSPACE frames never needs.
        from delaylog.broker.keyspace.running.applier import applier

        keyspace.apply_commands = applier(keyspace)
    keyspace.applying = True
    try:
        keyspace.apply_commands(effects)
    finally:
        keyspace.applying = False
