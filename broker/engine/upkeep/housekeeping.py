"""Housekeeping: what a host runs in the background so that memory and files stay bounded.

Each kind of work has a `…_due` that says whether there is some, and a `…_work` that does it in
slices. `crowded` and `crowded_by_changes` are the backpressure: the host makes senders wait while
the splitter or the writer of states catches up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.upkeep.checkpoints import Upkeep
from delaylog.broker.engine.upkeep.compaction import Compactor
from delaylog.storage.files.space_reserve import SpaceReserve
from delaylog.storage.hours.hour_flusher import STATE_BYTES_MAX
from delaylog.storage.hours.tails import TAIL_BYTES_MAX
from delaylog.storage.layout import HOUR_MS
from delaylog.storage.work import Work, until

TAIL_BYTES_HARD_MAX: Final = 80 << 20
"""Tail bytes at which sends wait for the splitter: bounds memory if the disk is slow."""
STATE_BYTES_HARD_MAX: Final = 96 << 20
"""Bytes of state pages at which changes of many messages wait for them to be written."""
assert TAIL_BYTES_MAX < TAIL_BYTES_HARD_MAX
assert STATE_BYTES_MAX < STATE_BYTES_HARD_MAX
_LEFT_TO_SINGLES: Final = 4
"""Large sends leave 1 / 4 of the memory for tails to single sends."""


class Housekeeping:
    """Background work on the tails, states, far tier and id index of one engine."""

    def __init__(
        self, state: EngineState, reserve: SpaceReserve, upkeep: Upkeep, compactor: Compactor
    ) -> None:
        self._state = state
        self._upkeep = upkeep
        self._compactor = compactor
        self._flush_bytes = state.hours.pile.bytes_max
        self._sends_bytes = TAIL_BYTES_HARD_MAX
        if reserve.target_bytes:
            # A full disk must take the tails.
            self._flush_bytes = min(self._flush_bytes, reserve.target_bytes // 4)
            self._sends_bytes = min(self._sends_bytes, reserve.target_bytes // 2)
        self._state_bytes = 0
        """Bytes of changed state pages in memory, as of the last `states_due`."""

    def flush_due(self) -> bool:
        """Whether the tails are large enough for the splitter."""
        return self._state.hours.pile.size_bytes >= self._flush_bytes

    def crowded(self, *, large: bool = False) -> bool:
        """Whether the tails are so large that sends have to wait for the splitter.

        Large sends stop earlier than single ones, which would otherwise wait for a whole flush.
        """
        most = self._sends_bytes
        if large:
            most -= most // _LEFT_TO_SINGLES
        return self._state.hours.pile.size_bytes > most

    def crowded_by_returns(self) -> bool:
        """Whether the tails are so large that leases have to wait before they expire.

        That is above what sends may take, so that they do not keep returns out.
        """
        return self._state.hours.pile.size_bytes > self._sends_bytes + self._sends_bytes // 2

    def crowded_by_changes(self, *, rows: bool) -> bool:
        """Whether changed states take so much memory that further changes have to wait.

        States count as of the last `states_due`. `rows` = the changes add rows as well.
        """
        return self._state_bytes > STATE_BYTES_HARD_MAX or (rows and self.crowded())

    def flush_work(self) -> Work:
        """The splitter: append committed tails to the files of their hours."""
        yield from self._state.hours.flusher.flush(upto=self._state.committed())

    def states_due(self) -> bool:
        """Whether changed state pages take enough memory to be written."""
        flusher = self._state.hours.flusher
        self._state_bytes = flusher.dirty_state_bytes
        return self._state_bytes >= flusher.state_bytes_max

    def states_work(self) -> Work:
        """Write changed states, each once the frames that changed it are committed.

        States of far rows are merged before more are written, since each run slows changes down.
        Changes that come faster than that have to wait.
        """
        hours = self._state.hours
        yield from hours.flusher.flush_states(until_committed=self._state.until_committed)
        self._state_bytes = hours.flusher.dirty_state_bytes
        yield from hours.far.merges.flushed_states(hours.counts)

    def split_due(self, now_ms: int) -> bool:
        """Whether hours that are near now are still in the far tier."""
        if self._state.following and now_ms:
            # On a leader the dispatcher does this. `now_ms` is 0 before a follower's first frame.
            self._state.hours.border.look_ahead(now_ms // HOUR_MS)
        return self._state.hours.border.split_due

    def split_work(self, stopping: Callable[[], bool] = lambda: False) -> Work:
        """Move near hours from the far tier to their own folders."""
        yield from until(stopping, self._state.hours.border.split_work())

    def merge_due(self) -> bool:
        """Whether runs of the far tier are to be merged."""
        return self._state.hours.far.merges.due(self._state.hours.counts)

    def merge_work(
        self, clock: Callable[[], int], stopping: Callable[[], bool] = lambda: False
    ) -> Work:
        """Merge runs of the far tier. A large merge takes minutes: splits go on beside it, and a
        stop abandons it."""
        yield from until(stopping, self._compactor.merge_far(clock))

    def ids_due(self) -> bool:
        """Whether runs of the id index are to be merged."""
        upkeep = self._upkeep
        return self._state.ids.crowded and not (upkeep.checkpoint_running or upkeep.short_of_space)

    def ids_work(self, stopping: Callable[[], bool] = lambda: False) -> Work:
        """Merge runs of the id index; a stop abandons the merge."""
        yield from until(stopping, self._upkeep.apart(self._state.ids.merge_jobs()))

    def texts_due(self) -> bool:
        """Whether the index of texts is to be made whole, written or merged."""
        upkeep = self._upkeep
        return upkeep.texts.due and not (upkeep.checkpoint_running or upkeep.short_of_space)

    def texts_work(self, stopping: Callable[[], bool] = lambda: False) -> Work:
        """Do that; a stop abandons it."""
        yield from until(stopping, self._upkeep.texts.work(self._upkeep.apart))

    def discard_work(self) -> Work:
        """Remove files that are not needed any more."""
        unneeded = self._state.unneeded_files

        def discard() -> None:
            # Taken off the list inside the job: a job cancelled before it runs must stay listed.
            if unneeded:
                unneeded.pop()()

        while unneeded:
            yield discard
