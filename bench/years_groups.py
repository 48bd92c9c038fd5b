"""Cancels and acks over a year, with four groups, under 1,024 descriptors.

First, messages in far hours are sent, rescheduled and cancelled. Then as many new ones are sent,
the clock steps over their year, and each group acks all of them: states in 8,760 hours, a column
a group.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
from broker_process import Brokers
from clients import ask
from control import TOPIC, timed_calls
from drain import drain
from sending import HOUR_MS, Timed, fill
from settings import Settings
from tables import Column, Table, mebibytes, microseconds, rate, whole
from workers import run_apart
from years import DESCRIPTORS, clock_behind, of_process, set_clock

HOURS: Final = 8_760
GROUPS: Final = ("default", "mail", "audit", "search")
_DAY_MS: Final = 24 * HOUR_MS
# The first group waits until 8,760 hours have got their folders, some 60 a second.
_GIVE_UP_S: Final = 1_800.0


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Send, reschedule and cancel; then let a year pass and ack in each group."""
    messages = settings.years_group_messages
    table = Table(
        f"years, groups: {rate(messages)} messages over a year, {len(GROUPS)} groups, "
        f"{DESCRIPTORS:,} descriptors",
        [
            Column("messages/s", "rate", rate),
            Column("server CPU us", "server_us", microseconds),
            Column("open files", "files", whole),
            Column("RSS MiB", "rss", mebibytes),
            Column("private MiB", "rss_anon", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    year_ms = HOURS * HOUR_MS
    with clock_behind(brokers, year_ms + 3 * _DAY_MS) as (broker, folder):

        def add(case: str, timed: Timed) -> None:
            figures, targets = of_process(broker)
            figures |= {"rate": timed.rate, "server_us": timed.server_us}
            table.add(case, figures, targets)

        for group in GROUPS[1:]:
            ask(broker.port, "PUT", f"/v1/topics/{TOPIC}/groups/{group}")
        calls: list[tuple[str, Timed]] = run_apart(
            timed_calls,
            broker.port,
            broker.process_id,
            messages=messages,
            by="refs",
            hours=HOURS,
        ).value
        for name, timed in calls:
            add(f"{name} by refs", timed)
        now_ms = int(time.time() * 1000)
        dues = np.random.default_rng(1).integers(now_ms - year_ms, now_ms, messages)
        run_apart(fill, broker.port, TOPIC, dues)
        broker.settle(limit_s=60.0)
        set_clock(broker, folder)
        for group in GROUPS:
            members: dict[str, Any] = {"group": group, "give_up_s": _GIVE_UP_S}
            add(
                f"receive + ack, group {group}",
                run_apart(drain, broker.port, broker.process_id, TOPIC, messages, **members).value,
            )
    return table
