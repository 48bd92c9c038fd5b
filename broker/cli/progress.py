"""The progress of long work, on standard error.

It is a bar on a terminal, elsewhere a plain line every few seconds, as logs need it, and nothing
with `--json`. Work that takes less than these seconds prints no line.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final, Self, TextIO

LINE_SECONDS: Final = 5.0


class Progress:
    """Progress of one piece of work; a context that leaves the terminal clean."""

    def __init__(
        self,
        label: str,
        *,
        unit: str = "B",
        quiet: bool = False,
        stream: TextIO | None = None,
        line_seconds: float = LINE_SECONDS,
    ) -> None:
        self._label = label
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._line_seconds = line_seconds
        self._said = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        if not quiet and self._stream.isatty():
            self._bar = _bar(self._stream, unit)
            self._task = self._bar.add_task(label, total=None, what="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Show that `done` of `total` (None: unknown) is done, and `what` is in work."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, what=what)
        elif not self._quiet and time.monotonic() - self._said >= self._line_seconds:
            self._said = time.monotonic()
            print(self._line(what, done, total), file=self._stream, flush=True)

    def _line(self, what: str, done: int, total: int | None) -> str:
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

    counted = DownloadColumn() if unit == "B" else MofNCompleteColumn()
    text = TextColumn("{task.description}:", markup=False)
    what = TextColumn("{task.fields[what]}", markup=False)
    console = Console(file=stream, stderr=True)
    return Bar(
        *(text, BarColumn(), counted, TimeElapsedColumn(), what),
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
