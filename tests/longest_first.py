"""In which order the files of tests are handed out: those that take longest first.

Workers take a file at a time (`--dist loadfile`, since the tests of a file share a broker). A long
file among the last leaves every other worker idle until it is done. `durations.json` has the
seconds of each file, recorded by `make durations`; a file that is not in it takes no time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = Path(__file__).with_name("durations.json")
LEAST_S: Final = 2
"""Files that take less are not recorded: their order decides nothing."""

_SECONDS: Final[dict[str, int]] = json.loads(RECORD.read_text())


def seconds_of(test_id: str) -> int:
    """Seconds that all tests of this test's file took together when they were recorded."""
    return _SECONDS.get(test_id.partition("::")[0], 0)


def record(measured: Mapping[str, float]) -> None:
    """Replace what is recorded of these files; files that are gone are forgotten."""
    merged = _SECONDS | {path: round(seconds) for path, seconds in measured.items()}
    kept = {path: s for path, s in merged.items() if s >= LEAST_S and (ROOT / path).exists()}
    lines = sorted(kept.items(), key=lambda item: (-item[1], item[0]))
    RECORD.write_text(json.dumps(dict(lines), indent=1) + "\n")
