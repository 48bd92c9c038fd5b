"""Checkpoints, and the retention of log segments, hours and snapshots that follows from them.

A checkpoint also raises the hour floor and flushes the ids. All of it is background work; nothing
here decides what happens to a message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgpack

from delaylog.broker.engine.apply.frames import apply_hour_floor
from delaylog.broker.engine.deliver.failure_reasons import tidy
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.keyspace.keyspace_files import drop_snapshots
from delaylog.broker.engine.keyspace.keyspace_snapshots import KeyspaceSnapshots, SnapshotRunner
from delaylog.broker.engine.lookup.text_entries import TextUpkeep
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.upkeep.saved_state import (
    FAR,
    end_packing,
    files_of,
    log_needed,
    pack,
    snapshot,
)
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.storage.checkpoint import (
    KEPT,
    Checkpoint,
    Kept,
    checkpoint_names,
    kept_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import HOUR_MS, FrameKind
from delaylog.storage.runs.id_index import forget_hour
from delaylog.storage.work import Work

# How long the steps of repeated work take, by the clock that the work is given.

BOUNDS_MS: Final = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 30_000)


class StepTimes:
    """The steps of one kind of work, of which one runs at a time."""

    def __init__(self) -> None:
        self.steps: dict[str, Histogram] = {}
        """Milliseconds, by step."""
        self._from_ms = 0

    def begin(self, now_ms: int) -> None:
        """The first step begins."""
        self._from_ms = now_ms

    def end(self, step: str, now_ms: int) -> None:
        """`step` has ended, and the next one begins."""
        found = self.steps.get(step)
        if found is None:
            found = self.steps[step] = Histogram(BOUNDS_MS)
        # A clock that was set back measures nothing.
        found.note(max(now_ms - self._from_ms, 0))
        self._from_ms = now_ms


CHECKPOINT_BYTES: Final = 96 << 20
"""Log after which a checkpoint is taken: bounds the replay of a restart."""
CHECKPOINT_MS: Final = 30_000
"""Time after which a checkpoint is taken if anything happened: removed segments follow it."""
IDLE_MS: Final = 3_000
"""Time without a frame after which a checkpoint is taken if `IDLE_BYTES` of log came before: a
quiet broker keeps nothing in memory and restarts at once."""
IDLE_BYTES: Final = 4 << 20
LEAN_PAUSE_MS: Final = 250
"""Least time between checkpoints while space is short and much log is kept."""


class Upkeep:
    """Checkpoints and retention of one engine."""

    def __init__(
        self,
        state: EngineState,
        *,
        lean_bytes: int,
        freed: Callable[[], None] = lambda: None,
        make_snapshot: SnapshotRunner | None = None,
    ) -> None:
        """While space is short, a checkpoint is taken every `lean_bytes` of log.

        `freed` is called when files were removed, from any thread. `make_snapshot` makes snapshots
        of the keyspace; see `KeyspaceSnapshots`.
        """
        self._state = state
        self.files_pinned: Callable[[], bool] = lambda: False
        """Whether a backup is copying the folder's files, so that none may be removed."""
        self.awaited: tuple[Collection[object], ...] = ()
        """What compaction does after the next checkpoints, even if the log does not grow."""
        self.compacted: int | None = None
        """The hour that is being rewritten, which must not be removed meanwhile."""
        self.drop_log: Callable[[int], int] = state.log.drop_below
        """Removes log below a position; in a cluster, as far as no other node needs it."""
        self.texts = TextUpkeep(state)
        self.every_ms, self.idle_ms = CHECKPOINT_MS, IDLE_MS
        """Times between checkpoints; longer under a clock that a program moves."""
        self._lean_bytes = lean_bytes
        self._freed = freed
        self.short_of_space = False
        """Set by the host. Checkpoints then come often and begin new segments, to free old ones."""
        self.kept: list[Kept] = []
        """The newest two checkpoints."""
        self._kept_files: list[dict[str, set[str]]] = []
        """The files that these name, by folder."""
        self._unsure = False
        """Whether a checkpoint failed, which may have its name, and so be kept, all the same."""
        self.snapshots = KeyspaceSnapshots(state, lean_bytes=lean_bytes, run=make_snapshot)
        self.checkpoint_position = 0
        self.checkpoint_ms = 0
        self.checkpoint_running = False
        self.checkpoints = 0
        self.times = StepTimes()
        """Steps of checkpoints: pack, commit, tails, states, sync, ids, write, remove."""
        self._published_bytes = 0
        self._seen_position = 0
        self._seen_ms = 0

    def set_back(self, now_ms: int) -> None:
        """The clock went back: no recorded time may be later than now."""
        self.checkpoint_ms = min(self.checkpoint_ms, now_ms)
        self._seen_ms = min(self._seen_ms, now_ms)
        self.snapshots.set_back(now_ms)

    @property
    def kept_positions(self) -> list[int]:
        """Positions of the kept checkpoints, oldest first."""
        return [one.position for one in self.kept]

    def checkpoint_due(self, now_ms: int) -> bool:
        """Whether enough log or time has passed since the last checkpoint."""
        state = self._state
        grown = state.position - self.checkpoint_position
        # A short PUBLISH frame creates many rows, which a replay would create again.
        grown += state.transactions.published_bytes - self._published_bytes
        self.snapshots.wanted_position = self._erased if state.marks.erasing else 0
        if state.position != self._seen_position:
            self._seen_position, self._seen_ms = state.position, now_ms
        if self.checkpoint_running:
            return False
        made = state.keyspace_base.file
        if made and not any(made in files[KEYSPACE] for files in self._kept_files[-1:]):
            # A new snapshot shortens a start, and frees log, once a checkpoint names it.
            return True
        if self.short_of_space and (grown or self._lets_go):
            since_ms = now_ms - self.checkpoint_ms
            log_bytes = state.log.end_position - state.log.first_position
            return (
                grown >= self._lean_bytes
                or since_ms >= self.idle_ms
                or (
                    log_bytes > 4 * self._lean_bytes and since_ms >= LEAN_PAUSE_MS and self._lets_go
                )
            )
        if grown == 0:
            waits = any(self.awaited) or bool(state.marks.erasing)
            return waits and now_ms - self.checkpoint_ms >= self.every_ms
        return (
            grown >= CHECKPOINT_BYTES
            or now_ms - self.checkpoint_ms >= self.every_ms
            or (grown >= IDLE_BYTES and now_ms - self._seen_ms >= self.idle_ms)
        )

    @property
    def _lets_go(self) -> bool:
        """Whether more checkpoints would free log, even at the same position.

        Log is kept for both kept checkpoints, and for the keyspace until a snapshot is made.
        """
        state = self._state
        needed = state.transactions.log_from(state.keyspace_base.needed(state.position))
        return len(self.kept) < KEPT or self.kept[0].log_from < needed

    def checkpoint(self, clock: Callable[[], int]) -> Work:
        """Flush tails and states, sync hours, write the checkpoint, and remove what it frees."""
        yield from self.apart(self._checkpoint(clock))

    def _checkpoint(self, clock: Callable[[], int]) -> Work:
        state = self._state
        if state.failure is not None:
            raise state.failure
        try:
            yield from state.schedules.store_definitions()
            state.hours.far.merges.frozen = True
            now_ms = clock()
            self.times.begin(now_ms)
            floor = min(now_ms, state.tick.second * 1000 or now_ms) // HOUR_MS - 1
            later = floor > state.hour_floor or state.producers.has_expired(now_ms)
            if later and not state.following and state.may_append():
                members = {"floor": max(floor, state.hour_floor)}
                state.append(FrameKind.HOUR_FLOOR, [msgpack.packb(members)], now_ms)
                apply_hour_floor(state, members, now_ms)
            state.forget_epochs()
            position = state.hours.flusher.boundary = state.position
            published_bytes = state.transactions.published_bytes
            released = state.archive_released
            small = snapshot(state, now_ms)
            state.ids.begin_flush()
            state.texts.begin_flush()
            yield from pack(state)
            yield from state.schedules.store_rows(small["schedules"])
            self.times.end("pack", clock())
            yield from state.until_committed()
            self.times.end("commit", clock())
            if self.short_of_space or state.log.first_position < self._erased:
                yield state.log.roll
            yield from state.hours.flusher.flush(upto=position)
            self.times.end("tails", clock())
            state.hours.flusher.boundary = 0
            yield from state.hours.flusher.flush_states(until_committed=state.until_committed)
            self.times.end("states", clock())
            yield from state.hours.flusher.sync()
            self.times.end("sync", clock())

            small["far"]["tier"] = state.hours.far.saved(position)
            yield from state.ids.flush_jobs(position)
            yield from self.texts.checkpoint(position)
            self.times.end("ids", clock())

            def finish() -> None:
                log_from = log_needed(small)
                unsure, self._unsure = self._unsure, True
                self.kept = write_checkpoint(state.fs, state.folder, small, position, log_from)
                # In the same job: the checkpoint may be closed once it is written.
                if unsure:
                    self._read_kept()
                else:
                    named = _names_of(Checkpoint(small, position))
                    self._kept_files = [*self._kept_files, named][-KEPT:]
                self._unsure = False

            yield finish
            state.ids.end_flush()
            state.hours.far.merges.frozen = False
            self.checkpoint_position = position
            self._published_bytes = published_bytes
            self.checkpoint_ms = clock()
            self.times.end("write", self.checkpoint_ms)
            self.checkpoints += 1
            state.hot.drop_read()
            yield from tidy(state)
            if not self.files_pinned():
                yield self._drop_segments
                yield self._drop_snapshots
                if len(self.kept) >= KEPT:
                    yield from state.hours.far.collect(self._named_in(FAR))
                    yield from state.schedules.collect(self._named_in(SCHEDULES))
                yield from self.drop_hours(clock(), released)
            self.times.end("remove", clock())
        finally:
            state.hours.flusher.boundary = 0
            state.hours.far.merges.frozen = False
            end_packing(state)

    def apart(self, work: Work) -> Work:
        """Run a checkpoint, or other work that writes the id index, while no other such work runs.

        Two works may become due in one turn, before either has begun.
        """
        while self.checkpoint_running:
            yield 0.01
        self.checkpoint_running = True
        try:
            yield from work
        finally:
            self.checkpoint_running = False

    @property
    def _erased(self) -> int:
        """Position below which the log is to be removed, since a purge erases messages in it."""
        topics = (self._state.by_number.get(number) for number in self._state.marks.erasing)
        return max((topic.erased for topic in topics if topic is not None), default=0)

    def find_checkpoints(self) -> None:
        """At a start: find the kept checkpoints, and remove files that neither of them needs."""
        fs, folder = self._state.fs, self._state.folder
        self.kept = kept_checkpoints(fs, folder)
        self._read_kept()
        self._drop_segments()
        # Unfinished snapshots were abandoned, since no other process writes to this folder.
        keep_all = len(self.kept) < KEPT
        drop_snapshots(fs, folder, None if keep_all else self._named_in(KEYSPACE))

    def _read_kept(self) -> None:
        """Read which files the kept checkpoints name."""
        fs, folder = self._state.fs, self._state.folder
        # One after the other: a large one takes much memory.
        names = checkpoint_names(fs, folder)[-KEPT:]
        found = (read_checkpoint(fs, f"{folder}/{name}") for name in names)
        self._kept_files = [_names_of(one) for one in found if one is not None]

    def _named_in(self, folder: str) -> set[str]:
        """The files in a folder that a kept checkpoint names."""
        return set().union(*(files[folder] for files in self._kept_files))

    def _drop_segments(self) -> None:
        log_from = [one.log_from for one in self.kept]
        if len(log_from) >= KEPT and self.drop_log(min(log_from)):
            self._freed()

    def _drop_snapshots(self) -> None:
        # With only one, another checkpoint may exist that cannot be read at the moment.
        if len(self.kept) >= KEPT and self.snapshots.drop(self._named_in(KEYSPACE)):
            self._freed()

    def drop_hours(self, now_ms: int, released: int = 0) -> Work:
        """Delete hours in which no row lives, none must stay readable, and no guest has its origin.

        Hours below `released` were released by a committed ARCHIVE frame.
        """
        state = self._state
        if len(self.kept) < KEPT:
            return
        if state.hours.folders.removing:
            yield state.hours.folders.finish_removals
            self._freed()
        covered = min(self.kept_positions)
        for hour, counts in sorted(state.hours.counts.near.items()):
            if hour >= state.hour_floor:
                break

            def over(hour: int = hour, counts: HourCounts = counts) -> bool:
                # No frame that a start would replay may name the hour: it could not be applied.
                quiet = counts.ended and counts.position <= covered
                # Setting the clock back may have lowered `archive_released` since.
                if state.archive_hold and hour >= min(released, state.archive_released):
                    quiet = quiet and not counts.rows
                return quiet and counts.keep_until_ms <= now_ms and hour < state.hour_floor

            if over():
                if counts.rows:
                    yield from forget_hour(state.ids, state.hours.folders.hour(hour))
                if not over() or hour == self.compacted or state.hours.folders.in_use(hour):
                    # Meanwhile the clock was set back and the hour takes rows again, or an ended
                    # message in it was changed, or compaction has begun to rewrite it.
                    continue
                state.hot.drop_hour(hour)
                yield state.hours.remove(hour)
                self._freed()


def _names_of(checkpoint: Checkpoint) -> dict[str, set[str]]:
    return {folder: set(sizes) for folder, sizes in files_of(checkpoint).items()}
