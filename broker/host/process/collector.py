"""Python's cyclic garbage collector, told what a broker needs: no long pauses.

A full collection looks at every container there is, on the loop, while nobody is answered: with a
million keys that is the better part of a second, and while they were written it took as much time
as all the writing. Keys and messages form no cycles, so there is nothing to find among them.

So what was there at the start is never looked at again. Nor is what a full collection leaves, once
one takes too long: from then on each looks at what is new since the last. What that gives up is
small. A cycle that is in use during such a collection and ends later (a client's connection, say)
stays; everything without cycles goes at once as ever, frozen or not.
"""

from __future__ import annotations

import gc
from time import thread_time
from typing import Any, Final

PASS_SECONDS_MAX: Final = 0.02
"""A full collection that takes longer freezes what it leaves. It is time of the processor, so that
a busy machine does not look like a large heap."""
THRESHOLDS: Final = (2_000, 10, 2)
"""2,000 new containers are looked at in less than a millisecond. By 66,000 a full collection comes,
in place of Python's 77,000 and more: frozen often, none of them has much to look at."""

_FULL: Final = 2


class Collector:
    """Times full collections, and freezes what is too much for them."""

    def __init__(self) -> None:
        self._began = 0.0
        self.frozen = 0
        """How often what a collection left was frozen."""

    def prepare(self) -> None:
        """Collect nothing until `start`: what a start makes stays, and looking doubles its time."""
        gc.disable()

    def start(self) -> None:
        """What is there now stays, and is not looked at."""
        gc.set_threshold(*THRESHOLDS)
        gc.freeze()
        gc.callbacks.append(self._note)
        gc.enable()

    def stop(self) -> None:
        """Be told of no more collections."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began = thread_time()
        elif thread_time() - self._began > PASS_SECONDS_MAX:
            # It has just been found to be in use.
            gc.freeze()
            self.frozen += 1
