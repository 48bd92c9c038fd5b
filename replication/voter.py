"""The voter: promises epochs to candidates, and sends its log to the candidate that it promised.

A promise is durable before it is sent, and it is sent only once the whole log is durable: the
candidate relies on the contents of the log, which must survive a power cut. From then on the log is
frozen until the candidate leads, or a higher epoch is promised.
"""

from __future__ import annotations

from delaylog.replication.disk import MetaStore
from delaylog.replication.epochs import common_end, epoch_counter
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import Fetch, Fetched, Nack, Promise
from delaylog.replication.replica import Replica


class Voter:
    """The promises of one node."""

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
        """The promised epoch: this node answers no lower one.

        The last epoch of its log counts too: the folder may have been served alone before.
        """
        return max(self._meta.meta.promised_epoch, self._log.epochs.last_epoch)

    def promise(self, epoch: int) -> None:
        """Promise to answer no lower epoch; durable when this returns."""
        self._meta.save(self._meta.meta.promise(epoch))
        self._owed = None

    def may_promise(self, epoch: int) -> bool:
        """Whether the counter is greater: no two leaders share one, so refs can contain it."""
        return epoch_counter(epoch) > epoch_counter(self.promised)

    def follows(self, epoch: int) -> bool:
        """Whether it takes frames of this epoch, which must not be below the promise."""
        return epoch >= self.promised

    def own_promise(self, epoch: int) -> Promise:
        """The promise with the present contents of the log."""
        return Promise(epoch, self._log.end, self._ticks.tick, self._log.epochs.entries())

    def owe(self, receiver: int, epoch: int) -> None:
        """Send the promise of `epoch` as soon as the log is durable."""
        self._owed = (receiver, epoch)
        self.pay()

    def forget_owed(self) -> None:
        """Forget a promise that waits: the candidate leads already."""
        self._owed = None

    def pay(self) -> None:
        """Send the promise that waits, if the log is durable."""
        if self._owed is not None and self._holds_durably():
            receiver, epoch = self._owed
            self._owed = None
            self._send(receiver, self.own_promise(epoch))

    def _holds_durably(self) -> bool:
        return self._log.durable_end == self._log.end

    def fetch(self, source: int, message: Fetch) -> None:
        """Send a candidate the frames that its log lacks. Raises PeerError."""
        if not self._shows(message.epoch):
            if message.epoch < self.promised:
                self._send(source, Nack(message.epoch, self.promised))
            return
        log, epoch, offset = self._log, message.epoch, message.offset
        shared = common_end(log.epochs.entries(), log.end, message.table, offset)
        if shared is None or offset < log.first_position:
            self._send(source, Fetched(epoch, log.first_position, log.end, b""))
        elif shared != offset:
            raise PeerError(f"node {source} continues from a log that differs from this one")
        elif offset < log.end:
            data = log.read(offset, self._bytes_max)
            self._send(source, Fetched(epoch, offset, log.end, data))

    def _shows(self, epoch: int) -> bool:
        """Whether the log is frozen for this epoch: only for the one that was promised."""
        return epoch == self.promised
