"""Counts what a job would match, a piece at a time, and changes nothing.

It examines messages as a job does, each at its origin, so both find the same. Nothing is stored
between two pieces: the cursor says where the count goes on, and up to which log position messages
count. A piece ends after about 50 ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.find.candidates import candidates
from delaylog.broker.engine.jobs.job_table import Job
from delaylog.broker.engine.jobs.jobs import groups_of, matching, read_range
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.views.list_page import PAGE_SECONDS
from delaylog.broker.engine.views.scanning import RANGE_ROWS, SLICE_ROWS
from delaylog.storage.layout import HOUR_SHIFT, INDEX_MASK, Int64Array
from delaylog.storage.work import Work

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
                origins, following, stop = read_range(self._state, job, hour, RANGE_ROWS, named)
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
