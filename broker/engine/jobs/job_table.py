"""The table of jobs. Frames change it, and checkpoints store it; jobs.py acts on messages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.contract.named_fields import NamedFields

ENDED_KEPT: Final = 256
"""Ended jobs that are remembered: the newest."""
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


class JobSpec(NamedTuple):
    """The request for a job."""

    action: str
    """cancel, reschedule or replay."""
    filter: MessageFilter
    rate: int | None = None
    """Messages a second, at most."""
    deliver_at_ms: int | None = None
    """The new due time; a past one means the time of the change."""
    force: bool = False


@dataclass(slots=True)
class Job:
    """One job. Numbers are never used again."""

    number: int
    topic: int
    action: str
    filter: MessageFilter
    rate: int | None
    deliver_at_ms: int | None
    force: bool
    begun_ms: int
    position: int
    """Position of the frame that began it: only messages sent before it are changed."""
    hour: int = 0
    index: int = 1
    """The row to examine next."""
    scanned: int = 0
    matched: int = 0
    done: int = 0
    too_late: int = 0
    state: str = "running"
    ended_ms: int = 0
    allowed: float = field(default=0.0, compare=False)
    """Messages it may change now, by its rate; not state."""
    paced_ms: int = field(default=0, compare=False)
    hours: deque[int] | None = field(default=None, compare=False)
    """Hours still to be examined; the first rows of all messages it may change are in them."""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.state == "running"

    def progress(self) -> dict[str, Any]:
        """The members that change while it runs, as in a frame."""
        return _PROGRESS.pack(self)

    def pack(self) -> dict[str, Any]:
        """All members except the position, which is that of its frame."""
        return self.progress() | _ORDER.pack(self) | {"filter": self.filter.members()}


class JobTable:
    """All jobs by number, oldest first."""

    def __init__(self) -> None:
        self.by_number: dict[int, Job] = {}
        self.next_number = 1

    def running(self) -> list[Job]:
        """Jobs that have not ended."""
        return [job for job in self.by_number.values() if job.running]

    def apply(self, members: dict[str, Any], position: int) -> Job | None:
        """Apply a JOB frame at `position`: a new job, or the progress of one."""
        number = members["number"]
        if "action" in members:
            wanted = MessageFilter.of_members(members["filter"])
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
        """Fill an empty table from a checkpoint."""
        for members in saved["jobs"]:
            self.apply(members, members["position"])
        self.next_number = saved["next"]
