"""Background work in slices, as a core hands it to whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Generator

IoJob = Callable[[], None]
Work = Generator[IoJob | float | None, None, None]
"""Background work in slices: yields None to pause, seconds to wait, or a job for any thread."""
