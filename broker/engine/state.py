"""The engine's state: everything that frames change, and the one way to append a frame.

State is applied the moment a frame is appended, so every decision sees the frames in flight.
What leaves the engine waits: replies, rows for the wheel and writes to the hours' files follow
the durable position (see `Exposure`). Losing leadership therefore means dropping this object and
recovering it from disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.control.job_table import JobTable
from delaylog.broker.engine.deliver.claim_table import ClaimTable
from delaylog.broker.engine.deliver.leases import LeaseTable
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_base import KeyspaceBase
from delaylog.broker.engine.keyspace.keyspace_pieces import Pieces
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import Activity, Topic
from delaylog.broker.engine.send.producers import ProducerTable
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, DEFAULT_NAME, Group
from delaylog.broker.engine.topics.series import Series
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.topics.topic_names import TopicNames
from delaylog.broker.engine.topics.topic_packing import PackedTopics
from delaylog.broker.engine.transactions.staged import StagedParts
from delaylog.broker.engine.transactions.table import TransactionTable
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.storage.columns.questions import among, distinct
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.run_file import RunFile
from delaylog.storage.hours.hot_seconds import HotSeconds
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.ids.id_hash import UNKEYED, IdHash
from delaylog.storage.ids.id_index import IdIndex
from delaylog.storage.layout import (
    EPOCH_NODE_BITS,
    HOUR_SHIFT,
    TAG_COUNT,
    FrameKind,
    Int64Array,
    RowArray,
)
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.levels import FIRST_LEVEL
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.messages.batch import Block
from delaylog.storage.work import Work
from delaylog.wheel import Entries, TimingWheel

SPECIAL_FEW: Final = 16


@dataclass(frozen=True, slots=True)
class Exposure:
    """Rows of one frame that the wheel may see once the frame is durable."""

    end_position: int
    seconds: Int64Array
    entries: Entries
    due_span_ms: tuple[int, int] | None = None
    """Their least and greatest due times, if those say what `seconds` are, too."""


class Files(NamedTuple):
    """The files of a data folder."""

    fs: FileSystem
    scratch: FileSystem
    """For what can do without space: it has no reserve behind it."""
    folder: str
    log: PhysicalLog
    hours: HourStore
    ids: IdIndex


class EngineState:
    """Parts the engine's modules share."""

    def __init__(
        self,
        files: Files,
        limits: Limits,
        random: Random,
        now_ms: int,
        *,
        archive_hold: bool = False,
    ) -> None:
        self.fs = files.fs
        self.scratch = scratch = files.scratch
        self.folder = folder = files.folder
        self.log = log = files.log
        self.hours = files.hours
        self.ids = files.ids
        self.limits = limits
        self.random = random
        self.wheel = TimingWheel(now_ms)
        self.hot = HotSeconds(scratch, f"{folder}/ready", bytes_max=limits.hot_bytes_max)
        self.topics: dict[tuple[str, str], Topic] = {}
        self.by_number: dict[int, Topic] = {}
        self.names = TopicNames()
        self.next_topic = 1
        self.series = Series(limits.metrics_topics_max)
        self.packed_topics = PackedTopics(self.by_number, self.series)
        self.leases = LeaseTable()
        self.lease_number = 0
        self.claims = ClaimTable()
        self.producers = ProducerTable()
        self.jobs = JobTable()
        self.transactions = TransactionTable()
        self.staged = StagedParts(log)
        self.keyspace = Keyspace(random)
        # Not before it is known what has ended, and that this node says so.
        self.keyspace.stop_expiring()
        self.keyspace_base = KeyspaceBase()
        self.keyspace_pieces = Pieces()
        """What frames have begun of effects that are not whole yet; empty while this node leads."""
        self.level = FIRST_LEVEL
        """The log's feature level; see storage/log/levels.py."""
        self.id_key = b""
        """Key of the hashes of ids; b"" = hashed without one, as in a log of release 0.1.0."""
        self.id_hash = UNKEYED
        self.epoch = 0
        """The leadership under which frames are appended, as it stands in them."""
        self.members = b""
        """The newest configuration of a cluster, as its EPOCH_BEGIN frame has it; kept only."""
        self.epochs: list[tuple[int, int]] = []
        """(epoch, first position) of the leaderships whose frames the log may still hold."""
        self.following = False
        """Frames come from a leader elsewhere, and nothing may be appended here."""
        self.retired = False
        """A leader that leads no more is about to be dropped: nothing may come from it."""
        self.may_append: Callable[[], bool] = lambda: True
        """Whether a leader takes changes at this moment: not while it hands over."""
        self.position = 0
        """End of the last frame that this state has seen."""
        self.told_ms = 0
        """The leader's time in the last frame that was replayed."""
        self.committed: Callable[[], int] = lambda: log.durable_position
        """Up to where frames are committed: safe on this disk, and in a cluster on a majority's."""
        self.hour_floor = 0
        self.hour_floor_top = 0
        """The highest it was when the clock was set back: hours below may have been removed."""
        self.archive_hold = archive_hold
        """Ended hours stay until they are released."""
        self.archive_released = 0
        """Hours below were released by the archive."""
        self.tick = Tick()
        self.exposures: deque[Exposure] = deque()
        self.replaying = False
        self.dispatched = (0, 0)
        """(time, log position): what was due by then and durable below it has been released,
        unless it is still being loaded."""
        self.special: set[int] = set()
        """Numbers of topics that have or had named groups, or whose default group has a floor: what
        comes ready there needs a look at its row."""
        self.ephemeral: set[tuple[int, int]] = set()
        """Topic and group numbers of ephemeral groups."""
        self.filtered: set[tuple[int, int]] = set()
        """Groups for which somebody asked with a filter."""
        self.holders: set[tuple[int, int]] = set()
        """Groups in which messages that are not under lease hold others up."""
        self.unlooked: list[int] = []
        """Topic numbers that `retire_unused` has still to look at in this round."""
        self.woken: set[tuple[int, int]] = set()
        """Topic and group numbers that got something ready since the edge last looked."""
        self.gone: list[tuple[str, str, str]] = []
        """Namespace, topic and group of groups that were dropped since the edge last looked: who
        waits for one is to be told."""
        self.full: set[tuple[int, int]] = set()
        """Groups of which so much is under lease that somebody was turned away."""
        self.paced: dict[tuple[int, int], int] = {}
        """Groups whose rate limit held something back, and when it lets more through."""
        self.erasing: set[int] = set()
        """Numbers of topics of which this node has messages to erase."""
        self.garbage: list[Callable[[], None]] = []
        """Removals of files that nobody needs any more: for a thread that may wait."""
        self._activities: dict[int, Activity] = {}
        self._runs = 0
        self._make_run = self.make_run
        """One bound method for all groups."""

    @property
    def short_of_space(self) -> bool:
        """Whether free space is below the reserve, so that jobs and publishing write no rows."""
        return self.fs.free_bytes(self.folder) < self.limits.disk_reserve_bytes

    @property
    def epoch_counter(self) -> int:
        """The epoch without the node that leads."""
        return self.epoch >> EPOCH_NODE_BITS

    @property
    def tag(self) -> int:
        """Epoch tag of rows made now."""
        return self.epoch_counter % TAG_COUNT

    def use_id_key(self, key: bytes) -> None:
        """Ids are hashed with this key; none has been hashed yet."""
        self.id_key = key
        self.id_hash = IdHash(key)

    def retire(self, commit: int) -> None:
        """Lead no more: what stands behind `commit` was applied and may never be committed.

        The log goes on without this state, so nothing that it says later counts here.
        """
        self.retired = True
        self.keyspace.stop_expiring()
        self.committed = lambda: commit

    def begin_epoch(self, epoch: int, position: int, members: bytes = b"") -> None:
        """The frame at `position` begins a leadership, of a cluster with these members."""
        self.epoch = epoch
        self.members = members
        self.epochs.append((epoch, position))
        self.keyspace_pieces.begin_epoch(epoch)

    def begin_own_epoch(self, now_ms: int) -> None:
        """Begin the next leadership of a broker that is alone. In a cluster others have a say."""
        self.epoch = self.epoch_counter + 1 << EPOCH_NODE_BITS
        position, _ = self.append(FrameKind.EPOCH_BEGIN, [], now_ms)
        self.begin_epoch(self.epoch, position)

    def forget_epochs(self) -> None:
        """Drop leaderships of which the log holds nothing any more, but the last of them: that is
        what stands in front of the first frame.
        """
        first = self.log.first_position
        while len(self.epochs) > 1 and self.epochs[1][1] < first:
            del self.epochs[0]

    def append(self, kind: FrameKind, payload: Sequence[Block], now_ms: int) -> tuple[int, int]:
        """Queue a frame; returns (position, end). Raises NotLeadingError: nothing was done."""
        if self.following or self.retired:
            raise NotLeadingError("this node does not lead any more; ask the leader")
        if not self.may_append():
            raise NotLeadingError("this node does not take changes at the moment; try again")
        position = self.log.append(
            kind, payload, epoch=self.epoch, leader_time_ms=now_ms, tick=self.tick
        )
        self.position = self.log.end_position
        return position, self.position

    def count_released(self, rows: RowArray) -> int:
        """How many of these rows, not handed out, have come to the ready queue."""
        due_ms, position = self.dispatched
        there = (rows["deliver_at"] <= due_ms) & (rows["sent_position"] < position)
        return int(np.count_nonzero(there))

    def until_committed(self) -> Work:
        """Wait for every frame seen so far to be committed."""
        position = self.position
        while self.committed() < position:
            yield 0.001

    def exposed_rows(self, hour: int) -> int:
        """Rows of an hour that the wheel has seen: all but those of frames in flight.

        Counted when it is asked for (an hour is opened, a second loaded), so that sending keeps
        no books per hour.
        """
        counts = self.hours.counts.get(hour)
        if counts is None:
            return 0
        hidden = sum(
            int(np.count_nonzero(exposure.entries.refs >> HOUR_SHIFT == hour))
            for exposure in self.exposures
        )
        return counts.rows - hidden

    def new_topic(
        self, number: int, namespace: str, name: str, settings: TopicSettings, made: bool
    ) -> Topic:
        """Register a topic (a TOPIC frame or a checkpoint says so), without groups."""
        default = self.new_group(number, DEFAULT_GROUP, DEFAULT_NAME)
        topic = Topic(number, namespace, name, settings, default, made=made)
        self.topics[namespace, name] = topic
        self.names.add(namespace, name)
        self.by_number[number] = topic
        self.next_topic = max(self.next_topic, number + 1)
        return topic

    def new_group(self, topic_number: int, number: int, name: str) -> Group:
        """A group that has seen nothing; the caller puts it where it belongs."""
        return Group(number, name, self._make_run, topic_number)

    def make_run(self, topic_number: int) -> RunFile:
        """A new file for what does not fit into memory; topic 0 = of all topics."""
        self._runs += 1
        path = f"{self.folder}/ready/{topic_number}-{self._runs}.run"
        return RunFile(self.scratch, path, self.garbage.append)

    def activity(self, topic: Topic) -> Activity:
        """What happens to a topic's messages by itself is noted here."""
        found = self._activities.get(topic.number)
        if found is None:
            found = self._activities[topic.number] = Activity()
        return found

    def take_activities(self) -> dict[int, Activity]:
        """What was noted since the last call, by topic number."""
        out, self._activities = self._activities, {}
        return out

    def forget_ready(self) -> None:
        """Drop every hint to what is ready or near: it comes up again, or has ended."""
        for topic in self.by_number.values():
            for group in topic.groups.values():
                group.forget_ready()
        self.paced.clear()
        self.hot.clear()
        self.dispatched = (0, 0)

    def group(self, topic_number: int, number: int) -> Group | None:
        """A group by the numbers that stand in frames; None when it is gone."""
        topic = self.by_number.get(topic_number)
        return None if topic is None else topic.groups.get(number)

    def special_mask(self, numbers: Int64Array) -> npt.NDArray[np.bool_]:
        """Which topic numbers are special; costs what is asked about, not how many are special."""
        if len(self.special) <= SPECIAL_FEW:
            few = np.fromiter(self.special, np.int64, len(self.special))
        else:
            found = [number for number in distinct(numbers).tolist() if number in self.special]
            few = np.array(found, np.int64)
        return among(numbers, few)

    def before_change(self, number: int) -> None:
        """What a checkpoint keeps of a topic or its groups is about to change."""
        self.packed_topics.before_change(number)

    def mark_special(self, topic: Topic) -> None:
        """Groups or floors of a topic changed."""
        if topic.plain and not topic.default.floor and not topic.had_groups:
            self.special.discard(topic.number)
        else:
            self.special.add(topic.number)
