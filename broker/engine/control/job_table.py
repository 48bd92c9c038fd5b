"""The table of jobs: what frames say about each, and what a checkpoint keeps.

Nothing here acts on messages; see jobs.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.control.job_filter import Filter
from delaylog.storage.messages.named_fields import NamedFields

ENDED_KEPT: Final = 256
"""Ended jobs that can still be asked about: the newest."""
_PROGRESS: Final = NamedFields(
    number="number",
    hour="hour",
    index="index",
    scanned="scanned",
    matched="matched",
    done="done",
    too_late="too_late",
    state="state",
    ended_ms="ended_ms",
)
_ORDER: Final = NamedFields(
    topic="topic",
    action="action",
    rate="rate",
    at="deliver_at_ms",
    force="force",
    begun="begun_ms",
)


class Order(NamedTuple):
    """What a job is to do."""

    action: str
    """cancel, reschedule or replay."""
    filter: Filter
    rate: int | None = None
    """Messages a second at most."""
    deliver_at_ms: int | None = None
    """The new due time; a past one means when it is done."""
    force: bool = False


@dataclass(slots=True)
class Job:
    """One job. Numbers are never used again."""

    number: int
    topic: int
    action: str
    filter: Filter
    rate: int | None
    deliver_at_ms: int | None
    force: bool
    begun_ms: int
    position: int
    """Messages that the log holds below it are meant."""
    hour: int = 0
    index: int = 1
    """The row to look at next."""
    scanned: int = 0
    matched: int = 0
    done: int = 0
    too_late: int = 0
    state: str = "running"
    ended_ms: int = 0
    allowed: float = field(default=0.0, compare=False)
    """Messages it may change now, by its rate. Not kept."""
    paced_ms: int = field(default=0, compare=False)
    hours: deque[int] | None = field(default=None, compare=False)
    """Hours still to be walked. Messages that it means have their first rows in no others."""

    @property
    def running(self) -> bool:
        """Whether there is more to do."""
        return self.state == "running"

    def progress(self) -> dict[str, Any]:
        """What changes while it runs, as it stands in a frame."""
        return _PROGRESS.pack(self)

    def pack(self) -> dict[str, Any]:
        """All of it but its position, which is its frame's."""
        return self.progress() | _ORDER.pack(self) | {"filter": self.filter.members()}


class JobTable:
    """All jobs by number, oldest first."""

    def __init__(self) -> None:
        self.by_number: dict[int, Job] = {}
        self.next_number = 1

    def running(self) -> list[Job]:
        """Jobs that have more to do."""
        return [job for job in self.by_number.values() if job.running]

    def apply(self, members: dict[str, Any], position: int) -> Job | None:
        """A frame at `position` says that a job begins, or how far one has got."""
        number = members["number"]
        if "action" in members:
            wanted = Filter.of_members(members["filter"])
            job = Job(number, filter=wanted, position=position, **_ORDER.unpack(members))
            self.by_number[number] = job
            self.next_number = max(self.next_number, number + 1)
        else:
            known = self.by_number.get(number)
            if known is None:
                return None
            job = known
        _PROGRESS.fill(job, members)
        ended = [job.number for job in self.by_number.values() if not job.running]
        for old in ended[:-ENDED_KEPT]:
            del self.by_number[old]
        return job

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint."""
        jobs = [job.pack() | {"position": job.position} for job in self.by_number.values()]
        return {"next": self.next_number, "jobs": jobs}

    def restore(self, saved: dict[str, Any]) -> None:
        """Of a checkpoint."""
        for members in saved["jobs"]:
            self.apply(members, members["position"])
        self.next_number = saved["next"]
