"""What the next instant of a schedule costs: `python bench/schedule_instants.py`, seconds."""

from __future__ import annotations

import time
from typing import Any, Final

from delaylog.broker.rules.schedules import Timing, next_instant

START_MS: Final = 1_795_719_600_000
COUNT: Final = 300
BERLIN: Final = {"zone": "Europe/Berlin"}
RULE: Final = {**BERLIN, "start_ms": START_MS}
TIMINGS: Final[dict[str, dict[str, Any]]] = {
    "`interval_ms`": {"interval_ms": 1_000, "start_ms": START_MS},
    "`*/5 * * * *`": {"cron": "*/5 * * * *", **BERLIN},
    "`*/10 * * * * *`": {"cron": "*/10 * * * * *", **BERLIN},
    "`30 2 * * *`": {"cron": "30 2 * * *", **BERLIN},
    "`0 9 * * 1-5`": {"cron": "0 9 * * 1-5", "zone": "America/New_York"},
    "`15 59 23 * * 0`": {"cron": "15 59 23 * * 0", "zone": "Australia/Lord_Howe"},
    "`0 0 LW * *`": {"cron": "0 0 LW * *", **BERLIN},
    "`0 0 29 2 *`": {"cron": "0 0 29 2 *", **BERLIN},
    "`0 0 * 2 MON#5`": {"cron": "0 0 * 2 MON#5", **BERLIN},
    "`FREQ=DAILY;INTERVAL=3`": {"rrule": "FREQ=DAILY;INTERVAL=3", **RULE},
    "`FREQ=WEEKLY;BYDAY=MO,WE`": {"rrule": "FREQ=WEEKLY;BYDAY=MO,WE", **RULE},
    "`FREQ=MONTHLY;BYDAY=-1FR`": {"rrule": "FREQ=MONTHLY;BYDAY=-1FR", **RULE},
    "`FREQ=YEARLY;BYDAY=20MO`": {"rrule": "FREQ=YEARLY;BYDAY=20MO", **RULE},
}


def cost_us(timing: Timing) -> float:
    """Mean of one step, in microseconds; every step is a new instant."""
    at: int | None = START_MS
    begun, steps = time.perf_counter(), 0
    while at is not None and steps < COUNT:
        at = next_instant(timing, at)
        steps += 1
    return (time.perf_counter() - begun) / steps * 1e6


if __name__ == "__main__":
    print("| timing | µs |\n|---|---|")
    for name, members in TIMINGS.items():
        timing = Timing(**members)
        next_instant(timing, START_MS)
        print(f"| {name} | {cost_us(timing):.0f} |")
