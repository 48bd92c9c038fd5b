"""A broker that tells what counting for metrics costs it.

    python bench/counted_broker.py FILE serve …

The first int64 of FILE is the time that the observing functions took so far, in ns. A call is
measured where it happens, with the arguments and caches that it has there: repeated with warm
caches it costs about half. The one rule: no system call around it, since that slows down the code
that comes next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from delaylog.broker.cli.main import main
from delaylog.broker.engine.watch.histogram import Histogram, Lateness
from delaylog.broker.host.watch.timings import Timings

OBSERVING: Final = (
    (Lateness, "note_handed_out"),
    (Timings, "note_request"),
    (Timings, "note_trace"),
    (Histogram, "note_late"),
    (Histogram, "note"),
)
INTERRUPTED_NS: Final = 500_000
"""Calls take microseconds: in one that takes longer the thread had to wait for a processor."""


class Meter:
    """Adds up what calls take; calls inside others are part of these."""

    def __init__(self, path: str) -> None:
        self._spent_ns = np.memmap(path, np.int64, "r+")
        self._inside = False

    def measured(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which is measured from now on."""

        def outer(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return call(*arguments, **named)
            self._inside = True
            # Two readings, since one takes time too.
            before_ns, begun_ns = perf_counter_ns(), perf_counter_ns()
            answer = call(*arguments, **named)
            took_ns = perf_counter_ns() - begun_ns - (begun_ns - before_ns)
            self._inside = False
            if took_ns < INTERRUPTED_NS:
                self._spent_ns[0] += took_ns
            return answer

        return outer


if __name__ == "__main__":
    meter = Meter(sys.argv.pop(1))
    for kind, name in OBSERVING:
        setattr(kind, name, meter.measured(getattr(kind, name)))
    sys.exit(main())
