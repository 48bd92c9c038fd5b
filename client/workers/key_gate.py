"""KeyGate: at most one running message per key; others with the same key are parked.

The broker delivers one message per key at a time. But if a lease is lost while the handler still
runs, the same message, or the next one of the key, is delivered. Consumers of one topic and group
share a gate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from delaylog.client.workers.held import Held


class KeyGate:
    """The running identities, and the messages parked behind each."""

    def __init__(self) -> None:
        self._inside: dict[Hashable, list[Held] | None] = {}

    def enter(self, held: Held) -> bool:
        """Let a message run, or park it. Returns whether it may run."""
        inside = self._inside
        identity = held.identity
        if identity not in inside:
            inside[identity] = None
            return True
        parked = inside[identity]
        if parked is None:
            inside[identity] = [held]
        else:
            parked.append(held)
        return False

    def leave(self, held: Held) -> Sequence[Held]:
        """Release an identity. Returns its parked messages in order, which must enter again."""
        return self._inside.pop(held.identity) or ()

    def parked(self) -> list[Held]:
        """All parked messages."""
        return [held for parked in self._inside.values() for held in parked or ()]
