"""A node that wants to lead: collects promises and decides whose log and which tick to go on from.

Among the promises of a majority is every log that holds all that was ever committed; the one with
the newest last epoch, and the longest of those, is such a log. The tick is the newest of the same
promises, by epoch first. The candidate's own log is cut to what it shares with the best one and
filled from there before it may begin.
"""

from __future__ import annotations

from delaylog.replication.epochs import common_end
from delaylog.replication.members import Members
from delaylog.replication.messages import Promise
from delaylog.replication.watermark import EpochTick


class Candidate:
    """One try to lead, in one epoch."""

    def __init__(
        self, node: int, members: Members, promise: Promise, *, now_ms: int, ask_ms: int
    ) -> None:
        """`promise` is what the node says of itself; it asks the others again at `ask_ms`."""
        self._node = node
        self._members = members
        self.epoch = promise.epoch
        self.promises: dict[int, Promise] = {node: promise}
        self.best: int | None = None
        self.ask_ms = ask_ms
        self.heard_ms = now_ms
        """When the best log last answered."""

    @property
    def adopting(self) -> bool:
        """Whether it has been decided whose log to go on from."""
        return self.best is not None

    def missing(self) -> list[int]:
        """Who has not promised yet."""
        return [node for node in self._members.nodes if node not in self.promises]

    def enough(self) -> bool:
        """Whether a majority has promised."""
        return len(self.promises) >= self._members.majority

    def decide(self, now_ms: int) -> Promise:
        """Whose log it is; the own one if no other is better."""
        self.best = self._best()
        self.heard_ms = now_ms
        return self.promises[self.best]

    def _best(self) -> int:
        promises = self.promises

        def rank(node: int) -> tuple[int, int, bool]:
            return promises[node].last_epoch, promises[node].end, node == self._node

        return max(promises, key=rank)

    def tick(self) -> EpochTick:
        """From where dispatch goes on."""
        return max(promise.tick for promise in self.promises.values())

    def shared_end(self, own: Promise) -> int | None:
        """Up to where the own log, as it is now, is the best one's; None if that is unknown."""
        assert self.best is not None, "it is decided first"
        best = self.promises[self.best]
        return common_end(own.table, own.end, best.table, best.end)
