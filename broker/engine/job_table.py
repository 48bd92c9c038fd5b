"""The table of jobs: what frames say about each, and what a checkpoint keeps.

Nothing here acts on messages; see jobs.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from delaylog.broker.engine.job_filter import Filter

ENDED_KEPT: Final = 256
"""Ended jobs that can still be asked about: the newest."""
_PROGRESS: Final = ("hour", "index", "scanned", "matched", "done", "too_late", "state", "ended_ms")


@dataclass(slots=True)
class Job:
    """One job. Numbers are never used again."""

    number: int
    topic: int
    action: str
    """cancel, reschedule or replay."""
    filter: Filter
    rate: int | None
    """Messages a second at most."""
    deliver_at_ms: int | None
    """The new due time; a past one means when it is done."""
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
        return {"number": self.number} | {name: getattr(self, name) for name in _PROGRESS}

    def pack(self) -> dict[str, Any]:
        """All of it but its position, which is its frame's."""
        return self.progress() | {
            "topic": self.topic,
            "action": self.action,
            "filter": self.filter.members(),
            "rate": self.rate,
            "at": self.deliver_at_ms,
            "force": self.force,
            "begun": self.begun_ms,
        }


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
            job = self._unpack({**members, "position": position})
            self.by_number[number] = job
            self.next_number = max(self.next_number, number + 1)
        else:
            known = self.by_number.get(number)
            if known is None:
                return None
            job = known
        for name in _PROGRESS:
            setattr(job, name, members[name])
        ended = [job.number for job in self.by_number.values() if not job.running]
        for old in ended[:-ENDED_KEPT]:
            del self.by_number[old]
        return job

    @staticmethod
    def _unpack(members: dict[str, Any]) -> Job:
        return Job(
            number=members["number"],
            topic=members["topic"],
            action=members["action"],
            filter=Filter.of_members(members["filter"]),
            rate=members["rate"],
            deliver_at_ms=members["at"],
            force=members["force"],
            begun_ms=members["begun"],
            position=members["position"],
        )

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint."""
        jobs = [job.pack() | {"position": job.position} for job in self.by_number.values()]
        return {"next": self.next_number, "jobs": jobs}

    def restore(self, saved: dict[str, Any]) -> None:
        """Of a checkpoint."""
        for members in saved["jobs"]:
            self.apply(members, members["position"])
        self.next_number = saved["next"]
