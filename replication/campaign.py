"""How an epoch gets its leader: promises of voters, candidacies, and campaigns.

A promise is durable before it is sent, and it is sent only once the whole log is durable: the
candidate relies on the contents of the log, which must survive a power cut. From then on the log is
frozen until the candidate leads, or a higher epoch is promised.

A candidate decides from which log and which tick to go on. Any majority includes a node with all
committed frames. The log with the newest last epoch, and the longest of those, has all of them. The
tick is the newest of the same promises, by epoch first. The candidate's own log is cut to the
common prefix with the best log and filled from there before the epoch begins. The best log may have
a newer configuration: then a majority of that one has to promise too.

A campaign follows the oracle's suggestion, which holds until it is withdrawn or another node leads.
A refused candidate waits a random time before it tries a new epoch. A node that has promised
another candidate gives it time to begin. A node that does not serve in time stays out for a while,
so that the oracle can choose another one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTick, common_end, epoch_counter, make_epoch
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import (
    Fetch,
    Fetched,
    Nack,
    NeedsCopy,
    Prepare,
    Promise,
    Resigned,
)
from delaylog.replication.replica import MetaStore, Now, Replica, split_frames
from delaylog.storage.errors import DiskFullError

# ------------------------------------------------------------------------------------ the voter


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
            at = offset if data else log.first_position
            self._send(source, Fetched(epoch, at, log.end, data))

    def _shows(self, epoch: int) -> bool:
        """Whether the log is frozen for this epoch: only for the one that was promised."""
        return epoch == self.promised


# -------------------------------------------------------------------------------- one candidacy


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


# -------------------------------------------------- suggestion, candidacies, retries, giving up


class Campaign:
    """The candidacies of one node."""

    def __init__(
        self,
        replica: Replica,
        configuration: Callable[[], Configuration],
        voter: Voter,
        *,
        random: Random,
        begin: Callable[[Candidate, Now], None],
    ) -> None:
        """`configuration` returns the newest one of the log; `begin` is called when a candidate's
        log is complete.
        """
        self._node = replica.node
        self._configuration = configuration
        self._log = replica.log
        self._voter = voter
        self._timing = replica.timing
        self._random = random
        self._send = replica.send
        self._cut = replica.cut
        self._tell = replica.tell
        self._begin = begin
        self.candidate: Candidate | None = None
        self._counter_seen = 0
        self._wanted = False
        self._since_ms: int | None = None
        """Since when it tries to lead; None while it does not."""
        self._retry_ms: int | None = None
        self._quiet_until_ms: int | None = None
        """Until when it waits for another candidate to begin."""
        self._resigned_until_ms: int | None = None

    # ------------------------------------------------------------------ suggestions

    def want(self, now: Now) -> bool:
        """The oracle suggests this node; False while another node has precedence."""
        for until_ms in (self._resigned_until_ms, self._quiet_until_ms):
            if until_ms is not None and now.boot_ms < until_ms:
                return False
        self.be_asked()
        return True

    def be_asked(self) -> None:
        """Try to lead whichever node has precedence: a leader hands over, or no other is left."""
        self._resigned_until_ms = self._quiet_until_ms = None
        self._wanted = True

    @property
    def waits(self) -> bool:
        """Whether a retry is scheduled."""
        return self._retry_ms is not None

    def drop(self) -> None:
        """Give up trying: another node is suggested, or leads."""
        self._wanted = False
        self._since_ms = self._retry_ms = self._quiet_until_ms = self.candidate = None

    def succeeded(self) -> None:
        """This node serves."""
        self._since_ms = None

    def back_off(self, now: Now) -> None:
        """The candidacy was refused: try again a little later if the suggestion still holds."""
        self.candidate = None
        if self._wanted:
            if self._since_ms is None:
                self._since_ms = now.boot_ms
            self._retry_ms = now.boot_ms + self._span_ms()

    def follow(self, now: Now) -> None:
        """Another node begins to lead: suggestions right after that may be outdated."""
        self.drop()
        self._quiet_until_ms = now.boot_ms + self._timing.yield_ms + self._span_ms()

    def give_way(self, now: Now) -> None:
        """Another candidate was promised: give it time to begin, then try."""
        self.candidate = self._since_ms = None
        self._quiet_until_ms = now.boot_ms + self._timing.yield_ms + self._span_ms()
        self._retry_ms = self._quiet_until_ms if self._wanted else None

    def stay_out(self, now: Now) -> int:
        """Ignore suggestions for a while, so that another node leads; returns until when."""
        self.drop()
        self._resigned_until_ms = now.boot_ms + self._timing.resign_ms
        return self._resigned_until_ms

    def resign(self, now: Now) -> None:
        """Give up, and report it to the host."""
        self._tell(Resigned(self.stay_out(now)))

    def _need_copy(self, now: Now) -> None:
        self._tell(NeedsCopy(self._node))
        self.resign(now)

    # ------------------------------------------------------------------ time

    def next_timer_ms(self) -> list[int]:
        """The times at which `timer` has something to do."""
        times = [] if self._retry_ms is None else [self._retry_ms]
        if self.candidate is not None:
            times.append(self.candidate.ask_ms)
        if self._since_ms is not None:
            times.append(self._since_ms + self._timing.serve_deadline_ms)
        return times

    def late(self, now: Now) -> bool:
        """Whether the deadline to serve has passed."""
        since_ms = self._since_ms
        return since_ms is not None and now.boot_ms >= since_ms + self._timing.serve_deadline_ms

    def timer(self, now: Now) -> None:
        """Try again, or ask again."""
        if self._retry_ms is not None and now.boot_ms >= self._retry_ms:
            self.stand(now)
        elif self.candidate is not None and now.boot_ms >= self.candidate.ask_ms:
            self._ask_again(self.candidate, now)

    def _span_ms(self) -> int:
        return self._random.randint(self._timing.retry_min_ms, self._timing.retry_max_ms)

    def _ask_again(self, candidate: Candidate, now: Now) -> None:
        """Repeat requests that may be lost; give up a best log that does not answer."""
        candidate.ask_ms = now.boot_ms + self._span_ms()
        if not candidate.adopting:
            for peer in candidate.missing():
                self._send(peer, Prepare(candidate.epoch))
        elif now.boot_ms - candidate.heard_ms >= self._timing.fetch_stall_ms:
            self.stand(now)
        else:
            self._fetch(candidate)

    # ------------------------------------------------------------------ preparing

    def stand(self, now: Now, change: Change | None = None) -> None:
        """Become a candidate, in an epoch that is new to all nodes. This node does not lead now.

        `change` = the change of members to begin the epoch with, if it is still valid then.
        """
        if self._node not in self._configuration().voters:
            self.drop()
            return
        seen = max(self._voter.promised, self._log.epochs.last_epoch)
        counter = max(epoch_counter(seen), self._counter_seen) + 1
        epoch = make_epoch(counter, self._node)
        self._retry_ms = self._quiet_until_ms = None
        if self._since_ms is None:
            self._since_ms = now.boot_ms
        self._voter.promise(epoch)
        self.candidate = candidate = Candidate(
            self._node,
            self._configuration(),
            self._voter.own_promise(epoch),
            now_ms=now.boot_ms,
            ask_ms=now.boot_ms + self._span_ms(),
        )
        candidate.change = change
        for peer in candidate.missing():
            self._send(peer, Prepare(epoch))
        self._decide(candidate, now)

    def refuse(self, message: Nack) -> bool:
        """A NACK came; returns whether it refuses the present candidacy."""
        self.note_counter(message.promised)
        return self.candidate is not None and self.candidate.epoch == message.epoch

    def note_counter(self, epoch: int) -> None:
        """A node has promised this epoch: the next candidacy must be above it."""
        self._counter_seen = max(self._counter_seen, epoch_counter(epoch))

    def take_promise(self, source: int, message: Promise, now: Now) -> None:
        """A promise came; later ones than the decision are ignored."""
        candidate = self.candidate
        if candidate is None or candidate.epoch != message.epoch or candidate.adopting:
            return
        candidate.promises[source] = message
        self._decide(candidate, now)

    # ------------------------------------------------------------------ adopting

    def _decide(self, candidate: Candidate, now: Now) -> None:
        if not candidate.enough():
            return
        best = candidate.decide(now.boot_ms)
        if candidate.best == self._node:
            self._begin(candidate, now)
            return
        shared = candidate.shared_end(self._voter.own_promise(candidate.epoch))
        if shared is None:
            self._need_copy(now)
            return
        if shared < self._log.end:
            try:
                self._cut(shared)
            except DiskFullError:
                # With the frames that differ it must not ask for those behind them.
                self.back_off(now)
                raise
        self._fill(candidate, best.end, now)

    def _fill(self, candidate: Candidate, end: int, now: Now) -> None:
        """Fetch the best log up to its end; then begin, if a majority by the configuration that the
        log has then has promised.
        """
        if self._log.end < end:
            self._fetch(candidate)
            return
        configuration = self._configuration()
        if self._node not in configuration.voters:
            self.resign(now)
        elif candidate.adopted(configuration, self._voter.own_promise(candidate.epoch)):
            self._begin(candidate, now)
        else:
            for peer in candidate.missing():
                self._send(peer, Prepare(candidate.epoch))

    def _fetch(self, candidate: Candidate) -> None:
        assert candidate.best is not None, "it is decided first"
        table = self._log.epochs.entries()
        self._send(candidate.best, Fetch(candidate.epoch, self._log.end, table))

    def take_fetched(self, source: int, message: Fetched, now: Now) -> None:
        """Frames of the best log came. Raises PeerError."""
        candidate, log = self.candidate, self._log
        if candidate is None or not self._uses(candidate, source, message):
            return
        if not message.data and message.offset > log.end:
            self._need_copy(now)
            return
        if message.offset != log.end:
            return
        best = candidate.promises[source]
        frames = split_frames(message.data, log.end, log.epochs.last_epoch)
        if message.end != best.end or not frames or frames[-1].end > best.end:
            raise PeerError(f"the log of node {source} differs from what it has promised")
        candidate.heard_ms = now.boot_ms
        log.append_frames(message.data, frames)
        self._fill(candidate, best.end, now)

    def _uses(self, candidate: Candidate, source: int, message: Fetched) -> bool:
        """Whether the frames answer this candidacy: for another one the log was not frozen."""
        return message.epoch == candidate.epoch and candidate.best == source
