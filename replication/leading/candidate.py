"""A candidate: collects promises, and decides from which log and which tick to go on.

Any majority includes a node with all committed frames. The log with the newest last epoch, and the
longest of those, has all of them. The tick is the newest of the same promises, by epoch first. The
candidate's own log is cut to the common prefix with the best log and filled from there before the
epoch begins. The best log may have a newer configuration: then a majority of that one has to
promise too.
"""

from __future__ import annotations

from typing import NamedTuple

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import common_end
from delaylog.replication.messages import Promise
from delaylog.replication.watermark import EpochTick


class Change(NamedTuple):
    """A change of members, with which an epoch is to begin."""

    behind: int
    """The epoch that the change was made in: if the log ends in another one, it is void."""
    configuration: Configuration


class Candidate:
    """One candidacy, in one epoch."""

    def __init__(
        self, node: int, configuration: Configuration, promise: Promise, *, now_ms: int, ask_ms: int
    ) -> None:
        """`promise` = the node's own; it asks the others again at `ask_ms`."""
        self._node = node
        self._configuration = configuration
        self.epoch = promise.epoch
        self.change: Change | None = None
        """The change of members to begin the epoch with."""
        self.promises: dict[int, Promise] = {node: promise}
        self.best: int | None = None
        self.ask_ms = ask_ms
        self.heard_ms = now_ms
        """When the best log last answered."""

    @property
    def adopting(self) -> bool:
        """Whether the best log is decided."""
        return self.best is not None

    def missing(self) -> list[int]:
        """The voters that have not promised yet."""
        return [node for node in self._configuration.deciding if node not in self.promises]

    def enough(self) -> bool:
        """Whether a majority has promised."""
        return self._configuration.agree(self.promises)

    def adopted(self, configuration: Configuration, promise: Promise) -> bool:
        """The own log equals the best one now, and has this configuration.

        Returns whether a majority of it has promised; if not, the others are asked, and the best
        log is decided again.

        With a newer configuration all earlier promises are void: a node may have promised, then
        been wiped, removed and added again, and have acknowledged frames since.
        """
        if configuration.version != self._configuration.version:
            self.promises = {}
        self._configuration = configuration
        self.promises[self._node] = promise
        if not self.enough():
            self.best = None
        return self.adopting

    def decide(self, now_ms: int) -> Promise:
        """Decide the best log; the own one if no other is better."""
        self.best = self._best()
        self.heard_ms = now_ms
        return self.promises[self.best]

    def _best(self) -> int:
        promises = self.promises

        def rank(node: int) -> tuple[int, int, bool]:
            return promises[node].last_epoch, promises[node].end, node == self._node

        return max(promises, key=rank)

    def begins_with(self, last_epoch: int, configuration: Configuration) -> Configuration:
        """The configuration that the epoch begins with.

        `last_epoch` and `configuration` are those of the log: a change is valid only for the log
        that it was made for.
        """
        if self.change is None or self.change.behind != last_epoch:
            return configuration
        return self.change.configuration

    def tick(self) -> EpochTick:
        """The tick from which dispatch goes on."""
        return max(promise.tick for promise in self.promises.values())

    def shared_end(self, own: Promise) -> int | None:
        """The end of the common prefix of the own log and the best one; None if unknown."""
        assert self.best is not None, "it is decided first"
        best = self.promises[self.best]
        return common_end(own.table, own.end, best.table, best.end)
