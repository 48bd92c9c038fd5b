"""SDK.md names each keyword of schedules and push targets, and each member has a keyword."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

from delaylog.client.calls import schedules, targets
from delaylog.client.calls.schedules import RangeKeywords, ScheduleKeywords, UpdateScheduleKeywords
from delaylog.client.calls.targets import TargetKeywords
from delaylog.contract.calls.schedules import BACKFILL, PUT_SCHEDULE
from delaylog.contract.calls.targets import UPDATE_TARGET

PAGE = (Path(__file__).resolve().parents[2] / "docs/SDK.md").read_text()
SECTION = PAGE.partition("#### Keywords of schedules and push targets\n")[2].partition("<!-- run")[
    0
]


def test_the_table_has_all_keywords_and_no_other() -> None:
    """From the declarations of the calls."""
    declared = {
        name
        for each in (ScheduleKeywords, UpdateScheduleKeywords, RangeKeywords, TargetKeywords)
        for name in each.__annotations__
    }
    for call in (schedules.backfill_schedule, targets.put_target, targets.update_target):
        declared |= signature(call).parameters.keys() - {"places", "topic", "group", "schedule"}
    rows = "\n".join(line for line in SECTION.splitlines() if line.startswith("| "))
    rows = rows.replace("`ZoneInfo`", "").replace("`update_target`", "")
    assert set(re.findall(r"`(\w+)`", rows)) == declared - {"said", "limits"}


def test_each_member_has_a_keyword() -> None:
    """A member of the table of fields that the SDK forgets fails here; durations lose `_ms`."""
    shapes = (
        (PUT_SCHEDULE, {*UpdateScheduleKeywords.__annotations__, "body_base64"}),
        (BACKFILL, {*RangeKeywords.__annotations__, "rate"}),
        (UPDATE_TARGET, {*TargetKeywords.__annotations__, "url", "push", "rotate"}),
    )
    for shape, keywords in shapes:
        renamed = {name: name.removesuffix("_ms") for name in shape.names - keywords}
        renamed["timeout_ms"] = "push_timeout"
        assert {renamed.get(name, name) for name in shape.names} <= keywords
