"""Calendar events of systemd with the next instants that systemd itself gives.

    # Asks systemd-analyze again.
    .venv/bin/python -m tests.broker.rules.schedules.dialects.systemd

The stored instants are of systemd 252 (Debian 12), by `systemd-analyze calendar --iterations=4
--base-time='2026-12-31 23:59:59 UTC' EVENT`, with TZ=UTC. Machines without systemd use them, too.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

EVENTS: Final = Path(__file__).with_name("systemd.txt")
_INSTANT: Final = re.compile(r"(?:Next elapse|Iter\. #\d+|\(in UTC\)): \w+ (\S+) (\S+) (\w+)")


def ask(event: str) -> list[str]:
    """The next four instants in UTC, of systemd-analyze."""
    words = ["systemd-analyze", "calendar", "--iterations=4"]
    run = subprocess.run(
        [*words, "--base-time=2026-12-31 23:59:59 UTC", event],
        env={"PATH": "/usr/bin:/bin", "TZ": "UTC", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [f"{day}T{at}" for day, at, zone in _INSTANT.findall(run.stdout) if zone == "UTC"]
    return list(dict.fromkeys(found))


def read_events() -> list[tuple[str, list[str]]]:
    """(event, instants) of each line."""
    rows = [row.split(" | ") for row in EVENTS.read_text().splitlines()]
    return [(event.strip(), found.split()) for event, found in rows]


if __name__ == "__main__":
    events = [row.split(" | ")[0].strip() for row in EVENTS.read_text().splitlines()]
    EVENTS.write_text("".join(f"{event} | {' '.join(ask(event))}\n" for event in events))
