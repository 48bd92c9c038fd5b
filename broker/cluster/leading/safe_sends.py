"""Sends that wait for another safety than a majority: this disk (acks=leader) or all voters
(acks=all).

acks=quorum waits for the commit, as everything else does. acks=all has a deadline, since one voter
that is away would block every such send; the error then states which voters are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.errors import EngineError
from delaylog.broker.host.commits.position_waiters import Completion, PositionWaiters
from delaylog.replication.leading.leader import Acks, Leader

ALL_SECONDS: Final = 5.0
"""How long a send with acks=all waits for the slowest voter."""


class NotEverywhereError(EngineError):
    """The message is stored, and some voters did not confirm it in time. `facts["missing"]` names
    them, `facts["committed"]` tells whether a majority has the message. Send it again with the same
    sequence, or accept that.
    """

    code = "not_ready"


class SafeSends:
    """The waiting sends of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name_of: Callable[[int], str]) -> None:
        self._loop = loop
        self._name_of = name_of
        self._leader = PositionWaiters()
        self._all = PositionWaiters()

    def add(self, leader: Leader, position: int, acks: Acks, call: Completion) -> None:
        """Call back once the log is that safe up to `position`, at once if it is already."""
        if leader.safe_end(acks) >= position:
            call(None)
        elif acks is Acks.LEADER:
            self._leader.add(position, call)
        else:
            self._add_all(leader, position, call)

    def _add_all(self, leader: Leader, position: int, call: Completion) -> None:
        def completed(error: BaseException | None) -> None:
            timer.cancel()
            call(error)

        def too_late() -> None:
            self._all.remove(position, completed)
            call(self._not_everywhere(leader, position))

        timer = self._loop.call_later(ALL_SECONDS, too_late)
        self._all.add(position, completed)

    def _not_everywhere(self, leader: Leader, position: int) -> NotEverywhereError:
        missing = [
            self._name_of(peer)
            for peer, one in leader.progress.items()
            if one.counts and one.match < position
        ]
        committed = leader.commit >= position
        known = "a majority has it" if committed else "no majority is known to have it"
        return NotEverywhereError(
            f"stored, but not every voter confirmed it within {ALL_SECONDS:.0f} s (missing: "
            f"{', '.join(missing) or 'none'}); {known}; send it again with the same sequence",
            committed=committed,
            missing=missing,
        )

    def progress(self, leader: Leader) -> None:
        """Call back for what has become safe."""
        if len(self._leader):
            self._leader.reach(leader.safe_end(Acks.LEADER))
        if len(self._all):
            self._all.reach(leader.safe_end(Acks.ALL))

    def fail_all(self, error: BaseException) -> None:
        """Fail all waiting sends: the leadership has ended."""
        self._leader.fail_all(error)
        self._all.fail_all(error)
