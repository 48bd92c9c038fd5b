"""The keyspace of a node, with all that Redis commands need of it: the engine knows less."""

from __future__ import annotations

from typing import cast

from delaylog.broker.engine.state import EngineState
from delaylog.broker.keyspace.keyspace import Keyspace


def keyspace_of(state: EngineState) -> Keyspace:
    """Where this module is installed, the engine's keyspace is of this class."""
    return cast("Keyspace", state.keyspace)
