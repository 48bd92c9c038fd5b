"""How a node comes to lead: the oracle's word, a candidate, refusals, another try, giving up.

The oracle's word lasts until it is taken back or somebody else is seen to lead. A refused
candidate waits a random moment before it tries a new epoch; who has promised another one gives
it time to begin; a node that does not come to serve in time stays out for a while, so that the
oracle may choose better.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import epoch_counter, make_epoch
from delaylog.replication.errors import PeerError
from delaylog.replication.events import NeedsCopy, Resigned
from delaylog.replication.leading.candidate import Candidate, Change
from delaylog.replication.messages import Fetch, Fetched, Nack, Prepare, Promise
from delaylog.replication.raw_frames import split_frames
from delaylog.replication.replica import Replica
from delaylog.replication.timing import Now
from delaylog.replication.voter import Voter


class Campaign:
    """One node's tries to lead."""

    def __init__(
        self,
        replica: Replica,
        configuration: Callable[[], Configuration],
        voter: Voter,
        *,
        random: Random,
        begin: Callable[[Candidate, Now], None],
    ) -> None:
        """`configuration` gives the log's newest; `begin` is called when a candidate's log is
        complete.
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
        """Since when it tries, or None if it need not."""
        self._retry_ms: int | None = None
        self._quiet_until_ms: int | None = None
        """Until when another candidate is given its time."""
        self._out_until_ms: int | None = None

    # ------------------------------------------------------------------ the word

    def want(self, now: Now) -> bool:
        """The oracle wants this node; False while another one has its turn."""
        for until_ms in (self._out_until_ms, self._quiet_until_ms):
            if until_ms is not None and now.boot_ms < until_ms:
                return False
        self.be_asked()
        return True

    def be_asked(self) -> None:
        """A leader that goes wants this node, or nobody else is left: whose turn it was is past."""
        self._out_until_ms = self._quiet_until_ms = None
        self._wanted = True

    @property
    def waits(self) -> bool:
        """Whether a try is already set."""
        return self._retry_ms is not None

    def drop(self) -> None:
        """Another one is wanted, or leads."""
        self._wanted = False
        self._since_ms = self._retry_ms = self._quiet_until_ms = self.candidate = None

    def succeeded(self) -> None:
        """This node serves."""
        self._since_ms = None

    def back_off(self, now: Now) -> None:
        """Refused: if it is still wanted, try again a little later."""
        self.candidate = None
        if self._wanted:
            if self._since_ms is None:
                self._since_ms = now.boot_ms
            self._retry_ms = now.boot_ms + self._span_ms()

    def follow(self, now: Now) -> None:
        """Another one begins to lead: words that come at once may be from before."""
        self.drop()
        self._quiet_until_ms = now.boot_ms + self._timing.yield_ms + self._span_ms()

    def give_way(self, now: Now) -> None:
        """Another candidate was promised: let it begin, then try if it has not."""
        self.candidate = self._since_ms = None
        self._quiet_until_ms = now.boot_ms + self._timing.yield_ms + self._span_ms()
        self._retry_ms = self._quiet_until_ms if self._wanted else None

    def stay_out(self, now: Now) -> int:
        """Whatever the oracle says, it is somebody else's turn; returns until when."""
        self.drop()
        self._out_until_ms = now.boot_ms + self._timing.resign_ms
        return self._out_until_ms

    def resign(self, now: Now) -> None:
        """It does not work out here."""
        self._tell(Resigned(self.stay_out(now)))

    def _need_copy(self, now: Now) -> None:
        self._tell(NeedsCopy(self._node))
        self.resign(now)

    # ------------------------------------------------------------------ time

    def next_timer_ms(self) -> list[int]:
        """When something is to be done."""
        times = [] if self._retry_ms is None else [self._retry_ms]
        if self.candidate is not None:
            times.append(self.candidate.ask_ms)
        if self._since_ms is not None:
            times.append(self._since_ms + self._timing.serve_deadline_ms)
        return times

    def late(self, now: Now) -> bool:
        """Whether it should serve by now and does not."""
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
        """Messages may be lost; and a best log that does not answer must not hold up the rest."""
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
        """Try to lead, in an epoch that is new to everybody. This node leads not at the moment.

        `change` = with other members, if that is still possible by then.
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
        """A NACK came; whether it ends this candidacy."""
        self.note_counter(message.promised)
        return self.candidate is not None and self.candidate.epoch == message.epoch

    def note_counter(self, epoch: int) -> None:
        """Somebody has promised this epoch: a try must be beyond it."""
        self._counter_seen = max(self._counter_seen, epoch_counter(epoch))

    def take_promise(self, source: int, message: Promise, now: Now) -> None:
        """A promise came; once it is decided, others are too late."""
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
            self._cut(shared)
        self._fill(candidate, best.end, now)

    def _fill(self, candidate: Candidate, end: int, now: Now) -> None:
        """Fetch what the best log holds up to its end; then begin, if those may say so who decide
        by then.
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
            raise PeerError(f"node {source} does not hold what it has promised")
        candidate.heard_ms = now.boot_ms
        log.append_frames(message.data, frames)
        self._fill(candidate, best.end, now)

    def _uses(self, candidate: Candidate, source: int, message: Fetched) -> bool:
        """Only what was answered in this epoch: in another one that log was not frozen for us."""
        return message.epoch == candidate.epoch and candidate.best == source
