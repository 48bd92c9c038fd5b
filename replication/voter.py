"""The voice of a node: what it promises, and what it shows to whom it has promised.

A promise is on the disk before it is given, and is given only once all that the log holds is
durable: a candidate builds on what it was told the log holds, so that must still be there after
a power cut. From then on the log is frozen until the candidate leads, or a greater one comes.
"""

from __future__ import annotations

from delaylog.replication.disk import MetaStore
from delaylog.replication.epochs import common_end, epoch_counter
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import Fetch, Fetched, Nack, Promise
from delaylog.replication.replica import Replica


class Voter:
    """One node's promises."""

    def __init__(self, replica: Replica, meta: MetaStore) -> None:
        self._log = replica.log
        self._meta = meta
        self._ticks = replica.ticks
        self._bytes_max = replica.timing.append_bytes_max
        self._send = replica.send
        self._owed: tuple[int, int] | None = None
        """(receiver, epoch) of a promise that waits for the log to be durable."""

    @property
    def promised(self) -> int:
        """The epoch below which this node answers nobody.

        Its log counts too: a node that becomes part of a cluster may have led alone before.
        """
        return max(self._meta.meta.promised_epoch, self._log.epochs.last_epoch)

    def promise(self, epoch: int) -> None:
        """Never again answer a lower epoch. On the disk when this returns."""
        self._meta.save(self._meta.meta.promise(epoch))
        self._owed = None

    def may_promise(self, epoch: int) -> bool:
        """Only a greater counter: no two leaders ever share one, so refs can carry it."""
        return epoch_counter(epoch) > epoch_counter(self.promised)

    def follows(self, epoch: int) -> bool:
        """Whether it takes frames of this epoch: nobody's below what was promised."""
        return epoch >= self.promised

    def own_promise(self, epoch: int) -> Promise:
        """What it would promise now."""
        return Promise(epoch, self._log.end, self._ticks.tick, self._log.epochs.entries())

    def owe(self, receiver: int, epoch: int) -> None:
        """Give the promise of `epoch` as soon as the log is durable."""
        self._owed = (receiver, epoch)
        self.pay()

    def forget_owed(self) -> None:
        """The candidate leads by now."""
        self._owed = None

    def pay(self) -> None:
        """Give the promise that is owed, if nothing stands in the way any more."""
        if self._owed is not None and self._holds_durably():
            receiver, epoch = self._owed
            self._owed = None
            self._send(receiver, self.own_promise(epoch))

    def _holds_durably(self) -> bool:
        return self._log.durable_end == self._log.end

    def fetch(self, source: int, message: Fetch) -> None:
        """Show a candidate what its log lacks. Raises PeerError."""
        if not self._shows(message.epoch):
            if message.epoch < self.promised:
                self._send(source, Nack(message.epoch, self.promised))
            return
        log, epoch, offset = self._log, message.epoch, message.offset
        shared = common_end(log.epochs.entries(), log.end, message.table, offset)
        if shared is None or offset < log.first_position:
            self._send(source, Fetched(epoch, log.first_position, log.end, b""))
        elif shared != offset:
            raise PeerError(f"node {source} goes on from another log than it was shown")
        elif offset < log.end:
            data = log.read(offset, self._bytes_max)
            self._send(source, Fetched(epoch, offset, log.end, data))

    def _shows(self, epoch: int) -> bool:
        """Only to the candidate it has promised: for any other the log is not frozen."""
        return epoch == self.promised
