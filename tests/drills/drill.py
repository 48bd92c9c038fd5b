"""One run of a drill as a program: its folder, the verdict on its history, and its page.

Each drill is a load under faults that writes a history. The checker of `delaylog check` is the
judge; what a client may not be told is added to `wrong`. The page ends with the seed. A run that
failed leaves its folder behind.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, ClassVar, Final

from delaylog.broker.history import CheckReport, CheckSettings, check_files, report_text

OPEN_STATES: Final = ("waiting", "ready", "leased")
LATE_S: Final = 0.3
"""What could still come once nothing is open, a second copy above all, comes within this time."""
SHOWN_MAX: Final = 20


def open_messages(counts: Mapping[str, int]) -> int:
    """How many messages of a topic have not ended, by its counts."""
    return sum(counts[state] for state in OPEN_STATES)


def counted(counts: Mapping[str, int]) -> str:
    """Counts by name, on one line."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"


class Drill(ABC):
    """A load over one folder, and what its history says."""

    rules: ClassVar[str]
    """The rules to check."""
    lease_ms: int | None = None
    """The length of a lease, if the history does not tell it."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.random = Random(options.seed)
        self.history = folder / "history.jsonl"
        self.counts: Counter[str] = Counter()
        """What calls came to."""
        self.wrong: list[str] = []
        """What may not happen, beside the rules of the checker."""

    @abstractmethod
    async def run(self) -> None:
        """All of it, to its end."""

    @abstractmethod
    def figures(self) -> Sequence[str]:
        """Lines about what was tried. A drill that tried nothing adds to `wrong`."""

    @abstractmethod
    def pace(self, took_s: float) -> str:
        """How much it was in so many seconds."""

    def check(self) -> CheckReport:
        """The verdict of the checker."""
        return check_files([self.history], self.settings())

    def settings(self) -> CheckSettings:
        """What the checker is told."""
        lease = {} if self.lease_ms is None else {"lease_ms": self.lease_ms}
        return CheckSettings(bound_ms=0, rules=frozenset(self.rules), **lease)

    def report(self) -> tuple[bool, str]:
        """Whether all held, and the page that says so."""
        checked = self.check()
        lines = [*self.figures(), report_text(checked)]
        if self.counts:
            lines.insert(-1, counted(self.counts))
        lines += [f"wrong: {text}" for text in self.wrong[:SHOWN_MAX]]
        if len(self.wrong) > SHOWN_MAX:
            lines.append(f"… and {len(self.wrong) - SHOWN_MAX} more")
        return checked.holds and not self.wrong, "\n".join(lines)

    def release(self, *, keep: bool) -> None:  # noqa: B027 (most drills have nothing to give back)
        """Give back what the folder does not hold. `keep` = the folder stays."""

    async def drain(
        self,
        take: Callable[[], Awaitable[Any]],
        count_open: Callable[[], Awaitable[int]],
        limit_s: float,
    ) -> None:
        """Take messages until nothing is open, and then what still comes."""
        deadline_s = time.monotonic() + limit_s
        left = 1
        while left:
            if time.monotonic() > deadline_s:
                self.wrong.append(f"{left} messages are still open after {limit_s:.0f} s")
                return
            left = 1 if await take() else await count_open()
        await asyncio.sleep(LATE_S)
        await take()


def run_drill(name: str, drill: Callable[[Path], Drill], options: argparse.Namespace) -> bool:
    """Run it, print its page, keep the folder of a run that failed; whether all held."""
    folder = Path(tempfile.mkdtemp(prefix=f"delaylog-{name}-"))
    made, holds = drill(folder), False
    try:
        begun = time.monotonic()
        asyncio.run(made.run())
        took_s = time.monotonic() - begun
        holds, page = made.report()
        print(page)
        print(f"seed {options.seed}: {made.pace(took_s)} in {took_s:.1f} s")
    finally:
        made.release(keep=options.keep or not holds)
        if holds and not options.keep:
            shutil.rmtree(folder)
        else:
            verdict = "kept" if holds else f"FAILED with seed {options.seed}"
            print(f"{verdict}: data, log and history are in {folder}", flush=True)
    return holds


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """The options of every drill; `text` is the docstring of its program."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    return parser


def run_main(
    name: str,
    drill: Callable[[Path, argparse.Namespace], Drill],
    parser: argparse.ArgumentParser,
) -> None:
    """Parse, run, and end with 0 if all held."""
    options = parser.parse_args()
    sys.exit(0 if run_drill(name, lambda folder: drill(folder, options), options) else 1)
