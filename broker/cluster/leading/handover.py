"""A planned hand-over, from the request to its end.

The final tick goes out first. Once replication has given the leadership away, the oracle is told
once whom to elect.
"""

from __future__ import annotations

import asyncio

from delaylog.replication.leading.leader import Leader


def furthest(leader: Leader) -> int | None:
    """The other voter with the longest log; None if there is no other voter."""
    able = [(one.match, peer) for peer, one in leader.progress.items() if one.counts]
    return max(able)[1] if able else None


class Handover:
    """The hand-over of one member, if one is in progress."""

    def __init__(self) -> None:
        self._ended: asyncio.Future[bool] | None = None
        self.target: int | None = None
        """The node to hand over to, until the leadership was given away."""

    def begin(self, target: int) -> asyncio.Future[bool]:
        """Begin; the future is True once this node no longer leads, False if no node took over."""
        self.target = target
        self._ended = asyncio.get_running_loop().create_future()
        return self._ended

    def give(self) -> int:
        """Replication has given the leadership away; returns the target, once."""
        assert self.target is not None, "a hand-over is under way"
        target, self.target = self.target, None
        return target

    def end(self, *, done: bool) -> None:
        """This node no longer leads (`done`), or leads on. Without a hand-over it does nothing."""
        self.target = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(done)
        self._ended = None
