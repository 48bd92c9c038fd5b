"""Loading: the background part of dispatch, from the files of hours to the wheel.

Three kinds of work run beside each other: load seconds that are due soon; open hours and load past
seconds (a backlog after an outage), oldest first and many at a time; and copy loaded seconds with
many messages to scratch files in dispatch order. Everything that reads files is a job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns import distinct, every, grouped, some, take_rows
from delaylog.storage.errors import DiskFullError
from delaylog.storage.hours.delay_hour import ChainReader, ChainSlice, DelayHour
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SECONDS,
    HOUR_SHIFT,
    INDEX_BITS,
    NEVER_MS,
    STATE_NONE,
    Int64Array,
    RowArray,
)
from delaylog.storage.work import IoJob, ReadJob, Work
from delaylog.wheel import NO_ENTRIES, Entries, TimingWheel, join_entries, sort_entries

SORT_INLINE_MAX: Final = 16_384
PAST_ROWS_MAX: Final = 16_384
"""Messages of past seconds that are loaded together, at most."""
NEAR_SECONDS: Final = 60
"""Seconds that are overdue by at most this are loaded in order with coming ones. Older ones are a
backlog, for which messages due now do not wait."""
RECORDS_UNTIL_MS: Final = 20_000
"""Time before an hour begins until which its records are verified: seconds verify the others."""


class Loader:
    """The hours and seconds that one wheel has requested."""

    def __init__(self, state: EngineState, wheel: TimingWheel) -> None:
        self._state = state
        self._wheel = wheel
        self._opens: deque[int] = deque()
        self._past_opens: deque[int] = deque()
        self._loads: deque[int] = deque()
        self._past_loads: deque[int] = deque()
        self._hot: deque[tuple[int, Int64Array, Int64Array]] = deque()
        self._open_mark: dict[int, tuple[int, int]] = {}
        self.now_ms = 0
        """The dispatcher's time."""
        self.shown_position = 0
        """Log position up to which rows were shown to the wheel."""

    def retire(self) -> None:
        """Stop: background work that still runs finds nothing to do."""
        for queue in (self._opens, self._past_opens, self._loads, self._past_loads, self._hot):
            queue.clear()
        self.now_ms = 1 << 62

    def open_hours(self, hours: list[int], now_ms: int) -> None:
        """Request hours, for the wheel."""
        frontier = self._wheel.frontier()
        for hour in hours:
            self._open_mark[hour] = (frontier, self._state.exposed_rows(hour))
            (self._opens if hour >= now_ms // HOUR_MS else self._past_opens).append(hour)

    def load_seconds(self, seconds: list[int], now_ms: int) -> None:
        """Request seconds, for the wheel."""
        line = now_ms // 1000 - NEAR_SECONDS
        past = [second for second in seconds if second < line]
        near = [second for second in seconds if second >= line]
        if near:
            # After a short stall messages are still released in order of due time. The deque stays
            # the same: a load that fails puts its seconds back into it.
            waiting = sorted([*self._loads, *near])
            self._loads.clear()
            self._loads.extend(waiting)
        if past:
            # The present hour is opened first, but its past seconds follow those of older hours.
            waiting = sorted([*self._past_loads, *past])
            self._past_loads.clear()
            self._past_loads.extend(waiting)

    @property
    def loading(self) -> bool:
        """Whether `load_work` has something to do."""
        return bool(self._loads or self._opens or self._past_loads or self._past_opens)

    @property
    def near(self) -> bool:
        """Whether `near_work` has something to do."""
        return bool(self._loads)

    @property
    def far(self) -> bool:
        """Whether `far_work` has something to do."""
        return bool(self._opens or self._past_loads or self._past_opens)

    def load_work(self) -> Work:
        """Open hours and load seconds, near ones first, until nothing is requested: for a host that
        runs one work at a time.
        """
        while self.loading:
            yield from self.near_work() if self.near else self._far_step()
            yield None

    def near_work(self) -> Work:
        """Load seconds that are due soon, or have been due for a moment, in order."""
        while self._loads:
            yield from self._kept(self._load, self._loads, self._take_near())
            yield None

    def far_work(self) -> Work:
        """Open hours and load past seconds. `near_work` may run beside it."""
        while self.far:
            yield from self._far_step()
            yield None

    def _far_step(self) -> Work:
        if self._opens:
            yield from self._kept(self._open, self._opens, [self._opens.popleft()])
        elif self._past_loads and not self._older_hours():
            yield from self._load_heads(self._past_loads[0] // HOUR_SECONDS)
            if self._past_loads:
                seconds = self._take_past()
                load = self._load_past if len(seconds) > 1 else self._load
                yield from self._kept(load, self._past_loads, seconds)
        elif self._past_opens:
            yield from self._kept(self._open, self._past_opens, [self._past_opens.popleft()])

    def _load_heads(self, hour: int) -> Work:
        """Read the heads of an hour's chains, which may have been dropped to open other hours."""
        if hour in self._state.hours.counts:
            yield self._state.hours.folders.hour(hour).heads.load

    def _older_hours(self) -> bool:
        """Whether hours older than the oldest past second are still to be opened."""
        opens, loads = self._past_opens, self._past_loads
        return bool(opens) and opens[0] < loads[0] // HOUR_SECONDS

    @property
    def laying_out(self) -> bool:
        """Whether `lay_out_work` has something to do."""
        return bool(self._hot)

    def lay_out_work(self) -> Work:
        """Copy loaded seconds with many messages in dispatch order, unless they are due."""
        state = self._state
        while self._hot:
            while state.hours.flusher.replaces:
                # A copy would have old rows and new records. The present hour is not compacted, but
                # the clock may have been set ahead since that began.
                yield 0.001
            second, refs, lanes = self._hot.popleft()
            hour = second // HOUR_SECONDS
            if not self._ahead(second) or hour not in state.hours.counts:
                continue
            free_bytes = state.fs.free_bytes(state.folder) - 2 * state.limits.disk_reserve_bytes
            try:
                yield from state.hot.lay_out(
                    second,
                    refs,
                    lanes,
                    state.hours.folders.hour(hour),
                    free_bytes=free_bytes,
                    in_time=partial(self._ahead, second),
                )
            except DiskFullError:
                # Their messages are read from the hour's files instead.
                state.hot.clear()

    def _ahead(self, second: int) -> bool:
        return second * 1000 > self.now_ms

    @staticmethod
    def _kept(work: Callable[[list[int]], Work], queue: deque[int], items: list[int]) -> Work:
        """Work through `items`; those left by an error, such as a full disk, are queued again."""
        try:
            yield from work(items)
        except BaseException:
            queue.extendleft(reversed(items))
            raise

    def _take_near(self) -> list[int]:
        """Take requested seconds of one hour, so that one flush of its tail serves them all."""
        first = self._loads.popleft()
        out = [first]
        while self._loads and self._loads[0] // HOUR_SECONDS == first // HOUR_SECONDS:
            out.append(self._loads.popleft())
        return out

    def _take_past(self) -> list[int]:
        """Take past seconds of one hour that are read together."""
        waiting = self._past_loads
        out = [waiting.popleft()]
        hour = out[0] // HOUR_SECONDS
        if hour not in self._state.hours.counts or self._wheel.took_live(out[0]):
            return out
        counts = self._state.hours.folders.hour(hour).heads.get().count
        left = PAST_ROWS_MAX - int(counts[out[0] % HOUR_SECONDS])
        while waiting and waiting[0] // HOUR_SECONDS == hour:
            left -= int(counts[waiting[0] % HOUR_SECONDS])
            if left < 0 or self._wheel.took_live(waiting[0]):
                break
            out.append(waiting.popleft())
        return out

    def _drain_tail(self, hour: int) -> Work:
        """Flush every row of an hour that the wheel has seen to its files.

        Without fsync on commit, rows are shown before they are durable; a flush waits for that.
        """
        while self._state.committed() < self.shown_position:
            yield 0.001
        yield from self._state.hours.flusher.flush(
            upto=self._state.committed(),
            hour=None if self._state.hours.pile.has_loose else hour,
        )

    def _open(self, hours: list[int]) -> Work:
        state = self._state
        hour = hours[0]
        yield from state.hours.border.bring_near(hour)
        yield from self._drain_tail(hour)
        now_hour = self.now_ms // HOUR_MS
        if hour not in state.hours.counts:
            self._wheel.hour_opened(hour, ())
            return
        folder = state.hours.folders.hour(hour)
        # Every row is verified before chains are walked. If the hour is ahead, its records are
        # verified too, which warms the page cache; otherwise, and if there is no time for all of
        # them, each second verifies its own.
        if hour > now_hour:
            yield from self._verify(
                folder, records=True, until_ms=hour * HOUR_MS - RECORDS_UNTIL_MS
            )
        yield from self._verify(folder, records=False, until_ms=NEVER_MS)
        yield folder.heads.load
        seconds = self._wheel.hour_opened(hour, np.flatnonzero(folder.heads.get().count).tolist())
        self.load_seconds(seconds, self.now_ms)

    def _verify(self, folder: DelayHour, *, records: bool, until_ms: int) -> Work:
        with closing(folder.verify(records=records)) as checks:
            done = False

            def check() -> None:
                nonlocal done
                done = next(checks, "end") == "end"

            while not done and self.now_ms < until_ms:
                yield ReadJob(check)

    def _load(self, seconds: list[int]) -> Work:
        state = self._state
        hour = seconds[0] // HOUR_SECONDS
        last = state.exposed_rows(hour)
        frontier, marked = self._open_mark.get(hour, (0, 0))
        yield from self._drain_tail(hour)
        yield from self._load_heads(hour)
        while seconds:
            second = seconds[0]
            upto = min(last, marked) if second < frontier else last
            entries = yield from self._read(hour, [(second, upto)])
            if entries.count > SORT_INLINE_MAX:
                box: list[Entries] = []

                def sort(entries: Entries = entries, box: list[Entries] = box) -> None:
                    box.append(sort_entries(entries))

                yield sort
                entries = box[0]
            else:
                entries = sort_entries(entries)
            self._wheel.second_loaded(second, entries)
            seconds.pop(0)
            if entries.count >= state.hot.rows_min and self._ahead(second):
                self._hot.append((second, entries.refs, entries.lanes))
            yield None

    def _load_past(self, seconds: list[int]) -> Work:
        """Load many past seconds of one hour at once, in order of due time: all of it is due.

        After days of downtime there are hundreds of thousands of seconds with one or two messages.
        None of these seconds took live entries before, and live entries of later sends have row
        numbers above `last`.
        """
        state = self._state
        hour = seconds[0] // HOUR_SECONDS
        frontier, marked = self._open_mark.get(hour, (0, 0))
        last = state.exposed_rows(hour)
        yield from self._drain_tail(hour)
        yield from self._load_heads(hour)
        chains = [(s, min(last, marked) if s < frontier else last) for s in seconds]
        entries = yield from self._read(hour, chains)
        # The slot of the first second gets all entries; the others are loaded and empty.
        self._wheel.second_loaded(seconds[0], sort_entries(entries))
        for second in seconds[1:]:
            self._wheel.second_loaded(second, NO_ENTRIES)

    def _read(
        self, hour: int, seconds: list[tuple[int, int]]
    ) -> Generator[IoJob | float | None, None, Entries]:
        """Entries of living rows in chains of an hour: (second, last row number) each."""
        state = self._state
        if hour not in state.hours.counts:
            return NO_ENTRIES
        folder = state.hours.folders.hour(hour)
        parts: list[Entries] = []
        with folder.files.reading():
            chains = [
                (folder.heads.newest(second % HOUR_SECONDS), last) for second, last in seconds
            ]
            reader = ChainReader(state.fs, folder, chains)
            while (part := (yield from reader.read())) is not None:
                entries = yield from self._living(folder, part)
                if entries.count:
                    parts.append(entries)
                yield None
        return join_entries(parts) if parts else NO_ENTRIES

    def _living(
        self, folder: DelayHour, part: ChainSlice
    ) -> Generator[IoJob | float | None, None, Entries]:
        """Entries of living rows, after every byte of their records was verified."""
        index, rows = part.index, part.rows
        for number in part.unchecked:
            yield ReadJob(partial(folder.check_records, number))
        tags = rows["epoch_tag"].astype(np.int64)
        refs = (folder.hour << HOUR_SHIFT) | (tags << INDEX_BITS) | index
        due = rows["deliver_at"].astype(np.int64)
        entries = Entries(due, refs, rows["topic"].astype(np.int64))
        living = folder.states().get(index)["state"] == STATE_NONE
        # Compaction may have removed a row since its chain was walked.
        living &= rows["global_index"] != 0
        timed = rows["expires_at"] != NEVER_MS
        if some(timed):
            self._state.marks.timed.update(distinct(rows["topic"][timed].astype(np.int64)).tolist())
        if self._state.marks.special:
            self._look_closer(folder, index, rows, living)
        return entries if every(living) else Entries(*(column[living] for column in entries))

    def _look_closer(
        self, folder: DelayHour, index: Int64Array, rows: RowArray, living: npt.NDArray[np.bool_]
    ) -> None:
        """Correct `living` for rows of special topics: a row lives if it does in any group."""
        topics = rows["topic"].astype(np.int64)
        at = np.flatnonzero(self._state.marks.special_among(topics))
        for number, of_topic in grouped(topics[at]):
            mine = at[of_topic]
            topic = self._state.by_number.get(number)
            living[mine] = False
            for group in topic.groups.values() if topic is not None else ():
                entries = folder.states(group.number).get(index[mine])
                living[mine] |= group.free(take_rows(rows, mine), entries)
