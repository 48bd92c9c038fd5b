"""The progress of long work, on standard error.

It is a bar on a terminal, elsewhere a plain line every few seconds, as logs need it, and nothing
with `--json`. Work that takes less than these seconds prints no line.
"""

from __future__ import annotations

import os
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
        if not quiet and self._stream.isatty():
            from tqdm import tqdm

            # tqdm's monitoring thread would only help bars that are rarely updated.
            tqdm.monitor_interval = 0
            # Terminals of containers and scripts may not know their size.
            sized = os.get_terminal_size(self._stream.fileno()).columns > 0
            self._bar = tqdm(
                desc=label,
                unit=unit,
                unit_scale=True,
                unit_divisor=1000,
                file=self._stream,
                leave=False,
                ncols=None if sized else 80,
                nrows=None if sized else 24,
                dynamic_ncols=sized,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        """Show that `done` of `total` (None: unknown) is done, and `what` is in work."""
        if self._bar is not None:
            self._bar.total = total
            self._bar.set_postfix_str(what, refresh=False)
            self._bar.update(done - self._bar.n)
        elif not self._quiet and time.monotonic() - self._said >= self._line_seconds:
            self._said = time.monotonic()
            print(self._line(what, done, total), file=self._stream, flush=True)

    def _line(self, what: str, done: int, total: int | None) -> str:
        line = f"delaylog: {self._label}: {scaled(done, self._unit)}"
        if total:
            line += f" of {scaled(total, self._unit)} ({done / total:.0%})"
        return f"{line}, at {what}" if what else line


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
