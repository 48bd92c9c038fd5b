"""`delaylog check`: reads files, checks them, prints the report, and returns an exit code.

Exit codes: 0 = the history holds, 1 = a rule was broken, 2 = the history cannot be read or an
option is wrong. The report goes to standard output, the reason for a 2 to standard error.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import orjson

from delaylog.broker.history.checker import HistoryChecker
from delaylog.broker.history.events import TooManyGroups
from delaylog.broker.history.model import HistoryError, read_items
from delaylog.broker.history.recorder import open_history
from delaylog.broker.history.report import (
    BOUND_MS,
    RULES,
    CheckReport,
    CheckSettings,
    report_json,
    report_text,
)
from delaylog.broker.history.schedules import Instants

HOLDS, VIOLATED, UNREADABLE = 0, 1, 2
_LINES_A_REPORT = 1_000
Progress = Callable[[str, int], None]
"""Called with the file being read and the number of lines read of all files."""
_SILENT: Final[AbstractContextManager[Progress]] = nullcontext(lambda what, done: None)


def check_files(
    paths: Iterable[str | Path],
    settings: CheckSettings | None = None,
    *,
    instants: Instants | None = None,
    progress: Progress = lambda what, done: None,
) -> CheckReport:
    """Check one history in any number of files. Raises HistoryError, ValueError or OSError.

    `instants` computes the instants of a timing, for histories with schedules.
    """
    checker = HistoryChecker(settings, instants=instants)
    done = 0

    def counted(lines: Iterable[bytes], path: str) -> Iterator[bytes]:
        nonlocal done
        for line in lines:
            done += 1
            if done % _LINES_A_REPORT == 0:
                progress(path, done)
            yield line

    for path in paths:
        with open_history(path) as lines:
            checker.extend(read_items(counted(lines, str(path)), file=str(path)))
    return checker.finish()


def run_check(
    paths: Sequence[str | Path],
    *,
    bound_ms: int = BOUND_MS,
    as_json: bool = False,
    rules: Iterable[str] = RULES,
    instants: Instants | None = None,
    progress: AbstractContextManager[Progress] = _SILENT,
) -> int:
    """Check, print the report, and return the exit code.

    `progress` is left before anything is printed, so that a bar is gone by then.
    """
    try:
        settings = CheckSettings(bound_ms=bound_ms, rules=frozenset(rules))
        with progress as shown:
            report = check_files(paths, settings, instants=instants, progress=shown)
    except (HistoryError, TooManyGroups, ValueError, EOFError, OSError) as error:
        if as_json:
            members = {"error": {"code": "unreadable", "message": str(error)}}
            print(orjson.dumps(members).decode(), file=sys.stderr)
        else:
            print(f"delaylog check: {error}", file=sys.stderr)
        return UNREADABLE
    if as_json:
        sys.stdout.write(report_json(report).decode())
    else:
        sys.stdout.write(report_text(report))
    return HOLDS if report.holds else VIOLATED
