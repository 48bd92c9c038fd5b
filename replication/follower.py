"""The follower: takes frames, tick and commit of the epoch that the node has promised.

`verified` is the end of the part of its log that certainly equals the leader's. Frames after it may
be leftovers of older epochs, so they are not acknowledged, committed or covered by a tick. The log
is cut only where it has a frame of another epoch than the leader's, never because a message is old,
short or repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from delaylog.replication.epochs import EpochTick
from delaylog.replication.errors import DivergedError, PeerError
from delaylog.replication.messages import Ack, Append, Message, Reject, Takeover
from delaylog.replication.replica import RawFrame, Replica, split_frames
from delaylog.storage.messages.batch import Block


class Follower:
    """The state of a node as a follower, and its commit position."""

    def __init__(self, replica: Replica, *, voter: bool) -> None:
        self._log = replica.log
        self._ticks = replica.ticks
        self._send = replica.send
        self._cut = replica.cut
        self.voter = voter
        self.epoch = 0
        """The epoch of the leader that last sent it frames."""
        self.leader = 0
        self.verified = 0
        self.commit = 0
        """End of the log that is known to be committed; never falls in one process."""
        self._seq = 0
        self._acked_end = 0

    def enter(self, leader: int, epoch: int) -> None:
        """Follow a new leader, about whose log nothing is known yet."""
        self.leader = leader
        self.epoch = epoch
        self.verified = 0
        self._seq = 0
        self._acked_end = 0

    def append(self, source: int, message: Append) -> None:
        """Apply an APPEND of the promised epoch and answer it. Raises PeerError."""
        if message.epoch != self.epoch:
            self.enter(source, message.epoch)
        frames = split_frames(message.data, message.prev_offset, message.prev_epoch)
        if frames and frames[-1].epoch > message.epoch:
            raise PeerError(f"frames of epoch {frames[-1].epoch:#x} from a leader before it")
        if not self._fits(message):
            table = self._log.epochs.entries()
            self._reply(Reject(self.epoch, self._log.end, self.voter, table))
            return
        self._take(message.data, message.prev_offset, frames)
        self.verified = max(self.verified, message.prev_offset + len(message.data))
        self._note_commit(message.commit)
        self._take_tick(message)
        self.acknowledge()

    def _fits(self, message: Append) -> bool:
        """Whether the log equals the leader's up to the first frame."""
        at = message.prev_offset
        return at <= self._log.end and self._log.epochs.before(at) == message.prev_epoch

    def _take(self, data: Block, position: int, frames: Sequence[RawFrame]) -> None:
        """Append the frames that the log does not have yet."""
        skip = 0
        for frame in frames:
            if frame.position >= self._log.end:
                break
            if self._log.epochs.at(frame.position) != frame.epoch:
                self._cut(frame.position)
                break
            skip += 1
        fresh = frames[skip:]
        if fresh:
            if fresh[0].position != self._log.end:
                what = "a frame would overlap this log's end"
                raise DivergedError(what, position=self._log.end, epoch=self.epoch)
            self._log.append_frames(data[fresh[0].position - position :], fresh)
            for frame in fresh:
                if frame.begins and frame.tick > self._ticks.tick:
                    self._ticks.write(frame.tick)

    def _note_commit(self, commit: int) -> None:
        self.commit = max(self.commit, min(commit, self.verified))

    def _take_tick(self, message: Append) -> None:
        if self.note_tick(message.tick):
            self._seq = max(self._seq, message.seq)

    def note_tick(self, tick: EpochTick) -> bool:
        """Store a tick if the log has the frames that it covers; returns whether it has."""
        if tick.epoch != self.epoch or tick.position > self.verified:
            return False
        if tick > self._ticks.tick:
            self._ticks.write(tick)
        return True

    def acknowledge(self) -> None:
        """Send the durable end of the leader's log here, and the round whose tick was taken."""
        self._acked_end = self._acknowledged()
        self._reply(Ack(self.epoch, self._acked_end, self._seq, self.voter))

    def _acknowledged(self) -> int:
        """The end of the log that is durable and equals the leader's."""
        return min(self._log.durable_end, self.verified)

    def note_durable(self) -> None:
        """The log was synced."""
        if self.epoch and self._acknowledged() > self._acked_end:
            self.acknowledge()

    def holds(self, message: Takeover) -> bool:
        """Whether this log durably ends where the log of the leader that hands over ends."""
        end = self._log.end
        same = self.epoch == message.epoch and self.verified == end == message.end
        return same and self._log.durable_end == end

    def take_over(self, message: Takeover) -> None:
        """Store the final tick of the leader that hands over."""
        if message.tick > self._ticks.tick:
            self._ticks.write(message.tick)

    def _reply(self, message: Message) -> None:
        self._send(self.leader, message)
