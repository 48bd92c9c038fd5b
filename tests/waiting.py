"""Waiting for what other threads, processes or tasks bring about, up to a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

Found = TypeVar("Found")
PATIENCE_S: Final = 60.0
"""After this time what is awaited does not come. No promise of a test is told by it: a busy machine
may stand still for many seconds."""


def await_that(
    look: Callable[[], Found],
    why: Callable[[], Any] = lambda: "it never came",
    *,
    seconds: float = PATIENCE_S,
    pause_s: float = 0.01,
) -> Found:
    """Return what `look` finds once it finds something; `why` explains the failure."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, why()
        time.sleep(pause_s)
    return found


async def until(look: Callable[[], Any], *, seconds: float = PATIENCE_S) -> None:
    """Return once `look` finds something; the event loop goes on meanwhile."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.002)
