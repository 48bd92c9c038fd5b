"""The progress of work that takes longer than a second, on standard error.

It is a bar on a terminal, elsewhere a plain line every few seconds, as logs need it, and nothing
with `--json`. A thread shows it, so it appears also while one step of the work lasts.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final, Self, TextIO

FIRST_SECONDS: Final = 1.0
LINE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.1
SECONDS: Final = "s"
"""The unit of work that has nothing to count except the time that it takes."""


class Progress:
    """Progress of one piece of work; a context that leaves the terminal clean."""

    def __init__(
        self,
        label: str,
        *,
        unit: str = "B",
        quiet: bool = False,
        stream: TextIO | None = None,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        self._label = label
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._first_seconds = first_seconds
        self._state: tuple[str, int, int | None] = ("", 0, None)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if not self._quiet:
            self._thread.join()

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Say that `done` of `total` (None: unknown) is done, and `what` is in work."""
        self._state = (what, done, total)

    def _show(self) -> None:
        if self._ended.wait(self._first_seconds):
            return
        # Nobody may read standard error any more.
        with suppress(OSError):
            if self._stream.isatty():
                self._show_bar()
            else:
                self._print_lines()

    def _show_bar(self) -> None:
        bar = _bar(self._stream, self._unit)
        task = bar.add_task(self._label, total=None, what="")
        with bar:
            while not self._ended.wait(_LOOK_SECONDS):
                what, done, total = self._state
                bar.update(task, completed=done, total=total, what=what)

    def _print_lines(self) -> None:
        said = ""
        while True:
            # Work that waits for its input says nothing new.
            if (line := self._line()) != said:
                print(said := line, file=self._stream, flush=True)
            if self._ended.wait(LINE_SECONDS):
                return

    def _line(self) -> str:
        what, done, total = self._state
        if self._unit == SECONDS:
            done = int(time.monotonic() - self._began)
        line = f"delaylog: {self._label}: {scaled(done, self._unit)}"
        if total:
            line += f" of {scaled(total, self._unit)} ({done / total:.0%})"
        return f"{line}, at {what}" if what else line


def _bar(stream: TextIO, unit: str) -> Any:
    """A bar that is wiped when it stops."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import (
        Progress as Bar,
    )

    counts: dict[str, Any] = {"B": [DownloadColumn()], SECONDS: []}
    counted = counts.get(unit, [MofNCompleteColumn()])
    text = TextColumn("{task.description}:", markup=False)
    what = TextColumn("{task.fields[what]}", markup=False)
    console = Console(file=stream, stderr=True)
    return Bar(
        *(text, BarColumn(), *counted, TimeElapsedColumn(), what),
        console=console,
        transient=True,
        # What a verb prints meanwhile belongs to standard output.
        redirect_stdout=False,
        redirect_stderr=False,
    )


def scaled(count: int, unit: str) -> str:
    """A count for people: bytes in powers of a thousand, anything else in full."""
    if unit != "B":
        return f"{count:,} {unit}"
    size = float(count)
    for prefix in ("", "k", "M", "G"):
        if size < 1000:
            return f"{size:.1f} {prefix}B" if prefix else f"{count} B"
        size /= 1000
    return f"{size:.1f} TB"
