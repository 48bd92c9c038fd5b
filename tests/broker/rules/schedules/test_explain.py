"""Timings in English: one text for each form and each rule about clock changes."""

from __future__ import annotations

import pytest

from delaylog.broker.rules.schedules.explain import explain
from delaylog.broker.rules.schedules.timing import check_timing
from tests.broker.rules.schedules.test_instants import zones_without

BERLIN = {"zone": "Europe/Berlin"}
AT = {"start_ms": 1_798_707_600_000}
"""2026-12-31 09:00 UTC, a Thursday; 10:00 in Berlin."""
ELAPSED = (
    "When the clocks change, it follows elapsed time: it fires in both passes of a repeated hour, "
    "and not for a skipped one."
)
SINCE = "Not before 2026-12-31 09:00:00 UTC."
RIGHT_AFTER = "A time that the clocks skip fires right after the change; "
SHIFTED = "A time that the clocks skip fires later by the time that is skipped; "
NOT = "A time that the clocks skip does not fire; "
FIRST = "a time that they repeat fires at its first pass."
SECOND = "a time that they repeat fires at its second pass."
BOTH = "a time that they repeat fires at both passes."


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"cron": "0 9 * * 1-5"}, "At 09:00 on Monday through Friday, UTC time."),
        ({"cron": "30 2 * * *", **BERLIN}, f"At 02:30 every day, Europe/Berlin time. {RIGHT_AFTER}{FIRST}"),
        (
            {"cron": "30 2 * * *", "gap": "skip", "fold": "second", **BERLIN},
            f"At 02:30 every day, Europe/Berlin time. {NOT}{SECOND}",
        ),
        (
            {"cron": "15 30 2 * * *", "fold": "both", **BERLIN},
            f"At 02:30:15 every day, Europe/Berlin time. {RIGHT_AFTER}{BOTH}",
        ),
        ({"cron": "*/5 * * * *", **BERLIN}, f"Every 5 minutes, Europe/Berlin time. {ELAPSED}"),
        ({"cron": "*/2 * * * * *"}, "Every 2 seconds, UTC time."),
        ({"cron": "*/7 * * * *"}, "Every seventh minute of every hour, UTC time."),
        ({"cron": "*/2 9-17 * * *"}, "Every 2nd minute from 09:00 through 17:59, UTC time."),
        ({"cron": "0 0 13 * 5"}, "At 00:00 on the 13th day of month or on Friday, UTC time."),
        ({"cron": "0 0 13 * */5"}, "At 00:00 on the 13th day of month if it's on every fifth day of week, UTC time."),
        ({"cron": "20 */20 * * * *", "zone": "Etc/GMT-1"}, "At second 20 every 20th minute past every hour, Etc/GMT-1 time."),
        ({"interval_ms": 1_500, **AT}, f"Every 1 second and 500 milliseconds, by elapsed time. {SINCE}"),
        ({"interval_ms": 3_600_000, **AT}, f"Every hour, by elapsed time. {SINCE}"),
        ({"interval_ms": 7_200_000, **AT}, f"Every 2 hours, by elapsed time. {SINCE}"),
        (
            {"rrule": "FREQ=WEEKLY;INTERVAL=2", **AT, **BERLIN},
            f"Every 2 weeks on Thursday at 10:00, Europe/Berlin time. {SHIFTED}{FIRST} {SINCE}",
        ),
        ({"rrule": "FREQ=YEARLY", **AT}, f"Every year on the 31st day of the month in December at 09:00, UTC time. {SINCE}"),
        (
            {"rrule": "FREQ=MONTHLY;BYDAY=-1FR,2MO;BYHOUR=9,17", **AT},
            f"Every month on the 2nd Monday and the last Friday at 09:00 and 17:00, UTC time. {SINCE}",
        ),
        (
            {"rrule": "FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", **AT},
            f"Every month on Friday if it is on the 13th day of the month at 09:00, UTC time. {SINCE}",
        ),
        (
            {"rrule": "FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1;BYSECOND=5", **AT},
            f"Every month on Monday and Tuesday at 09:00:05 (of these, the last of the month), UTC time. {SINCE}",
        ),
        (
            {"rrule": "FREQ=DAILY;BYMONTH=1;BYMINUTE=" + ",".join(map(str, range(15))), **AT},
            "Every day in January at 09:00, 09:01, 09:02, 09:03, 09:04, 09:05, 09:06, 09:07, 09:08, "
            f"09:09, 09:10 and 09:11 and 3 more times, UTC time. {SINCE}",
        ),
        (
            {"cron": "0 9 * * *", "end_ms": 1_798_707_600_001, "count": 1},
            "At 09:00 every day, UTC time. Before 2026-12-31 09:00:00.001 UTC. Once only.",
        ),
        (
            {"rrule": "FREQ=DAILY;COUNT=3", **AT},
            f"Every day at 09:00, UTC time. Only the first 3 from its start. {SINCE}",
        ),
        (
            {"rrule": "RRULE:FREQ=DAILY;UNTIL=20270201\nEXDATE:20270102T090000", **AT},
            "Every day at 09:00, UTC time. Up to 2027-02-01, which is included. Not "
            f"20270102T090000. {SINCE}",
        ),
        (
            {"rrule": "FREQ=MINUTELY;INTERVAL=5;BYHOUR=9,10;BYDAY=MO;BYSECOND=30", **AT},
            "Every 5 minutes on Monday in hours 9 and 10 at second 30 counted from 2026-12-31 "
            f"09:00:00, UTC time. {SINCE}",
        ),
        (
            {"rrule": "FREQ=YEARLY;BYYEARDAY=100", **AT},
            f"Every year on the 100th day of the year at 09:00, UTC time. {SINCE}",
        ),
        (
            {"cron": "0 9 LW,15W * *"},
            "At 09:00 on the last weekday and the weekday nearest to day 15 of every month, UTC "
            "time.",
        ),
        (
            {"cron": "0 9 L-3,15W * *"},
            "At 09:00 on day 3 before the last and the weekday nearest to day 15 of every month, "
            "UTC time.",
        ),
        ({"cron": "0 9 * * *", "count": 1_000}, "At 09:00 every day, UTC time. 1,000 times at most."),
    ],
)  # fmt: skip
def test_a_timing_in_english(members: dict[str, object], text: str) -> None:
    """The whole text."""
    assert explain(check_timing(members)) == text


def test_a_zone_that_the_release_lacks_is_named() -> None:
    """The schedule was put where there was one; an interval has no zone."""
    zones = zones_without("Europe/Berlin")
    for form in ({"cron": "0 9 * * *"}, {"rrule": "FREQ=DAILY", "start_ms": 0}):
        text = explain(check_timing({**form, "zone": "Europe/Berlin"}), zones)
        assert text.startswith("tzdata 2099a of this broker has no zone 'Europe/Berlin': ")
        assert text.endswith("change the zone.")
    assert explain(check_timing({"interval_ms": 1_000, "start_ms": 0}), zones).startswith(
        "Every second"
    )
