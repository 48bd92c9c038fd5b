"""The engine's state: everything that frames change, and the one way to append a frame.

A frame is applied the moment it is appended, so every decision sees the frames in flight. What
leaves the engine waits until the frame is committed: answers, rows for the wheel (`Exposure`) and
writes to the hours' files. A node that loses leadership with uncommitted frames therefore discards
this object and recovers another one from disk.

`whole` marks the functions that apply frames. If one of them raises, the state is changed in part.
A frame that was appended here is cut off the log. The engine then takes no more frames and no
checkpoint, and its host ends the process: a restart applies the log to an intact state.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from random import Random
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np

from delaylog.broker.engine.access.principals import AccessTable
from delaylog.broker.engine.deliver.claim_table import ClaimTable
from delaylog.broker.engine.deliver.failures import FailureTable
from delaylog.broker.engine.deliver.leases import LeaseTable
from delaylog.broker.engine.errors import NO_LONGER_LEADS, ConflictError, NotLeadingError
from delaylog.broker.engine.hold import Holding
from delaylog.broker.engine.jobs.job_table import JobTable
from delaylog.broker.engine.keyspace.keyspace_part import KeyspaceBase, Pieces, keyspace_part
from delaylog.broker.engine.late.timeline import Timeline
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import NO_TOPIC, Activity, Topic
from delaylog.broker.engine.push.targets import TargetTable
from delaylog.broker.engine.ready.expiries import Expiries
from delaylog.broker.engine.schedules.table import ScheduleTable
from delaylog.broker.engine.send.producers import ProducerTable
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, DEFAULT_NAME, Group
from delaylog.broker.engine.topics.packed_topics import PackedTopics
from delaylog.broker.engine.topics.registry import Marks, Series, TopicNames
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.transactions.table import StagedParts, TransactionTable
from delaylog.broker.engine.watch.taps import Taps
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.scratch_queue import ScratchQueues
from delaylog.storage.hours.hot_seconds import HOT_BYTES_MAX, HotSeconds
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.layout import (
    EPOCH_NODE_BITS,
    HOUR_SECONDS,
    HOUR_SHIFT,
    SECOND_MS,
    TAG_COUNT,
    FrameKind,
    Int64Array,
    RowArray,
)
from delaylog.storage.log.frames import FIRST_LEVEL, Tick, check_level, decode_level, encode_level
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.messages.batch import Block
from delaylog.storage.runs.id_hash import IdHash
from delaylog.storage.runs.id_index import IdIndex
from delaylog.storage.runs.text_index import TextIndex
from delaylog.storage.work import Work
from delaylog.wheel import Entries, Entry, TimingWheel

_LEASE_BITS: Final = 40
"""Bits of a lease's number that count leases; those above are the epoch's."""
ID_KEY_SIZE: Final = 16
_BEFORE_LEVEL: Final = (FrameKind.EPOCH_BEGIN, FrameKind.LEVEL)
"""Kinds of frames that need no level."""


class Exposure(NamedTuple):
    """Rows of one frame, which the wheel may see once the frame is committed."""

    end_position: int
    seconds: Int64Array
    entries: Entries
    due_span_ms: tuple[int, int] | None = None
    """Their least and greatest due times, if `seconds` follow from the due times alone."""


class FewExposure(NamedTuple):
    """The same of a few rows, whose seconds follow from the due times alone."""

    end_position: int
    entries: list[Entry]


class Files(NamedTuple):
    """The files of a data folder."""

    fs: FileSystem
    scratch: FileSystem
    """For files that may fail on a full disk: writes to it do not use the reserve."""
    folder: str
    log: PhysicalLog
    hours: HourStore
    ids: IdIndex
    texts: TextIndex


class EngineState:
    """What the modules of the engine share. One object for each engine.

    State that follows from frames, and that checkpoints keep:

        topics, by_number, names, next_topic   all topics: by (namespace, name), by number, sorted
        series                                 which topics have metrics of their own
        leases, lease_number                   open leases; number of the newest lease
        claims, producers, jobs, transactions  tables, each with the frames that change it
        access                                 principals: who may do what
        schedules                              recurring schedules and their next instants
        targets                                where messages of groups are pushed to
        failures                               why attempts at messages failed
        hours, ids                             rows and states of messages; the index of their ids
        texts                                  the index of their keys and tags
        keyspace, keyspace_base, _pieces       Redis databases, their snapshot, unfinished effects
        level, id_key, id_hash                 feature level of the log; how ids are hashed
        holding                                whether messages may be delivered, and why not
        epoch, epochs, members                 the leadership, earlier ones, the cluster's members
        hour_floor, hour_floor_top             no new row goes below this hour; its highest value
        archive_released                       hours below it were released by the archive
        tick                                   the dispatch watermark, as frames carry it
        position, leader_time_ms               end and leader's time of the last frame applied
        before_epoch_ms                        that time when the epoch began

    Hints, made anew at each start:

        wheel, exposures                       the timing wheel; rows that wait for their commit
        hot                                    copies of seconds with many messages
        released_upto                          up to where due messages were released
        expiries                               when messages that became ready expire
        marks                                  topics and groups that need attention
        timeline                               what kept messages from being handed out, and when
        staged                                 the part of a transaction that was read last
        taps                                   what is handed out of topics that somebody watches
        packed_topics                          topics as the next checkpoint stores them

    The role, set by the engine and its host:

        following, retired, may_append         whether frames may be appended here
        failure                                the error that left a frame applied in part
        replaying                              frames come from the log, not from calls
        committed                              up to where frames are committed
        archive_hold                           ended hours stay until they are released

    What it works on: fs, scratch, folder, log, limits, random; and unneeded_files, the removals
    that wait for a thread that may block.
    """

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
        self.texts = files.texts
        self.limits = limits
        self.random = random
        self.unneeded_files: list[Callable[[], None]] = []
        self.make_run = ScratchQueues(scratch, f"{folder}/ready", self.unneeded_files.append)
        """Makes a file for refs that do not fit into memory."""

        self.topics: dict[tuple[str, str], Topic] = {}
        self.by_number: dict[int, Topic] = {}
        self.names = TopicNames()
        self.next_topic = 1
        self.series = Series(limits.metrics_topics_max)
        self.leases = LeaseTable()
        self.lease_number = 0
        self.claims = ClaimTable()
        self.producers = ProducerTable()
        self.jobs = JobTable()
        self.transactions = TransactionTable()
        self.access = AccessTable()
        self.id_key = b""
        """Key of the id hash; the log's LEVEL frame has it."""
        self.id_hash = IdHash(b"")
        self.schedules = ScheduleTable(files.fs, folder, log.frame_at, self.id_hash.one)
        self.targets = TargetTable()
        self.failures = FailureTable()
        self.keyspace = keyspace_part().Keyspace(random)
        # Keys expire once this node leads: only then is it known which have ended, and logged.
        self.keyspace.stop_expiring()
        self.keyspace_base = KeyspaceBase()
        self.keyspace_pieces = Pieces()
        """Pieces of effects whose last piece is still to come; empty while this node leads."""
        self.level = 0
        """See storage/log/frames.py; 0 = the log has no LEVEL frame yet."""
        self.holding = Holding()
        self.epoch = 0
        """The epoch of frames appended now, with the node's index, as frames carry it."""
        self.epochs: list[tuple[int, int]] = []
        """(epoch, first position) of the leaderships whose frames the log may still contain."""
        self.members = b""
        """The newest cluster configuration, as its EPOCH_BEGIN frame has it. Only stored here."""
        self.hour_floor = 0
        self.hour_floor_top = 0
        """The highest floor before the clock was set back: hours below may have been removed."""
        self.archive_released = 0
        self.tick = Tick()
        self.position = 0
        self.leader_time_ms = 0
        self.before_epoch_ms = 0
        """`leader_time_ms` when the epoch began; 0 = a checkpoint is newer than that."""

        self.wheel = TimingWheel(now_ms)
        self.exposures: deque[Exposure | FewExposure] = deque()
        """Oldest first."""
        self.hot = HotSeconds(scratch, f"{folder}/ready", bytes_max=HOT_BYTES_MAX)
        self.released_upto = (0, 0)
        """(time, log position): messages due by then and durable below it have been released,
        unless they are still being loaded."""
        self.expiries = Expiries(self.make_run)
        self.marks = Marks()
        self.timeline = Timeline(now_ms)
        self.recent_traces: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        """Traces of messages that were read last, to be read on; see `views`."""
        self.staged = StagedParts(log)
        self.taps = Taps()
        self.packed_topics = PackedTopics(self.by_number, self.series)
        self.before_change = self.packed_topics.before_change
        """To be called before a change to what a checkpoint stores of a topic or its groups."""

        self.following = False
        """Frames come from another node, and nothing may be appended here."""
        self.retired = False
        """This engine led and is about to be discarded: it appends nothing more."""
        self.may_append: Callable[[], bool] = lambda: True
        """Whether a leader accepts changes now: False while it hands over."""
        self.failure: Exception | None = None
        """The error that left a frame applied in part."""
        self.last_frame = 0
        """Position of the last frame that was appended here."""
        self.replaying = False
        self.committed: Callable[[], int] = lambda: log.durable_position
        """Up to where frames are safe: on this disk, or in a cluster on a majority's disks."""
        self.archive_hold = archive_hold

        self.replaced: list[Work] = []
        """Frees the tables of the states that this one replaced, in slices."""
        self._activities: dict[int, Activity] = {}

    @property
    def short_of_space(self) -> bool:
        """Whether free space is below the reserve, so that jobs and publishing write no rows."""
        return self.fs.free_bytes(self.folder) < self.limits.disk_reserve_bytes

    @property
    def next_lease(self) -> int:
        """The number of the next lease.

        It contains the epoch, because the leader before may have used later numbers whose frames
        were lost.
        """
        return (self.epoch >> EPOCH_NODE_BITS & 0xFFFFFF) << _LEASE_BITS | self.lease_number + 1

    def leased(self, lease: int) -> None:
        """A lease with this number exists: later ones have higher numbers."""
        self.lease_number = max(self.lease_number, lease & (1 << _LEASE_BITS) - 1)

    @property
    def epoch_counter(self) -> int:
        """The epoch without the index of the node that leads."""
        return self.epoch >> EPOCH_NODE_BITS

    @property
    def tag(self) -> int:
        """Epoch tag of rows that are created now."""
        return (self.epoch >> EPOCH_NODE_BITS) % TAG_COUNT

    def use_id_key(self, key: bytes) -> None:
        """Hash ids with this key. No id may have been hashed before."""
        self.id_key = key
        self.id_hash = IdHash(key)
        self.schedules.hash_of = self.id_hash.one

    def retire(self, commit: int) -> None:
        """Stop leading: frames behind `commit` were applied and may never be committed.

        The log goes on without this state, so the commit position is frozen here.
        """
        self.retired = True
        self.keyspace.stop_expiring()
        self.committed = lambda: commit

    def inherit(self, old: EngineState) -> None:
        """Free the state that this one has replaced, in slices: in one step, a million producers or
        keys would block the loop for a second.

        Reference counts free the rest. Therefore no object of an engine may refer to another one
        that refers to it: Python's collector may have frozen both, and frees neither then.
        """
        self.keyspace.inherit(old.keyspace)
        self.replaced += [*old.replaced, _dismantled(old)]

    def dismantle(self) -> None:
        """Free the tables at once. A million producers take a second, so a thread does it. The
        engine of this state must be closed.
        """
        for _ in _dismantled(self):
            pass

    def free_slice(self) -> bool:
        """Free some of what the replaced states have left; returns whether more is left."""
        if self.keyspace.free_slice():
            return True
        if self.replaced:
            for _ in self.replaced[-1]:
                return True
            self.replaced.pop()
        return bool(self.replaced)

    def begin_epoch(self, epoch: int, position: int, members: bytes = b"") -> None:
        """Apply the frame at `position`, which begins a leadership of a cluster with `members`."""
        self.epoch = epoch
        self.before_epoch_ms = self.leader_time_ms
        self.members = members
        self.epochs.append((epoch, position))
        self.keyspace_pieces.begin_epoch(epoch)

    def begin_own_epoch(self, now_ms: int) -> None:
        """Begin the next epoch of a single broker. In a cluster, replication begins epochs."""
        self.epoch = self.epoch_counter + 1 << EPOCH_NODE_BITS
        position, _ = self.append(FrameKind.EPOCH_BEGIN, [], now_ms)
        self.begin_epoch(self.epoch, position)

    def forget_epochs(self) -> None:
        """Forget epochs with no frame left in the log, except the newest of them, which is
        the epoch in front of the log's first frame.
        """
        first = self.log.first_position
        while len(self.epochs) > 1 and self.epochs[1][1] < first:
            del self.epochs[0]

    def append(self, kind: FrameKind, payload: Sequence[Block], now_ms: int) -> tuple[int, int]:
        """Queue a frame; returns (position, end). Raises NotLeadingError: nothing was done."""
        if self.following or self.retired:
            raise NotLeadingError(NO_LONGER_LEADS)
        if self.failure is not None:
            raise NotLeadingError("this node ends after an error; try again")
        if not self.may_append():
            raise NotLeadingError("this node does not take changes at the moment; try again")
        if not self.level and kind not in _BEFORE_LEVEL:
            self.raise_level(FIRST_LEVEL, now_ms)
        position = self.log.append(
            kind, payload, epoch=self.epoch, leader_time_ms=now_ms, tick=self.tick
        )
        self.last_frame, self.position = position, self.log.end_position
        return position, self.position

    def raise_level(self, level: int, now_ms: int) -> bool:
        """Raise the level of the log; False if it is as high already. Raises NotLeadingError.

        The first LEVEL frame of a log gives it the key of its id hash.
        """
        if level <= self.level:
            return False
        payload = encode_level(level, b"" if self.level else self.random.randbytes(ID_KEY_SIZE))
        self.append(FrameKind.LEVEL, [payload], now_ms)
        self.apply_level(payload)
        return True

    def apply_level(self, payload: Block) -> None:
        """Apply a LEVEL frame. Raises NewerFormatError."""
        level, id_key = decode_level(payload)
        check_level(level, "the log")
        self.level = max(self.level, level)
        if id_key:
            self.use_id_key(id_key)

    def need_level(self, level: int, what: str) -> None:
        """ConflictError if a member of the cluster runs a release whose logs have no `what`."""
        if self.level < level:
            raise ConflictError(
                f"a member of this cluster runs a release without {what}: upgrade it first"
            )

    def count_released(self, rows: RowArray) -> int:
        """How many of these rows, none of which was handed out, were released to a ready queue."""
        due_ms, position = self.released_upto
        there = (rows["deliver_at"] <= due_ms) & (rows["sent_position"] < position)
        return int(np.count_nonzero(there))

    def until_committed(self) -> Work:
        """Wait for every frame seen so far to be committed."""
        position = self.position
        while self.committed() < position:
            yield 0.001

    def exposed_rows(self, hour: int) -> int:
        """Rows of an hour that the wheel has seen: all but those of frames in flight.

        Counted on demand (when an hour is opened or a second loaded), so that a send keeps no
        count for each hour.
        """
        counts = self.hours.counts.get(hour)
        if counts is None:
            return 0
        hidden = sum(
            int(np.count_nonzero(exposure.entries.refs >> HOUR_SHIFT == hour))
            if isinstance(exposure, Exposure)
            else sum(ref >> HOUR_SHIFT == hour for _, ref, _ in exposure.entries)
            for exposure in self.exposures
        )
        return counts.rows - hidden

    def expose(
        self,
        entries: Entries,
        end: int,
        first_hour: int,
        due_span_ms: tuple[int, int] | None = None,
    ) -> None:
        """Queue the rows of a frame that ends at `end` for the wheel, in log order.

        `first_hour` = the least hour in which one is stored; `due_span_ms` = their least and
        greatest due times, if the caller knows them.
        """
        seconds = entries.due_ms // SECOND_MS
        least = int(seconds.min()) if due_span_ms is None else due_span_ms[0] // SECOND_MS
        if least < first_hour * HOUR_SECONDS:
            # A row due below the hour floor is stored in second 0 of a later hour.
            seconds = np.maximum(seconds, (entries.refs >> HOUR_SHIFT) * HOUR_SECONDS)
            due_span_ms = None
        self.exposures.append(Exposure(end, seconds, entries, due_span_ms))

    def new_topic(
        self, number: int, namespace: str, name: str, settings: TopicSettings, made: bool
    ) -> Topic:
        """Register a topic of a TOPIC frame or a checkpoint, without groups."""
        default = self.new_group(number, DEFAULT_GROUP, DEFAULT_NAME)
        topic = Topic(number, namespace, name, settings, default, made=made)
        self.topics[namespace, name] = topic
        self.names.add(namespace, name)
        self.by_number[number] = topic
        self.next_topic = max(self.next_topic, number + 1)
        return topic

    def blank_topic(self, namespace: str, name: str) -> Topic:
        """What a topic that nobody has made looks like. It is not part of the state."""
        default = self.new_group(NO_TOPIC, DEFAULT_GROUP, DEFAULT_NAME)
        return Topic(NO_TOPIC, namespace, name, TopicSettings(), default)

    def new_group(self, topic_number: int, number: int, name: str) -> Group:
        """An empty group; the caller adds it to its topic."""
        return Group(number, name, self.make_run, topic_number)

    def activity(self, topic: Topic) -> Activity:
        """The counters of releases and expiries of a topic, created if it has none."""
        found = self._activities.get(topic.number)
        if found is None:
            found = self._activities[topic.number] = Activity()
        return found

    def take_activities(self) -> dict[int, Activity]:
        """The counters since the last call, by topic number; they begin again at zero."""
        out, self._activities = self._activities, {}
        return out

    def forget_ready(self) -> None:
        """Drop all hints about ready messages: a message comes up again, or has ended."""
        for topic in self.by_number.values():
            for group in topic.groups.values():
                group.forget_ready()
        self.marks.rate_limited.clear()
        self.expiries.clear()
        self.hot.clear()
        self.released_upto = (0, 0)

    def group(self, topic_number: int, number: int) -> Group | None:
        """A group by the numbers in a frame; None if it was dropped."""
        topic = self.by_number.get(topic_number)
        return None if topic is None else topic.groups.get(number)


def _dismantled(state: EngineState) -> Work:
    """Free the tables whose entries refer to each other."""
    yield from state.producers.clear()
    yield from state.leases.clear()


# ---------------------------------------------------------------- frames that cannot be applied

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def whole(
    apply: Callable[Concatenate[EngineState, _Rest], _Result],
) -> Callable[Concatenate[EngineState, _Rest], _Result]:
    """Note in `state.failure` that `apply` has raised an error, and cut its frame off the log: the
    next start and the followers could not apply it either.
    """

    @wraps(apply)
    def noted(state: EngineState, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Result:
        try:
            return apply(state, *args, **kwargs)
        except Exception as error:
            state.failure = error
            if not state.following:
                # The disk may fail at the same time; the process ends in any case.
                with suppress(Exception):
                    state.log.cut(state.last_frame)
            raise

    return noted
