"""Watches a simulated cluster and raises Violation when an invariant does not hold.

It sees everything: all disks, every message as it is sent, every message as it is handed out. What
it remembers of the past is what was promised, committed, acknowledged and handed out; what the
nodes think does not matter to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTick, epoch_counter
from delaylog.replication.messages import Ack, Append, Fetched, Message, Promise, Reject, Takeover
from tests.replication.memory_disk import MemoryLog

if TYPE_CHECKING:
    from tests.replication.sim_node import SimNode


class Violation(Exception):
    """An invariant does not hold; begins with its number."""


class Judge:
    """The invariants I1 to I11, and I14, of docs/REPLICATION.md over one schedule."""

    def __init__(self, gate_ms: int, size: int) -> None:
        self.gate_ms = gate_ms
        self.alone = size == 1
        self.configuration = Configuration.founding(range(size))
        """The newest that was committed."""
        self.truth = bytearray()
        """The log as far as it was ever committed."""
        self.marks: list[tuple[int, int]] = []
        """(epoch of the leader, end) of each commit."""
        self.begun: dict[int, bytes] = {}
        """Epoch -> its leader's log when it began."""
        self.places: dict[int, int] = {}
        """Number of a committed message -> its position."""
        self.waiting: dict[int, tuple[int, int]] = {}
        """(position, due) of committed messages that nobody has handed out."""
        self.handed: dict[int, set[int]] = {}
        """Epoch -> numbers it has handed out."""
        self.handed_ms: dict[int, int] = {}
        """Epoch -> when it last handed out."""
        self.rounds: dict[int, list[tuple[int, EpochTick]]] = {}
        """Epoch -> (when a round was first sent, its tick), for each round."""
        self.seqs: dict[int, int] = {}
        self.started: dict[int, EpochTick] = {}
        """Epoch that came to serve -> the tick it started from."""
        self.owners: dict[int, int] = {}
        self.counters: dict[int, int] = {}
        self.told: dict[int, int] = {}
        """Node -> newest epoch it has spoken in."""
        self.given: dict[int, EpochTick] = {}
        """Epoch that was handed over -> its final tick."""
        self.heirs: dict[int, int] = {}
        """Epoch of a planned successor -> epoch it took over."""
        self.pieces: dict[int, tuple[int, int, bytearray]] = {}
        """Epoch -> (epoch before it, where it begins, its bytes in any log)."""
        self.tick_lost = False
        """A power cut took an unsynced tick: I9 leans on ticks that survive."""
        names = "commits leaders handed repeats heirs changes changed wiped readmissions"
        self.stats = dict.fromkeys(names.split(), 0)

    # ------------------------------------------------------------------ logs

    def check_log(self, node: SimNode) -> None:
        """I2: same epoch at the same place, same frames before it; I3: nothing committed goes."""
        log = node.disk.log
        for position in log.cuts:
            held = bytes(node.last_data[position : len(self.truth)])
            if held and self.truth[position : position + len(held)] == held:
                if len(node.last_data) > position:
                    raise Violation(f"I3 node {node.number} cuts committed frames at {position}")
        log.cuts.clear()
        before = 0
        entries = log.epochs.entries()
        for at, (epoch, start) in enumerate(entries):
            end = entries[at + 1][1] if at + 1 < len(entries) else log.end
            mine = log.data[start:end]
            known = self.pieces.get(epoch)
            if known is None:
                self.pieces[epoch] = (before, start, mine)
            else:
                shared = min(len(known[2]), len(mine))
                same = known[:2] == (before, start) and known[2][:shared] == mine[:shared]
                if not same:
                    raise Violation(f"I2 node {node.number} holds another log in {epoch:#x}")
                if len(mine) > shared:
                    self.pieces[epoch] = (before, start, mine)
            before = epoch
        node.last_data = bytes(log.data)

    def check_commit(self, node: SimNode, commit: int) -> None:
        """I3: one committed frame at each place, and what is committed stays so."""
        last = node.last_commit
        if commit < last:
            raise Violation(f"I3 the commit of node {node.number} falls from {last} to {commit}")
        node.last_commit = commit
        data = node.disk.log.data
        known = min(commit, len(self.truth))
        if data[last:known] != self.truth[last:known] or len(data) < commit:
            raise Violation(f"I3 node {node.number} takes other frames for committed, {last}")
        if commit > len(self.truth):
            self._note_committed(node, commit)
            for position, number, due in node.disk.log.rows(len(self.truth), commit):
                self.places[number] = position
                self.waiting[number] = (position, due)
                self.stats["commits"] += 1
            self._note_configurations(node.disk.log, len(self.truth), commit)
            self.truth += data[len(self.truth) : commit]

    def _note_committed(self, node: SimNode, commit: int) -> None:
        """I1: whoever has begun a later epoch by now has it too."""
        if node.led is None:
            raise Violation(f"I3 node {node.number} takes for committed what no leader has said")
        epoch = node.led.epoch
        self.marks.append((epoch, commit))
        data = node.disk.log.data[:commit]
        for later, held in self.begun.items():
            if later > epoch and held[:commit] != data:
                raise Violation(f"I1 {epoch:#x} commits what the leader of {later:#x} lacks")

    def _note_configurations(self, log: MemoryLog, start: int, end: int) -> None:
        """I14: one step at a time, from a committed one."""
        before = self.configuration
        for payload in log.begins(start, end):
            now = Configuration.decode(payload) or before
            if now != before:
                joint = now.outgoing == before.voters and not before.outgoing
                settled = not now.outgoing and now.voters == before.voters
                if now.version != before.version + 1 or not (joint or settled):
                    raise Violation(f"I14 {now} is committed behind {before}")
                self.stats["changed"] += 1
            before = now
        self.configuration = before

    # ------------------------------------------------------------------ leaderships

    def note_begin(self, node: SimNode, epoch: int) -> None:
        """I4: one leader an epoch, one a counter; I1: it has all that was ever committed."""
        owner = self.owners.setdefault(epoch, node.number)
        counter = self.counters.setdefault(epoch_counter(epoch), node.number)
        if owner != node.number or counter != node.number:
            raise Violation(f"I4 nodes {owner}, {counter} and {node.number} lead in {epoch:#x}")
        data = bytes(node.disk.log.data)
        # A candidate that was held up may still begin an old epoch: it can commit nothing in it.
        committed = max((end for other, end in self.marks if other < epoch), default=0)
        self.begun[epoch] = data
        if data[:committed] != self.truth[:committed] or len(data) < committed:
            raise Violation(f"I1 the leader of {epoch:#x} lacks committed frames")

    def note_serving(self, epoch: int, tick: EpochTick) -> None:
        """I9, I10: where it starts from what its predecessors have handed out."""
        self.stats["leaders"] += 1
        self.started[epoch] = tick
        for other, last_ms in self.handed_ms.items():
            if other < epoch:
                self._check_window(other, last_ms, epoch)
        heir_of = self.heirs.get(epoch)
        if heir_of is None or any(heir_of < other < epoch for other in self.owners):
            self.heirs.pop(epoch, None)
            return
        self.stats["heirs"] += 1
        if tick[1:4] != self.given[heir_of][1:4]:
            raise Violation(f"I10 {epoch:#x} starts at {tick}, not at {self.given[heir_of]}")

    def _check_window(self, epoch: int, handed_ms: int, successor: int) -> None:
        if self.tick_lost or self.alone:
            return
        start = self.started[successor]
        covered = [ms for ms, tick in self.rounds.get(epoch, ()) if tick[1:4] <= start[1:4]]
        if not covered or handed_ms - covered[-1] >= self.gate_ms:
            raise Violation(f"I9 {epoch:#x} hands out too long for {successor:#x} at {start}")

    # ------------------------------------------------------------------ messages

    def note_sent(self, node: SimNode, message: Message, now_ms: int) -> None:
        """I5: nothing in an epoch lower than spoken before; I6: what is said is durable."""
        number, log = node.number, node.disk.log
        if isinstance(message, Append):
            if self.seqs.get(message.epoch, 0) < message.seq and message.tick.epoch:
                self.seqs[message.epoch] = message.seq
                self.rounds.setdefault(message.epoch, []).append((now_ms, message.tick))
        elif isinstance(message, Ack | Reject | Promise | Fetched):
            if message.epoch < self.told.get(number, 0):
                raise Violation(f"I5 node {number} speaks in {message.epoch:#x} once more")
            self.told[number] = message.epoch
            if isinstance(message, Fetched) and node.replication.promised != message.epoch:
                raise Violation(f"I6 node {number} shows its log to {message.epoch:#x}")
            if isinstance(message, Ack | Promise) and message.end > log.durable_end:
                raise Violation(f"I6 node {number} vouches for what is not durable")
        elif isinstance(message, Takeover):
            self.given[message.epoch] = message.tick

    def check_promise(self, node: SimNode) -> None:
        """I5: across every crash."""
        if node.replication.promised < self.told.get(node.number, 0):
            raise Violation(f"I5 node {node.number} has forgotten a promise")

    def note_used_fetch(self, candidate: int, message: Fetched) -> None:
        """I6: what was fetched in one epoch is used in no other."""
        if message.epoch != candidate:
            raise Violation(f"I6 {candidate:#x} uses what was fetched in {message.epoch:#x}")

    # ------------------------------------------------------------------ dispatch

    def note_handed(self, epoch: int, number: int, due: int, now_ms: int, second: int) -> None:
        """I7: committed; I11: not early; I9, I10: not by one whose time has passed."""
        if number not in self.places:
            raise Violation(f"I7 {epoch:#x} hands out {number}, which is not committed")
        if due > second:
            raise Violation(f"I11 {epoch:#x} hands out {number} in {second}, due in {due}")
        if epoch in self.given:
            raise Violation(f"I10 {epoch:#x} hands out after TAKEOVER")
        heir_of = self.heirs.get(epoch)
        if heir_of is not None and number in self.handed.get(heir_of, ()):
            raise Violation(f"I10 {epoch:#x} repeats {number} of {heir_of:#x}")
        self.stats["handed"] += 1
        self.stats["repeats"] += number not in self.waiting
        self.waiting.pop(number, None)
        self.handed.setdefault(epoch, set()).add(number)
        self.handed_ms[epoch] = now_ms
        for successor in self.started:
            if successor > epoch:
                self._check_window(epoch, now_ms, successor)

    def check_tick(self, before: EpochTick, tick: EpochTick) -> None:
        """I8: all that a tick speaks of was handed out; I11: it never goes back in an epoch."""
        if before.epoch == tick.epoch and tick < before:
            raise Violation(f"I11 the tick falls from {before} to {tick}")
        for number, (position, due) in self.waiting.items():
            if due <= tick.second and position < tick.position:
                raise Violation(f"I8 {tick} speaks of {number}, due in {due}, not handed out")

    def check_all_handed(self, log: MemoryLog, second: int) -> None:
        """I8 once faults have ended: nothing due is left."""
        left = [number for number, (_, due) in self.waiting.items() if due <= second]
        if left:
            raise Violation(f"I8 {left} were never handed out, by second {second}")
