"""The engine of one data folder, as a host sees it: start, role, clock, timers.

A call decides and appends its frame at once. It returns what to answer, and the log position that
must be committed before the answer goes out. The host writes and syncs the log, reports `commit`,
calls `run_due` when `next_wake_ms` says so, and runs background work (`Work`) in slices. It gives
every engine a `Setup`, and a cluster member's engine also a `Membership`.

The tick file stores how far dispatch has got, and how far the log is durable. In a cluster,
replication writes the tick. The durable end of this node's log is written here as well, since a
long time may pass without a tick, and recovery takes log behind the recorded durable end for a torn
tail. A full disk may refuse the first write of a slot; a lost slot only proves less.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from delaylog.broker.engine.apply.frames import follow, jump_ahead, replay, set_back
from delaylog.broker.engine.deliver.claims import expire_claims, left_over, settle_left_over
from delaylog.broker.engine.deliver.dispatcher import Dispatcher
from delaylog.broker.engine.deliver.expiry import end_due
from delaylog.broker.engine.deliver.ready_again import wake_rate_limited
from delaylog.broker.engine.deliver.settlements import expire_leases
from delaylog.broker.engine.hold import (
    Hold,
    Order,
    carry_out_order,
    clear_order,
    leave_order,
    put_hold,
    read_order,
    release_hold,
)
from delaylog.broker.engine.jobs.jobs import JobRunner
from delaylog.broker.engine.keyspace.keyspace_files import (
    LoadedKeyspace,
    load_keyspace,
    refuse_without_part,
)
from delaylog.broker.engine.keyspace.keyspace_part import keyspace_part
from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotRunner, log_keyspace
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import DEFAULT_NAMESPACE, Topic
from delaylog.broker.engine.schedules.runner import ScheduleRunner, recall_missed
from delaylog.broker.engine.state import EngineState, Files
from delaylog.broker.engine.topics.commands import get_or_make_topic, put_topic
from delaylog.broker.engine.topics.idle import look_after_groups, retire_unused
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.transactions.commands import end_overdue
from delaylog.broker.engine.transactions.publisher import Publisher
from delaylog.broker.engine.upkeep.checkpoints import Upkeep
from delaylog.broker.engine.upkeep.compaction import Compactor
from delaylog.broker.engine.upkeep.housekeeping import Housekeeping
from delaylog.broker.engine.upkeep.saved_state import restore_checkpoint
from delaylog.storage.checkpoint import Checkpoint, load_newest
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.files.space_reserve import RESERVE, ReservedFileSystem, SpaceReserve
from delaylog.storage.hours.hour_folders import OPEN_HOURS_MAX
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.log.frames import KNOWN_LEVEL, Tick
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickRecord, TickSlots
from delaylog.storage.runs.id_index import IdIndex
from delaylog.storage.runs.text_index import TextIndex
from delaylog.storage.work import Work
from delaylog.wheel import TimingWheel

RETURN_MS: Final = 50
"""How long leases wait that had no room to expire."""

# -------------------------------------------------------------------------------- the tick file


def tick_is_written(state: EngineState, ticks: TickSlots) -> bool:
    """Whether the file already has this tick and this durable end."""
    newest = ticks.newest
    return (
        newest is not None
        and newest.tick == state.tick
        and newest.durable_end == state.log.durable_position
    )


def write_tick(state: EngineState, ticks: TickSlots, now_ms: int) -> None:
    """Write the tick and the durable end into the older slot (not synced)."""
    record = TickRecord(state.epoch, state.tick, state.log.durable_position, now_ms)
    with suppress(DiskFullError):
        ticks.write(record)


def write_durable_end(state: EngineState, ticks: TickSlots) -> None:
    """Write the durable end; the tick stays as replication wrote it."""
    newest = ticks.newest or TickRecord(0, Tick(), 0, 0)
    durable = state.log.durable_position
    if newest.durable_end != durable:
        with suppress(DiskFullError):
            ticks.write(replace(newest, durable_end=durable))


# ----------------------------------------------------------------------- what replication gives


@dataclass(frozen=True)
class Membership:
    """What an engine shares with replication, which outlives the engine."""

    log: PhysicalLog
    """The log, which is recovered already: replication needs more of it than a checkpoint does."""
    ticks: TickSlots
    committed: Callable[[], int]
    """The commit position; see `EngineState`."""
    drop_log: Callable[[int], int]
    """Removes log below a position, as far as no other node needs it."""
    may_append: Callable[[], bool] = lambda: True
    """Whether a leader accepts changes now; see `EngineState`."""


# -------------------------------------------------------------------------- what the host gives


@dataclass(frozen=True, slots=True)
class Setup:
    """Arguments of an engine that do not depend on its folder."""

    random: Random
    limits: Limits = field(default_factory=Limits)
    open_hours_max: int = OPEN_HOURS_MAX
    """Hours whose files stay open: five descriptors each."""
    progress: Callable[[str], None] = lambda text: None
    """Called with a line about each step of a start."""
    working: Callable[[str, int, int], None] = lambda what, done, total: None
    """Called with (what, done, total) during long steps of a start."""
    make_snapshot: SnapshotRunner | None = None
    """Makes snapshots of the keyspace; a served broker does it in a child process."""
    check: Callable[[EngineState], None] = lambda state: None
    """Called with the state of the folder before the engine changes it. May refuse the folder by an
    error.
    """
    hold: bool | None = None
    """Hold the broker from this start on (True), or release it (False)."""
    archive_hold: bool = False
    """Whether ended hours are kept until the archive releases them."""


# ----------------------------------------------------------------------------------- the engine


class Engine:
    """A delay log broker over one data folder.

    A single broker leads from its start. A member of a cluster follows (`follow`) until it is told
    to `lead`. A leader that loses leadership with uncommitted frames applied is discarded, since
    they cannot be undone; without them it steps down and follows again.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        setup: Setup,
        *,
        now_ms: int,
        member: Membership | None = None,
        loaded: LoadedKeyspace | None = None,
    ) -> None:
        """`loaded` = the result of `load_keyspace` of an earlier engine of this folder."""
        self.folder = folder
        self.limits = setup.limits
        self._setup = setup
        if not fs.exists(folder):
            fs.mkdir(folder)
            fs.sync_folder(parent_of(folder))
        # First, since a folder that is refused must stay as it is.
        saved = load_newest(fs, folder)
        if saved is not None:
            refuse_without_part(saved)
        self.reserve = SpaceReserve(fs, f"{folder}/{RESERVE}", self.limits.reserve_file_bytes)
        scratch, fs = fs, ReservedFileSystem(fs, self.reserve)
        self.fs: FileSystem = fs
        if fs.exists(f"{folder}/ready"):
            fs.remove_tree(f"{folder}/ready")
        fs.mkdir(f"{folder}/ready")
        self._member = member
        self._loaded = loaded
        self.ticks = TickSlots(fs, f"{folder}/tick") if member is None else member.ticks
        files = Files(
            fs,
            scratch,
            folder,
            PhysicalLog(fs, f"{folder}/log") if member is None else member.log,
            HourStore(fs, f"{folder}/hours", open_hours_max=setup.open_hours_max),
            IdIndex(fs, f"{folder}/ids"),
            TextIndex(fs, f"{folder}/texts"),
        )
        self.state = EngineState(
            files, self.limits, setup.random, now_ms, archive_hold=setup.archive_hold
        )
        self.upkeep = Upkeep(
            self.state,
            lean_bytes=max(self.reserve.target_bytes // 16, 256 << 10),
            freed=self.reserve.regrow,
            make_snapshot=setup.make_snapshot,
        )
        self.compactor = Compactor(self.state, self.upkeep, freed=self.reserve.regrow)
        self.housekeeping = Housekeeping(self.state, self.reserve, self.upkeep, self.compactor)
        self.jobs = JobRunner(self.state, self.housekeeping.flush_work)
        self.publisher = Publisher(self.state, self.housekeeping.flush_work)
        self.started_ms = now_ms
        """The time at which this start, or leadership, began: never before an earlier time that the
        folder has recorded."""
        self.dispatcher = Dispatcher(self.state)
        self.schedules = ScheduleRunner(self.state)
        self._return_ms = 0
        """Leases do not expire before: what they would return has no room yet."""
        self._down_ms: int | None = None
        """When an outage began that has just ended: what schedules sent ahead of it is judged
        first. None: that is done.
        """
        if member is not None:
            # Before the first removal: other nodes may need log that this node does not.
            self.upkeep.drop_log = member.drop_log
        self.upkeep.find_checkpoints()
        if member is None:
            self._recover(saved, now_ms)
        else:
            self.state.committed = member.committed
            self.state.may_append = member.may_append
            self._start_following(saved)
            self._take_order(now_ms)

    # ------------------------------------------------------------------ recovery

    def _recover(self, saved: Checkpoint | None, now_ms: int) -> None:
        state = self.state
        start, saved_ms = self._restore(saved)
        newest = self.ticks.newest
        durable_end = max(start, newest.durable_end if newest else 0)
        frames = replay(state, start, durable_end, run=self.run_inline, working=self._setup.working)
        told_ms = state.leader_time_ms if frames else saved_ms
        self._setup.progress(f"replayed {frames} frames from position {start}")
        self._setup.check(state)
        if newest is not None and newest.durable_end >= state.log.end_position:
            told_ms = max(told_ms, newest.wall_time_ms)
        now_ms = self.started_ms = max(now_ms, told_ms)
        state.timeline.begin("down", told_ms, now_ms)
        self.upkeep.checkpoint_position = start
        self.upkeep.checkpoint_ms = now_ms
        self._take_order(now_ms)
        state.begin_own_epoch(now_ms)
        state.raise_level(KNOWN_LEVEL, now_ms)
        carry_out_order(state, now_ms)
        state.keyspace.now_ms = now_ms
        state.keyspace.begin_expiring()
        state.log.write_pending()
        state.log.sync()
        self.look_after_order(now_ms)
        self.dispatcher.start(now_ms, done_second=newest.tick.second if newest else 0)
        self.schedules.start(now_ms)
        # A restore has stamped its frame by the clock of its machine, which may be behind.
        self._down_ms = max(told_ms, saved_ms)
        self.write_tick(now_ms)

    def _restore(self, saved: Checkpoint | None) -> tuple[int, int]:
        loaded, self._loaded = self._loaded, None
        progress, working = self._setup.progress, self._setup.working
        start = restore_checkpoint(self.state, saved, loaded, progress=progress, working=working)
        self.upkeep.texts.restored(start[0])
        return start

    def load_keyspace(self) -> LoadedKeyspace | None:
        """The keyspace for the next engine of this folder, if no checkpoint is written until then.

        Touches nothing of this engine, so any thread may call it. None without a checkpoint.
        """
        saved = load_newest(self.fs, self.folder)
        if saved is None:
            return None
        keyspace = keyspace_part().Keyspace(self.state.random)
        keyspace.stop_expiring()
        return load_keyspace(self.fs, self.folder, saved, keyspace)

    # ------------------------------------------------------------------ a member of a cluster

    @property
    def is_member(self) -> bool:
        """Whether it is a member of a cluster."""
        return self._member is not None

    def _start_following(self, saved: Checkpoint | None) -> None:
        """Restore the newest checkpoint; `follow` applies what is committed behind it."""
        state = self.state
        state.following = state.replaying = True
        state.timeline.follow()
        state.position, state.leader_time_ms = self._restore(saved)
        self._setup.check(state)
        self.upkeep.checkpoint_position = state.position
        self.upkeep.checkpoint_ms = state.leader_time_ms

    def follow(self, upto: int) -> Work:
        """Apply the log up to `upto`, a committed position at which a frame ends."""
        work = self.housekeeping
        return follow(self.state, upto, crowded=work.crowded, flush=work.flush_work)

    def lead(self, now_ms: int, told_ms: int) -> None:
        """Lead: all of the log is applied, and the EPOCH_BEGIN frame of this epoch is committed.

        `told_ms` = the time in the cluster's tick: time does not go back before it.
        """
        state = self.state
        assert state.following, "a leader leads already"
        self._setup.check(state)
        assert state.position == state.log.end_position, "everything is applied"
        state.following = state.replaying = False
        now_ms = self.started_ms = max(now_ms, told_ms, state.leader_time_ms)
        # EPOCH_BEGIN has the time of the election: the leader before it was gone by then.
        down_ms = max(told_ms, state.before_epoch_ms)
        state.timeline.begin("take_over", down_ms, now_ms)
        state.forget_ready()
        state.marks.newly_ready.clear()
        state.wheel = TimingWheel(now_ms)
        state.keyspace.now_ms = max(state.keyspace.now_ms, now_ms)
        state.keyspace.begin_expiring()
        self.dispatcher = Dispatcher(state)
        self.dispatcher.start(now_ms)
        self.schedules.start(now_ms)
        self._down_ms = down_ms

    def raise_level(self, level: int, now_ms: int) -> bool:
        """Raise the log's feature level. Every node of the cluster must know that level."""
        return self.state.raise_level(level, now_ms)

    # ------------------------------------------------------------------ the hold

    def hold(self, note: str, now_ms: int) -> bool:
        """Deliver, push and fire nothing from now on; False if it was so."""
        done = put_hold(self.state, note, now_ms)
        self.schedules.start(now_ms)
        return done

    def release_hold(self, now_ms: int) -> bool:
        """Deliver again; False if the broker was not held. For schedules an outage ends."""
        done = release_hold(self.state, now_ms)
        if done:
            self.schedules.start(now_ms)
        return done

    def _take_order(self, now_ms: int) -> None:
        """Read the order of the folder, which the host's replaces. The end of the log is known."""
        state, wanted = self.state, self._setup.hold
        if wanted is not None:
            hold = Hold(now_ms, "started with --hold") if wanted else None
            leave_order(state.fs, self.folder, Order(hold, state.log.end_position))
        state.holding.order = read_order(state.fs, self.folder)

    def look_after_order(self, now_ms: int) -> None:
        """Carry out the order of the folder on a leader; delete it once the log has it."""
        state, holding = self.state, self.state.holding
        if holding.order is None:
            return
        if holding.ordered is None:
            if state.committed() >= holding.end:
                clear_order(state.fs, self.folder)
                holding.order = None
        elif not (state.following or state.retired) and state.may_append():
            carry_out_order(state, now_ms)

    def step_down(self) -> None:
        """Stop leading and follow from here. Every applied frame must be committed.

        The host has stopped all work of this engine.
        """
        assert self._member is not None, "a member of a cluster"
        state = self.state
        # Read before `retire`, which sets the loader's time to the end of all times.
        state.leader_time_ms = self.dispatcher.loader.now_ms
        assert not state.keyspace.effects, "everything applied is committed"
        self.dispatcher.retire()
        state.keyspace.stop_expiring()
        state.schedules.follow()
        state.exposures.clear()
        state.forget_ready()
        state.following = state.replaying = True
        state.timeline.follow()
        state.retired = False
        state.committed = self._member.committed

    # ------------------------------------------------------------------ topics

    def topic(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> Topic | None:
        """The topic, if it exists."""
        return self.state.topics.get((namespace, name))

    def make_topic(self, name: str, now_ms: int, namespace: str = DEFAULT_NAMESPACE) -> Topic:
        """The topic, made with default settings if it is new."""
        return get_or_make_topic(self.state, namespace, name, now_ms)

    def put_topic(
        self, name: str, settings: TopicSettings, now_ms: int, namespace: str = DEFAULT_NAMESPACE
    ) -> Topic:
        """Make a topic or change its settings."""
        return put_topic(self.state, namespace, name, settings, now_ms, made=True)

    # ------------------------------------------------------------------ the host's turn

    def commit(self, position: int, now_ms: int) -> None:
        """Show rows below `position` to the wheel: the log is committed up to there."""
        self.dispatcher.commit(position, now_ms)

    @property
    def _may_judge_outage(self) -> bool:
        """Whether an outage has ended that is not judged, and this engine may append."""
        return self._down_ms is not None and self.state.may_append() and not self.state.retired

    def next_wake_ms(self) -> int | None:
        """When `run_due` has something to do next; None if nothing is known to come."""
        return _earliest(self.dispatcher.next_wake_ms(), self._next_other_ms())

    def _next_other_ms(self) -> int | None:
        """When something other than the release of messages is due next."""
        if self._may_judge_outage:
            return 0
        state = self.state
        expiry, limited = state.expiries.next(), state.marks.rate_limited
        return _earliest(
            None if expiry is None else expiry[0],
            self._returning(state.leases.next_expiry_ms()),
            self._returning(state.claims.next_expiry_ms()),
            state.keyspace.next_expiry_ms(),
            self.schedules.next_wake_ms(),
            min(limited.values()) if limited else None,
        )

    def _returning(self, expiry_ms: int | None) -> int | None:
        return None if expiry_ms is None else max(expiry_ms, self._return_ms)

    def has_due(self, now_ms: int) -> bool:
        """Whether messages due by `now_ms` are still to be released, or to be loaded first."""
        wake_ms, unloaded_ms = self.next_wake_ms(), self.dispatcher.unloaded_ms()
        return (wake_ms is not None and wake_ms <= now_ms) or (
            unloaded_ms is not None and unloaded_ms <= now_ms
        )

    def jump_ahead(self, jump_ms: int, now_ms: int) -> None:
        """The clock jumped ahead by `jump_ms`; leases and producers keep their remaining time."""
        jump_ahead(self.state, jump_ms, now_ms)
        self.schedules.clock_stepped(now_ms)
        self._down_ms = now_ms - jump_ms

    def set_back(self, step_ms: int, now_ms: int) -> None:
        """The clock was set back by `step_ms` (negative) to `now_ms`."""
        assert self._member is None, "a member begins no epoch by itself"
        shown = self.dispatcher.retire()
        self.state.hours.folders.finish_removals()
        set_back(self.state, step_ms, now_ms)
        self.schedules.clock_stepped(now_ms)
        self.state.keyspace.now_ms = now_ms
        self._return_ms = 0
        self.upkeep.set_back(now_ms)
        self.dispatcher = Dispatcher(self.state)
        self.dispatcher.start(now_ms, shown_position=shown)
        # Near hours are requested before anything new is sent.
        self.dispatcher.dispatch(now_ms)

    def run_due(self, now_ms: int) -> bool:
        """Release due messages, expire leases and messages, one bounded slice; True if more is due.

        Raises the error that left a frame applied in part: the host must end the process.
        """
        wake_ms = self.turn(now_ms)
        return wake_ms is not None and wake_ms <= now_ms

    def turn(self, now_ms: int) -> int | None:
        """The same; returns the `next_wake_ms` after it."""
        state = self.state
        if state.failure is not None:
            raise state.failure
        other_ms = self._next_other_ms()
        if other_ms is not None and other_ms <= now_ms:
            self._run_all(now_ms)
            return self.next_wake_ms()
        self.dispatcher.dispatch(now_ms)
        end_due(state, now_ms)
        if state.keyspace.effects:
            log_keyspace(state, now_ms)
        # Messages that became ready may expire before all that was known.
        expiry = state.expiries.next()
        first_ms = None if expiry is None else expiry[0]
        return _earliest(self.dispatcher.next_wake_ms(), other_ms, first_ms)

    def _run_all(self, now_ms: int) -> None:
        """Run every part that may have something to do."""
        state = self.state
        if self._may_judge_outage:
            # Before anything of the outage is released.
            assert self._down_ms is not None
            recall_missed(state, self._down_ms, now_ms)
            self._down_ms = None
        self.schedules.run_due(now_ms)
        self.dispatcher.dispatch(now_ms)
        if self.housekeeping.crowded_by_returns() and not state.short_of_space:
            self._return_ms = now_ms + RETURN_MS
        else:
            # A claim expires before the first of its messages returns: it never ends in part.
            expire_claims(state, now_ms)
            expire_leases(state, now_ms)
        end_due(state, now_ms)
        keyspace = state.keyspace
        first_ms = keyspace.next_expiry_ms()
        if first_ms is not None and first_ms <= now_ms:
            keyspace.expire_due(now_ms)
        if keyspace.effects:
            log_keyspace(state, now_ms)
        if state.marks.rate_limited:
            wake_rate_limited(state, now_ms)

    def claims_due(self) -> bool:
        """Whether the settlement of some claim has begun and not ended."""
        return bool(left_over(self.state))

    def claims_work(self, clock: Callable[[], int]) -> Work:
        """Finish the settlements of `claims_due`."""
        return settle_left_over(self.state, clock)

    def retire_unused(self, now_ms: int) -> None:
        """Drop unused topics and groups, expire transactions.

        The host calls it every few seconds.
        """
        end_overdue(self.state, now_ms)
        self.state.taps.drop_idle(now_ms)
        retire_unused(self.state, now_ms)
        look_after_groups(self.state, now_ms)

    def run_inline(self, work: Work) -> None:
        """Run background work to its end at once (recovery, tests, clean shutdown).

        Work waits for nothing but the log, so each wait writes and syncs it. Errors of its jobs are
        thrown into the work, which ends before they are raised here.
        """
        error: Exception | None = None
        with suppress(StopIteration):
            while True:
                step = next(work) if error is None else work.throw(error)
                error = None
                try:
                    if callable(step):
                        step()
                    elif step is not None:
                        self.state.log.write_pending()
                        self.state.log.sync()
                except Exception as failure:
                    error = failure

    def write_changed_tick(self, now_ms: int) -> None:
        """Write the tick file if the tick or the durable end of the log has changed."""
        if not tick_is_written(self.state, self.ticks):
            self.write_tick(now_ms)

    def write_tick(self, now_ms: int) -> None:
        """Write the tick and the durable end into the older slot of the tick file (not synced)."""
        if self._member is not None:
            write_durable_end(self.state, self.ticks)
        else:
            write_tick(self.state, self.ticks, now_ms)

    def create_reserve(self) -> bool:
        """At a start: create the reserve file; False if the disk has no room for it."""
        return self.reserve.stand(self.fs.free_bytes(self.folder))

    def close(self) -> None:
        """Close every file. State that is not in the log's files is lost."""
        state = self.state
        state.forget_ready()
        self.dispatcher.retire()
        self.run_inline(self.housekeeping.discard_work())
        state.hot.close()
        state.schedules.close()
        state.hours.close()
        state.ids.close()
        state.texts.close()
        if self._member is None:
            state.log.close()
            self.ticks.close()
        self.reserve.close()


def _earliest(*times_ms: int | None) -> int | None:
    """The earliest of some times; None is never."""
    first_ms = None
    for time_ms in times_ms:
        if time_ms is not None and (first_ms is None or time_ms < first_ms):
            first_ms = time_ms
    return first_ms
