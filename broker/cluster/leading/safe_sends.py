"""Who waits for a send to be safe in another way than on a majority: on this disk, or everywhere.

What waits for a majority waits for the commit, like everything else. `all` has a deadline, since
one node that is away would hold every such send for ever; what is known then is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.errors import EngineError
from delaylog.broker.host.commits.position_waiters import PositionWaiters, Told
from delaylog.replication.leading.leader import Acks, Leader

ALL_SECONDS: Final = 5.0
"""How long a send with acks=all waits for the slowest voter."""


class NotEverywhereError(EngineError):
    """The message is stored, and some voter did not say in time that it has it. `facts["missing"]`
    names those, `facts["committed"]` says whether a majority has it. Send it again under its
    sequence, or let it be.
    """

    code = "not_ready"


class SafeSends:
    """The waits of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name_of: Callable[[int], str]) -> None:
        self._loop = loop
        self._name_of = name_of
        self._leader = PositionWaiters()
        self._all = PositionWaiters()

    def add(self, leader: Leader, position: int, acks: Acks, call: Told) -> None:
        """Call back once it is as safe as that, at once if it is."""
        if leader.safe_end(acks) >= position:
            call(None)
        elif acks is Acks.LEADER:
            self._leader.add(position, call)
        else:
            self._add_all(leader, position, call)

    def _add_all(self, leader: Leader, position: int, call: Told) -> None:
        def told(error: BaseException | None) -> None:
            timer.cancel()
            call(error)

        def too_late() -> None:
            self._all.remove(position, told)
            call(self._not_everywhere(leader, position))

        timer = self._loop.call_later(ALL_SECONDS, too_late)
        self._all.add(position, told)

    def _not_everywhere(self, leader: Leader, position: int) -> NotEverywhereError:
        missing = [
            self._name_of(peer)
            for peer, one in leader.progress.items()
            if one.counts and one.match < position
        ]
        committed = leader.commit >= position
        known = "a majority has it" if committed else "no majority is known to have it"
        return NotEverywhereError(
            f"stored, but not every voter said within {ALL_SECONDS:.0f} s that it has it "
            f"(missing: {', '.join(missing) or 'none'}); {known}; send it again under its sequence",
            committed=committed,
            missing=missing,
        )

    def progress(self, leader: Leader) -> None:
        """The leader's log is safe further than before."""
        if len(self._leader):
            self._leader.reach(leader.safe_end(Acks.LEADER))
        if len(self._all):
            self._all.reach(leader.safe_end(Acks.ALL))

    def fail_all(self, error: BaseException) -> None:
        """The leadership has ended."""
        self._leader.fail_all(error)
        self._all.fail_all(error)
