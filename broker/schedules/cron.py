"""Cron expressions of five or six fields, on naive wall time.

cronsim parses and iterates. Its own handling of zones is not used: its rule for clock changes does
not exist for six fields, so `wall_clock.py` has the rule for both forms.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from delaylog.broker.schedules.wall_clock import EPOCH
from delaylog.storage.errors import MemberError


class Cron:
    """One parsed expression."""

    def __init__(self, text: str) -> None:
        try:
            self._walk = CronSim(text, EPOCH)
        except CronSimError as error:
            what = f"{text!r} is not valid: {str(error)[:1].lower()}{str(error)[1:]}"
            raise MemberError(f"cron {what}", field="cron", what=what) from None
        fields = text.split()
        self.elapsed = fields[-5].startswith("*") or fields[-4].startswith("*")
        """Wildcard minutes or hours: it follows elapsed time when the clocks change."""

    def next_wall(self, wall: datetime) -> datetime | None:
        """The first time after `wall`, or None if there is none in 50 years."""
        self._walk.dt = wall
        try:
            return next(self._walk)
        except StopIteration:
            return None

    def explain(self) -> str:
        """The expression in English."""
        return self._walk.explain()


@lru_cache(maxsize=4_096)
def parsed_cron(text: str) -> Cron:
    """The expression; schedules with equal ones share it. Raises MemberError that names `cron`."""
    return Cron(text)
