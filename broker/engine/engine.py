"""The engine: one folder, one thread, no asyncio; time, files and randomness come in.

Calls decide and append frames at once and return what to answer together with the log position
the answer has to wait for. The host writes and syncs the log, reports `commit`, turns the
dispatcher when it is time, and runs background work (`Work`) in slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from delaylog.broker.engine.apply.clock_steps import jump_ahead, set_back
from delaylog.broker.engine.apply.raising import raise_level
from delaylog.broker.engine.apply.reading_log import follow, replay
from delaylog.broker.engine.control.jobs import Jobs
from delaylog.broker.engine.deliver.claims import expire_claims, left_over, settle_left_over
from delaylog.broker.engine.deliver.settling import expire_leases
from delaylog.broker.engine.deliver.waking import wake_paced
from delaylog.broker.engine.dispatch.dispatching import Dispatcher
from delaylog.broker.engine.dispatch.ticks import tick_is_noted, write_durable_end, write_tick
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace, load_keyspace
from delaylog.broker.engine.keyspace.keyspace_log import log_keyspace
from delaylog.broker.engine.membership import Membership
from delaylog.broker.engine.model import DEFAULT_NAMESPACE, Topic
from delaylog.broker.engine.setup import Setup
from delaylog.broker.engine.state import EngineState, Files
from delaylog.broker.engine.topics.changing import get_or_make_topic, put_topic
from delaylog.broker.engine.topics.retiring import look_after_groups, retire_unused
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.transactions.deciding import end_overdue
from delaylog.broker.engine.transactions.publishing import Publisher
from delaylog.broker.engine.upkeep.checkpoints import Upkeep
from delaylog.broker.engine.upkeep.compaction import Compactor
from delaylog.broker.engine.upkeep.starting import stand_at
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.storage.checkpoint import load_newest
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.files.reserved_files import ReservedFileSystem
from delaylog.storage.files.space_reserve import RESERVE, SpaceReserve
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.ids.id_index import IdIndex
from delaylog.storage.layout import HOUR_MS
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots
from delaylog.storage.work import Work, until
from delaylog.wheel import TimingWheel

_LEFT_TO_SINGLES: Final = 4
"""Of the memory for rows that wait for the splitter, large sends leave one part in so many to
single sends."""


class Engine:
    """A delay log broker over one data folder.

    Alone it leads from the start. As a member it follows (`follow`) until it is told to `lead`, and
    is dropped when it may not any more: what it had applied beyond the commit is not to be undone.
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
        """`loaded` = what `load_keyspace` of an earlier engine of this folder gave."""
        self.folder = folder
        self.limits = limits = setup.limits
        self._setup = setup
        if not fs.exists(folder):
            fs.mkdir(folder)
            fs.sync_folder(parent_of(folder))
        self.reserve = SpaceReserve(fs, f"{folder}/{RESERVE}", self.limits.reserve_file_bytes)
        scratch, fs = fs, ReservedFileSystem(fs, self.reserve)
        self.fs: FileSystem = fs
        if fs.exists(f"{folder}/ready"):
            fs.remove_tree(f"{folder}/ready")
        fs.mkdir(f"{folder}/ready")
        saved = load_newest(fs, folder)
        self._member = member
        self._loaded = loaded
        self.ticks = TickSlots(fs, f"{folder}/tick") if member is None else member.ticks
        files = Files(
            fs,
            scratch,
            folder,
            PhysicalLog(fs, f"{folder}/log", segment_bytes_max=limits.segment_bytes_max)
            if member is None
            else member.log,
            HourStore(fs, f"{folder}/hours", open_hours_max=limits.open_hours_max),
            IdIndex(fs, f"{folder}/ids"),
        )
        self.state = EngineState(
            files, limits, setup.random, now_ms, archive_hold=setup.archive_hold
        )
        self.upkeep = Upkeep(
            self.state,
            lean_bytes=max(self.reserve.target_bytes // 16, 256 << 10),
            freed=self.refill_reserve,
            make_snapshot=setup.make_snapshot,
        )
        self.compactor = Compactor(
            self.state,
            self.upkeep,
            freed=self.refill_reserve,
        )
        self.jobs = Jobs(self.state, self.flush_work)
        self.publisher = Publisher(self.state, self.flush_work)
        self._state_bytes = 0
        self.started_ms = now_ms
        """The time this life, or leadership, began with: never before what was told earlier."""
        self.dispatcher = Dispatcher(self.state)
        if member is not None:
            # From the first on: others may need log that this node's checkpoints are past.
            self.upkeep.drop_log = member.drop_log
        self.upkeep.find_checkpoints()
        if member is None:
            self._recover(saved, now_ms)
        else:
            self.state.committed = member.committed
            self.state.may_append = member.may_append
            self._stand_by(saved)

    # ------------------------------------------------------------------ recovery

    def _recover(self, saved: tuple[dict[str, Any], int] | None, now_ms: int) -> None:
        state = self.state
        start, told_ms = self._restore(saved)
        newest = self.ticks.newest
        durable_end = max(start, newest.durable_end if newest else 0)
        frames = replay(state, start, durable_end, run=self.run_inline, working=self._setup.working)
        if frames:
            told_ms = state.told_ms
        self._setup.progress(f"replayed {frames} frames from position {start}")
        if newest is not None and newest.durable_end >= state.log.end_position:
            told_ms = max(told_ms, newest.wall_time_ms)
        now_ms = self.started_ms = max(now_ms, told_ms)
        self.upkeep.checkpoint_position = start
        self.upkeep.checkpoint_ms = now_ms
        state.begin_own_epoch(now_ms)
        raise_level(state, now_ms)
        state.keyspace.now_ms = now_ms
        state.keyspace.begin_expiring()
        state.log.write_pending()
        state.log.sync()
        self.dispatcher.start(now_ms)
        self.write_tick(now_ms)

    def _restore(self, saved: tuple[dict[str, Any], int] | None) -> tuple[int, int]:
        loaded, self._loaded = self._loaded, None
        progress, working = self._setup.progress, self._setup.working
        return stand_at(self.state, saved, loaded, progress=progress, working=working)

    def load_keyspace(self) -> LoadedKeyspace | None:
        """What the next engine of this folder begins with, if no checkpoint is written until then.

        Any thread: nothing of this engine is touched. None where there is no checkpoint.
        """
        saved = load_newest(self.fs, self.folder)
        if saved is None:
            return None
        keyspace = Keyspace(self.state.random)
        keyspace.stop_expiring()
        return load_keyspace(self.fs, self.folder, saved, keyspace)

    # ------------------------------------------------------------------ a member of a cluster

    @property
    def is_member(self) -> bool:
        """Whether it is one of a cluster."""
        return self._member is not None

    def _stand_by(self, saved: tuple[dict[str, Any], int] | None) -> None:
        """Stand at the newest checkpoint: what is committed behind it comes by `follow`."""
        state = self.state
        state.following = state.replaying = True
        state.position, state.told_ms = self._restore(saved)
        self.upkeep.checkpoint_position = state.position
        self.upkeep.checkpoint_ms = state.told_ms

    def follow(self, upto: int) -> Work:
        """Apply the log up to `upto`, which must be committed and where a frame ends."""
        return follow(self.state, upto, crowded=self.crowded, flush=self.flush_work)

    def lead(self, now_ms: int, told_ms: int) -> None:
        """Go on as the leader: all of the log is applied, and its EPOCH_BEGIN committed.

        `told_ms` = the time that the cluster's tick tells; nothing goes on before it.
        """
        state = self.state
        assert state.following, "a leader leads already"
        assert state.position == state.log.end_position, "everything is applied"
        state.following = state.replaying = False
        now_ms = self.started_ms = max(now_ms, told_ms, state.told_ms)
        state.forget_ready()
        state.woken.clear()
        state.wheel = TimingWheel(now_ms)
        state.keyspace.now_ms = max(state.keyspace.now_ms, now_ms)
        state.keyspace.begin_expiring()
        self.dispatcher = Dispatcher(state)
        self.dispatcher.start(now_ms)

    def raise_level(self, level: int, now_ms: int) -> bool:
        """Raise the log's feature level: every other node of the cluster knows it."""
        return raise_level(self.state, now_ms, level)

    def stand_down(self) -> None:
        """Lead no more, and follow from here: everything applied is committed.

        No work runs for this engine any more.
        """
        assert self._member is not None, "one of a cluster"
        state = self.state
        # Told before it retires: from then on its loader takes everything for past.
        state.told_ms = self.dispatcher.loader.now_ms
        assert not state.keyspace.effects, "everything applied is committed"
        self.dispatcher.retire()
        state.keyspace.stop_expiring()
        state.exposures.clear()
        state.forget_ready()
        state.following = state.replaying = True
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
        """The log is committed up to `position`: show the rows below it to the wheel."""
        self.dispatcher.commit(position, now_ms)

    def next_wake_ms(self) -> int | None:
        """When `run_due` has something to do."""
        state = self.state
        first = self.dispatcher.next_wake_ms()
        leases, keys = state.leases.next_expiry_ms(), state.keyspace.next_expiry_ms()
        if leases is not None and (first is None or leases < first):
            first = leases
        if keys is not None and (first is None or keys < first):
            first = keys
        claims = state.claims.next_expiry_ms()
        if claims is not None and (first is None or claims < first):
            first = claims
        if state.paced:
            paced = min(state.paced.values())
            first = paced if first is None else min(first, paced)
        return first

    def has_due(self, now_ms: int) -> bool:
        """Whether messages that are due by `now_ms` are still to be released, or loaded first."""
        wake_ms, unloaded_ms = self.next_wake_ms(), self.dispatcher.unloaded_ms()
        return (wake_ms is not None and wake_ms <= now_ms) or (
            unloaded_ms is not None and unloaded_ms <= now_ms
        )

    def jump_ahead(self, jump_ms: int, now_ms: int) -> None:
        """The time went ahead by so much more than passed."""
        jump_ahead(self.state, jump_ms, now_ms)

    def set_back(self, step_ms: int, now_ms: int) -> None:
        """The time goes on from `now_ms`, `step_ms` (negative) from where it was."""
        assert self._member is None, "a member begins no epoch by itself"
        shown = self.dispatcher.retire()
        self.state.hours.folders.finish_removals()
        set_back(self.state, step_ms, now_ms)
        self.state.keyspace.now_ms = now_ms
        self.upkeep.set_back(now_ms)
        self.dispatcher = Dispatcher(self.state)
        self.dispatcher.start(now_ms, shown_position=shown)
        # Hours that are near are asked for before anything new comes in.
        self.dispatcher.dispatch(now_ms)

    def run_due(self, now_ms: int) -> bool:
        """Release due messages and expire leases, one bounded slice; True if more is due."""
        self.dispatcher.dispatch(now_ms)
        # A claim ends before the first of its messages comes back: never in part.
        expire_claims(self.state, now_ms)
        expire_leases(self.state, now_ms)
        self._expire_keys(now_ms)
        if self.state.paced:
            wake_paced(self.state, now_ms)
        wake = self.next_wake_ms()
        return wake is not None and wake <= now_ms

    def _expire_keys(self, now_ms: int) -> None:
        keyspace = self.state.keyspace
        first = keyspace.next_expiry_ms()
        if first is not None and first <= now_ms:
            keyspace.expire_due(now_ms)
        if keyspace.effects:
            log_keyspace(self.state, now_ms)

    def claims_due(self) -> bool:
        """Whether the settlement of a claim has begun and not ended."""
        return bool(left_over(self.state))

    def claims_work(self, clock: Callable[[], int]) -> Work:
        """Finish these settlements."""
        return settle_left_over(self.state, clock)

    def retire_unused(self, now_ms: int) -> None:
        """Drop what nobody uses any more, end what holds others up. Called every few seconds."""
        end_overdue(self.state, now_ms)
        retire_unused(self.state, now_ms)
        look_after_groups(self.state, now_ms)

    def run_inline(self, work: Work) -> None:
        """Run background work to its end on the spot (recovery, tests, clean shutdown).

        Work that waits does so for the log to become durable, so that is done here.
        """
        for step in work:
            if callable(step):
                step()
            elif step is not None:
                self.state.log.write_pending()
                self.state.log.sync()

    def note_tick(self, now_ms: int) -> None:
        """Write the tick if it, or how far the log is durable, is another one than on the disk."""
        if not tick_is_noted(self.state, self.ticks):
            self.write_tick(now_ms)

    def write_tick(self, now_ms: int) -> None:
        """Put tick and durable end into the older tick slot (not synced)."""
        if self._member is not None:
            write_durable_end(self.state, self.ticks)
        else:
            write_tick(self.state, self.ticks, now_ms)

    def flush_due(self) -> bool:
        """The tails are large enough for the splitter."""
        return self.state.hours.pile.size_bytes >= self._tail_bytes(self.limits.tail_bytes_max, 4)

    def crowded(self, *, large: bool = False) -> bool:
        """The tails are so large that sends have to wait for the splitter.

        Large sends leave room to single ones, which would else wait for a whole flush behind them.
        """
        most = self._tail_bytes(self.limits.tail_bytes_hard_max, 2)
        if large:
            most -= most // _LEFT_TO_SINGLES
        return self.state.hours.pile.size_bytes > most

    def crowded_by_changes(self, *, rows: bool) -> bool:
        """What changes leave in memory is so much that more of them have to wait.

        States count as of the last `states_due`. `rows` = the changes add rows too.
        """
        return self._state_bytes > self.limits.state_bytes_hard_max or (rows and self.crowded())

    def _tail_bytes(self, bytes_max: int, share: int) -> int:
        """What waits for the splitter has to find room in the reserve, beside the settles."""
        held = self.reserve.target_bytes
        return min(bytes_max, held // share) if held else bytes_max

    def flush_work(self) -> Work:
        """The splitter: durable tails go to their hours."""
        yield from self.state.hours.flusher.flush(upto=self.state.committed())

    def states_due(self) -> bool:
        """Changed state pages take enough memory to be written."""
        self._state_bytes = self.state.hours.flusher.dirty_state_bytes
        return self._state_bytes >= self.limits.state_bytes_max

    def states_work(self) -> Work:
        """Write changed states, each after the frames that explain it are durable.

        Those of far rows are merged before more are written: each run makes changes slower. Changes
        that come faster than that have to wait.
        """
        hours = self.state.hours
        yield from hours.flusher.flush_states(until_committed=self.state.until_committed)
        self._state_bytes = hours.flusher.dirty_state_bytes
        yield from hours.far.merges.flushed_states(hours.counts)

    def split_due(self, now_ms: int) -> bool:
        """Hours have come near that the far tier keeps."""
        if self.state.following:
            # Who leads is told by its dispatcher.
            self.state.hours.border.look_ahead(now_ms // HOUR_MS)
        return self.state.hours.border.split_due

    def split_work(self, stopping: Callable[[], bool] = lambda: False) -> Work:
        """Give near hours folders of their own."""
        yield from until(stopping, self.state.hours.border.split_work())

    def merge_due(self) -> bool:
        """Runs of the far tier are to be merged."""
        return self.state.hours.far.merges.due(self.state.hours.counts)

    def merge_work(
        self, clock: Callable[[], int], stopping: Callable[[], bool] = lambda: False
    ) -> Work:
        """Merge runs. A large merge takes minutes: splits go on beside it, a stop gives it up."""
        yield from until(stopping, self.compactor.merge_far(clock))

    def ids_due(self) -> bool:
        """Runs of the id index are to be merged."""
        upkeep = self.upkeep
        return self.state.ids.crowded and not (upkeep.checkpoint_running or upkeep.short_of_space)

    def ids_work(self, stopping: Callable[[], bool] = lambda: False) -> Work:
        """Merge runs of the id index; a stop gives a merge up."""
        yield from until(stopping, self.upkeep.apart(self.state.ids.merge_jobs()))

    def discard_work(self) -> Work:
        """Remove files that nobody needs any more."""
        garbage = self.state.garbage

        def discard() -> None:
            # Here, since what is cancelled before its turn has not been done.
            if garbage:
                garbage.pop()()

        while garbage:
            yield discard

    def stand_reserve(self) -> bool:
        """At a start: make the reserve what it should be; False if there is no room for it."""
        return self.reserve.stand(self.fs.free_bytes(self.folder))

    def refill_reserve(self) -> None:
        """Give the reserve back what is missing, as far as there is room. Any thread."""
        if not self.reserve.whole:
            self.reserve.refill(self.fs.free_bytes(self.folder))

    def close(self) -> None:
        """Close every file. What is not in the log is lost, what is in it comes back."""
        state = self.state
        state.forget_ready()
        self.dispatcher.retire()
        self.run_inline(self.discard_work())
        state.hot.close()
        state.hours.close()
        state.ids.close()
        if self._member is None:
            state.log.close()
            self.ticks.close()
        self.reserve.close()
