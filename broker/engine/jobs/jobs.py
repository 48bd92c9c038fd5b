"""Jobs: cancel, reschedule and replay by filter, in slices, at a rate, across restarts.

A frame begins a job, which acts only on messages that were sent before that frame. Each slice
appends its changes and then its progress, in one turn. A crash between the two repeats one slice,
which finds its messages changed already. Progress is counted from those frames, so it is exact.

`MatchCount` counts what a job would match, a piece at a time, and changes nothing. It examines
messages as a job does, each at its origin, so both find the same. Nothing is stored between two
pieces: the cursor says where the count goes on, and up to which log position messages count. A
piece ends after about 50 ms.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.broker.engine import changes
from delaylog.broker.engine.apply.move_frames import MOVED_BYTES_MAX
from delaylog.broker.engine.deliver.failure_reasons import failed_so
from delaylog.broker.engine.errors import BadRequestError, EngineError
from delaylog.broker.engine.jobs.job_table import Job, JobSpec
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.lookup.text_entries import candidates
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.send.due_times import check_due_times
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.list_page import PAGE_SECONDS
from delaylog.broker.engine.views.scan import RANGE_ROWS, SLICE_ROWS
from delaylog.storage.columns import parts_of
from delaylog.storage.layout import (
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_MASK,
    STATE_ENDED_FIRST,
    FrameKind,
    Int64Array,
    MessageState,
)
from delaylog.storage.work import Work

RUNNING_MAX: Final = 64
"""Jobs that may run at the same time: they take turns in the background."""
SLICE_MESSAGES: Final = 1_024
"""Messages changed in one slice: up to 4 ms if they move."""
PACE_MS: Final = 100
"""A job with a rate works ten times a second, not once for every message."""
_DEAD: Final = int(MessageState.DEAD)


class TooManyJobsError(EngineError):
    """The number of running jobs is at its limit. Try again when one has ended."""

    code = "quota"


def begin_job(state: EngineState, topic: Topic, order: JobSpec, now_ms: int) -> Job:
    """Begin a job; it exists once the log is committed up to its end."""
    if len(state.jobs.running()) >= RUNNING_MAX:
        raise TooManyJobsError(f"{RUNNING_MAX} jobs run already")
    if order.deliver_at_ms is not None:
        check_due_times(order.deliver_at_ms, now_ms, state.limits.horizon_ms)
    number = state.jobs.next_number
    job = Job(number, topic.number, *order, now_ms, 0)
    members = job.pack()
    position, _ = state.append(FrameKind.JOB, [msgpack.packb(members)], now_ms)
    begun = state.jobs.apply(members, position)
    assert begun is not None
    return begun


def end_job(state: EngineState, job: Job, outcome: str, now_ms: int) -> None:
    """End a job as done, cancelled or failed, unless it has ended."""
    if job.running:
        _append_progress(state, job, {"state": outcome, "ended_ms": now_ms}, now_ms)


def _append_progress(state: EngineState, job: Job, changed: dict[str, Any], now_ms: int) -> None:
    """Append a JOB frame with the changed members of a job. Raises NotLeadingError."""
    members = job.progress() | changed
    position, _ = state.append(FrameKind.JOB, [msgpack.packb(members)], now_ms)
    state.jobs.apply(members, position)


class JobRunner:
    """Runs the jobs of one engine as background work."""

    def __init__(self, state: EngineState, flush: Callable[[], Work]) -> None:
        """`flush` drains the tails when moved messages fill them."""
        self._state = state
        self._flush = flush

    def due(self, now_ms: int) -> bool:
        """Whether `work` has something to do now."""
        return any(self._may_act(job, now_ms) for job in self._state.jobs.running())

    def work(self, clock: Callable[[], int], stopping: Callable[[], bool] = lambda: False) -> Work:
        """Run slices of each job in turn, until all have ended or wait for their rate."""
        state = self._state
        while not stopping():
            jobs = [job for job in state.jobs.running() if self._may_act(job, clock())]
            if not jobs:
                return
            for job in jobs:
                yield from self._range(job, clock, stopping)
                yield None

    def _may_act(self, job: Job, now_ms: int) -> bool:
        """Whether a job may change messages now; earns what its rate allows."""
        short = self._state.short_of_space
        if short and job.action != "cancel":
            return False
        if not short and self._state.transactions.on_way(job.topic, job.position):
            # Committed rows count as sent before the job, so it waits for their publication. While
            # the disk is short of space nothing is published, and it does not wait.
            return False
        if job.rate is None:
            return True
        passed_ms = now_ms - job.paced_ms
        if passed_ms >= PACE_MS or passed_ms < 0 or job.paced_ms == 0:
            # After a pause at most one second's worth is earned.
            earned = job.rate * min(max(passed_ms, 0), 1_000) / 1_000 if job.paced_ms else 1.0
            job.allowed = min(job.allowed + earned, float(max(job.rate, 1)))
            job.paced_ms = now_ms
        return job.allowed >= 1

    def _range(self, job: Job, clock: Callable[[], int], stopping: Callable[[], bool]) -> Work:
        """Examine one range of rows and act on matching messages, a slice at a time."""
        state = self._state
        topic = state.by_number.get(job.topic)
        named = None if topic is None else candidates(state, job.topic, job.filter)
        hour = self._hour(job) if named is None else _hour_of(job, named)
        if topic is None or hour is None:
            end_job(state, job, "failed" if topic is None else "done", clock())
            return
        count = RANGE_ROWS if job.rate is None else min(RANGE_ROWS, 256 + 8 * int(job.allowed))
        origins, sizes, following, stop = read_range(state, job, hour, count, named)
        copies = 0 if job.action == "cancel" else len(groups_of(topic, job))
        for part in parts_of(copies * sizes, SLICE_MESSAGES, MOVED_BYTES_MAX):
            end = state.log.end_position
            whole = self._slice(job, topic, origins[part], clock())
            if state.log.end_position != end:
                yield from self._backpressure()
            yield None
            if not whole or stopping() or not job.running or job.topic not in state.by_number:
                return
        job.scanned += stop - job.index
        job.index = stop
        if not following:
            job.hour, job.index = hour + 1, 1

    def _hour(self, job: Job) -> int | None:
        """The hour that a job examines; None at its end."""
        known = self._state.hours.counts
        if job.hours is None:
            job.hours = deque(hour for hour in known if hour >= job.hour)
        while job.hours and (job.hours[0] < job.hour or job.hours[0] not in known):
            job.hours.popleft()
        if not job.hours:
            return None
        if job.hours[0] != job.hour:
            job.hour, job.index = job.hours[0], 1
        return job.hour

    def _backpressure(self) -> Work:
        """Wait until the log is committed and the tails have room."""
        state = self._state
        yield from state.until_committed()
        if state.hours.pile.size_bytes >= state.hours.pile.bytes_max // 2:
            yield from self._flush()

    def _slice(self, job: Job, topic: Topic, origins: Int64Array, now_ms: int) -> bool:
        """Act on the matching ones of these messages; False if the rate is used up."""
        state = self._state
        groups = groups_of(topic, job)
        founds = [find_origins(state, origins, topic, now_ms, group) for group in groups]
        matches = [matching(self._state, job, found) for found in founds]
        at = np.flatnonzero(np.any(matches, axis=0)) if matches else np.zeros(0, np.int64)
        last = int(origins[-1])
        whole = job.rate is None or len(at) < int(job.allowed)
        if not whole:
            at = at[: int(job.allowed)]
            last = int(origins[at[-1]])
        if len(at):
            done = np.zeros(len(origins), np.bool_)
            chosen = np.zeros(len(origins), np.bool_)
            chosen[at] = True
            for group, found, match in zip(groups, founds, matches, strict=True):
                mine = np.flatnonzero(match & chosen)
                if len(mine):
                    if group is groups[0]:
                        fresh = found.take(mine)
                    else:
                        # Look up again: the rows that an earlier group has moved may have shifted
                        # the records of these rows in their tail.
                        fresh = find_origins(state, origins[mine], topic, now_ms, group)
                    codes = self._act(job, topic, fresh, now_ms)
                    done[mine[codes == changes.DONE]] = True
            acted, following = int(np.count_nonzero(done)), (last & INDEX_MASK) + 1
            job.allowed -= len(at)
            changed = {
                "matched": job.matched + len(at),
                "done": job.done + acted,
                "too_late": job.too_late + len(at) - acted,
                "scanned": job.scanned + following - job.index,
                "index": following,
            }
            _append_progress(state, job, changed, now_ms)
        return whole

    def _act(
        self, job: Job, topic: Topic, found: FoundMessages, now_ms: int
    ) -> npt.NDArray[np.uint8]:
        state = self._state
        if job.action == "cancel":
            # Dead letters are cancelled only if the filter names them, which requires `force`.
            dead = job.force and job.filter.state is MessageState.DEAD
            return changes.cancel(state, topic, found, now_ms, force=job.force, dead=dead).codes
        act = changes.reschedule if job.action == "reschedule" else changes.replay
        due_ms = job.deliver_at_ms
        return act(state, topic, found, now_ms, deliver_at_ms=due_ms, accepted=True).codes


def matching(state: EngineState, job: Job, found: FoundMessages) -> npt.NDArray[np.bool_]:
    """Which messages match the filter of a job, as one group sees them."""
    match = job.filter.matches(state.hours, found)
    if job.filter.state is None:
        dead = job.action == "replay"
        wanted = found.states == _DEAD if dead else found.states < STATE_ENDED_FIRST
        match = match & found.known & wanted
    if job.filter.names_failure:
        at = np.flatnonzero(match)
        match[at] = failed_so(state.failures, job.topic, job.filter, found.take(at))
    return match


def groups_of(topic: Topic, job: Job) -> list[Group]:
    """The groups in which a job acts."""
    name = job.filter.group
    return [group for group in topic.groups.values() if name in (None, group.name)]


def _hour_of(job: Job, named: Int64Array) -> int | None:
    """The next hour in which a job has candidates; None at its end."""
    hours, index = named >> HOUR_SHIFT, named & INDEX_MASK
    left = hours[(hours > job.hour) | ((hours == job.hour) & (index >= job.index))]
    if len(left) == 0:
        return None
    hour = int(left.min())
    if hour != job.hour:
        job.hour, job.index = hour, 1
    return hour


def read_range(
    state: EngineState, job: Job, hour: int, count: int, named: Int64Array | None
) -> tuple[Int64Array, Int64Array, bool, int]:
    """(origins that may match, bytes of each, whether more rows follow, number of the next row).

    `named` = the only rows that can match, of all hours; None = all rows.
    """
    first = job.index
    known = state.hours.counts.get(hour)
    last = known.rows if known is not None else 0
    if first > last:
        none = np.zeros(0, np.int64)
        return none, none, False, first
    if named is None:
        stop = min(first + count, last + 1)
        index = np.arange(first, stop, dtype=np.int64)
    else:
        index = np.unique(named[named >> HOUR_SHIFT == hour] & INDEX_MASK)
        index = index[index >= first][:count]
        stop = int(index[-1]) + 1 if len(index) == count else last + 1
    rows = state.hours.rows(index | hour << HOUR_SHIFT)
    refs = index | hour << HOUR_SHIFT | rows["epoch_tag"].astype(np.int64) << INDEX_BITS
    mask = (
        (rows["topic"] == job.topic)
        & (rows["origin"] == refs)
        & (rows["sent_position"] < job.position)
        & job.filter.may_match(rows)
    )
    return refs[mask], rows["size"][mask].astype(np.int64), stop <= last, stop


_CURSOR: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})\.([0-9]{1,18})\Z")


class MatchCount:
    """One piece of a count; `work` fills it."""

    def __init__(
        self,
        state: EngineState,
        topic: Topic,
        wanted: MessageFilter,
        *,
        now_ms: int,
        cursor: str | None = None,
    ) -> None:
        """`cursor`: that of the piece before. Raises BadRequestError for text that is none."""
        self._state = state
        self._topic = topic
        self._now_ms = now_ms
        position = state.log.end_position
        self._job = Job(0, topic.number, "cancel", wanted, None, None, False, now_ms, position)
        if cursor is not None:
            found = _CURSOR.match(cursor)
            if found is None or int(found[2]) > INDEX_MASK:
                raise BadRequestError(
                    f"cursor {cursor[:64]!a} is not that of a count", field="cursor"
                )
            self._job.hour, self._job.index, self._job.position = map(int, found.groups())
        self.matched = 0
        self.scanned = 0
        """Messages examined."""
        self.cursor: str | None = None
        """Where the next piece begins; None at the end."""

    def work(self, clock: Callable[[], float], seconds_max: float = PAGE_SECONDS) -> Work:
        """Count; background work in slices. `clock` returns seconds."""
        job, ends_s = self._job, clock() + seconds_max
        named = candidates(self._state, job.topic, job.filter)
        known = self._state.hours.counts if named is None else {*(named >> HOUR_SHIFT).tolist()}
        hours = sorted(each for each in known if each >= job.hour)
        for hour in hours:
            if hour != job.hour:
                job.hour, job.index = hour, 1
            following = True
            while following:
                origins, _, following, stop = read_range(self._state, job, hour, RANGE_ROWS, named)
                for first in range(0, len(origins), SLICE_ROWS):
                    self.matched += self._count(origins[first : first + SLICE_ROWS])
                    yield None
                self.scanned += len(origins)
                job.index = stop
                if clock() >= ends_s and (following or hour != hours[-1]):
                    place = f"{hour}.{stop}" if following else f"{hour + 1}.1"
                    self.cursor = f"{place}.{job.position}"
                    return
                yield None

    def _count(self, origins: Int64Array) -> int:
        """Messages that match as at least one group sees them."""
        state = self._state
        groups = groups_of(self._topic, self._job)
        founds = (find_origins(state, origins, self._topic, self._now_ms, each) for each in groups)
        masks = [matching(state, self._job, found) for found in founds]
        return int(np.count_nonzero(np.any(masks, axis=0))) if masks else 0
