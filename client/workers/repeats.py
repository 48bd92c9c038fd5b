"""What `every` says of a task: when a schedule has it called."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from delaylog.client.calls.schedules import RuleKeywords, ScheduleKeywords
from delaylog.client.wire.checks import check_keywords


class Repeat(NamedTuple):
    """A schedule of a task."""

    said: ScheduleKeywords
    name: str | None
    """None: that of the task."""
    shard: str | None

    @classmethod
    def of(
        cls,
        when: str | timedelta,
        tz: str | ZoneInfo | None,
        name: str | None,
        shard: str | None,
        rules: RuleKeywords,
    ) -> Repeat:
        """From the arguments of `every`. TypeError and ValueError; the broker checks the rest."""
        check_keywords("every", rules, RuleKeywords)
        said: ScheduleKeywords
        if isinstance(when, str):
            said = {"cron": when, "zone": tz}
        elif not isinstance(when, timedelta):
            raise TypeError(
                "every takes a cron expression or a timedelta as an interval, not "
                f"{type(when).__name__}"
            )
        elif tz is not None:
            raise ValueError("an interval is elapsed time, which has no zone: leave tz out")
        else:
            said = {"interval": when}
        return cls({**said, **rules}, name, shard)
