"""One at a time by key: whoever has the same identity as something that runs is parked.

The broker hands out one message of a key at a time, but a lease may be lost while its handler
runs on, and then the same message, or the next of its key, comes again. The one rule: of one
identity at most one is inside. Consumers of one topic and group share a gate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from delaylog.client.workers.held import Held


class KeyGate:
    """Who is inside, and who waits for whom."""

    def __init__(self) -> None:
        self._inside: dict[Hashable, list[Held] | None] = {}

    def enter(self, held: Held) -> bool:
        """Whether it is inside now; otherwise it is parked."""
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
        """It is over; those that waited for it, in their order, may try to enter again."""
        return self._inside.pop(held.identity) or ()

    def parked(self) -> list[Held]:
        """All that wait for somebody."""
        return [held for parked in self._inside.values() for held in parked or ()]
