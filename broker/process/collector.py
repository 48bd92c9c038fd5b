"""Configures Python's cyclic garbage collector to avoid long pauses.

A full collection scans every container, on the loop, while no call is answered. With a million keys
that takes most of a second, and while those keys were written the collections took as much time as
all the writing. Keys and messages form no cycles, so a collection finds nothing among them.

So objects that exist at the start are frozen: never scanned again. Once a full collection takes too
long, the objects that survive it are frozen too, and later collections scan only newer objects. The
cost is small: a cycle that is in use during such a collection and becomes garbage later, for
example a client's connection, is never freed. Objects without cycles are freed at once as usual,
frozen or not. An engine can be replaced, so it has none; see `EngineState.inherit`.
"""

from __future__ import annotations

import gc
from time import thread_time
from typing import Any, Final

PASS_SECONDS_MAX: Final = 0.02
"""A full collection that takes longer freezes the surviving objects. This is processor time, so
that a busy machine does not look like a large heap."""
THRESHOLDS: Final = (2_000, 10, 2)
"""2,000 new containers are scanned in less than a millisecond. A full collection runs after 66,000,
where Python's defaults take 77,000 and more: with frequent freezing none of them scans much."""

_FULL: Final = 2


class Collector:
    """Measures full collections, and freezes the surviving objects when one takes too long."""

    def __init__(self) -> None:
        self._began = 0.0
        self.frozen = 0
        """Number of collections after which the surviving objects were frozen."""

    def prepare(self) -> None:
        """Disable collection until `start`: a recovery makes no garbage, and would take twice as
        long.
        """
        gc.disable()

    def start(self) -> None:
        """Freeze all present objects and enable collection."""
        gc.set_threshold(*THRESHOLDS)
        gc.freeze()
        gc.callbacks.append(self._note)
        gc.enable()

    def stop(self) -> None:
        """Stop measuring collections."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began = thread_time()
        elif thread_time() - self._began > PASS_SECONDS_MAX:
            # The surviving objects are in use, as this collection has just found.
            gc.freeze()
            self.frozen += 1
