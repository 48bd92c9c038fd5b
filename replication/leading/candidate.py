"""A node that wants to lead: collects promises and decides whose log and which tick to go on from.

Among the promises of a majority is every log that holds all that was ever committed; the one with
the newest last epoch, and the longest of those, is such a log. The tick is the newest of the same
promises, by epoch first. The candidate's own log is cut to what it shares with the best one and
filled from there before it may begin. That log may hold a newer configuration: then a majority of
that one is asked for too, before the candidate goes on.
"""

from __future__ import annotations

from typing import NamedTuple

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import common_end
from delaylog.replication.messages import Promise
from delaylog.replication.watermark import EpochTick


class Change(NamedTuple):
    """Other members, with which an epoch is to begin."""

    behind: int
    """The epoch that knew of none newer: it is the log's last, or nothing is changed."""
    configuration: Configuration


class Candidate:
    """One try to lead, in one epoch."""

    def __init__(
        self, node: int, configuration: Configuration, promise: Promise, *, now_ms: int, ask_ms: int
    ) -> None:
        """`promise` is what the node says of itself; it asks the others again at `ask_ms`."""
        self._node = node
        self._configuration = configuration
        self.epoch = promise.epoch
        self.change: Change | None = None
        """What a leader that begins anew wants to begin with."""
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
        return [node for node in self._configuration.deciding if node not in self.promises]

    def enough(self) -> bool:
        """Whether a majority has promised."""
        return self._configuration.agree(self.promises)

    def adopted(self, configuration: Configuration, promise: Promise) -> bool:
        """The own log is the best one now, and has this configuration: whether a majority of it has
        promised. If not, others are asked, and it is decided anew.

        Promises of before a newer configuration was known count no more: a node may have given its
        one and been wiped, removed and let in again since, with frames that it then acknowledged.
        """
        if configuration.version != self._configuration.version:
            self.promises = {}
        self._configuration = configuration
        self.promises[self._node] = promise
        if not self.enough():
            self.best = None
        return self.adopting

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

    def begins_with(self, last_epoch: int, configuration: Configuration) -> Configuration:
        """What its epoch begins with, behind a log that ends in `last_epoch`, with its
        configuration: a change was made for one log, and another may hold a newer configuration.
        """
        if self.change is None or self.change.behind != last_epoch:
            return configuration
        return self.change.configuration

    def tick(self) -> EpochTick:
        """From where dispatch goes on."""
        return max(promise.tick for promise in self.promises.values())

    def shared_end(self, own: Promise) -> int | None:
        """Up to where the own log, as it is now, is the best one's; None if that is unknown."""
        assert self.best is not None, "it is decided first"
        best = self.promises[self.best]
        return common_end(own.table, own.end, best.table, best.end)
