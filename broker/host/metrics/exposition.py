"""Text of the histograms of topics, which are most of a scrape.

prometheus_client needs 110 us for one of them, since it makes and formats objects for each line;
two for each of 200 topics would take 45 ms of the interpreter at each scrape. A test compares this
text with its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from delaylog.broker.engine.watch.histogram import Example, Histogram
from delaylog.broker.host.metrics.table import METRICS

UNIT: Final = 0.001
"""Seconds of a millisecond, the unit of lateness."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def histogram_text(
    name: str, samples: Iterable[tuple[Sequence[str], Histogram]], *, openmetrics: bool
) -> bytes:
    """The histogram `name`, in seconds, of histograms in milliseconds with the same bounds."""
    row = METRICS[name]
    lines = [f"# HELP {name} {row.text}", f"# TYPE {name} histogram"]
    starts: list[str] = []
    for labels, histogram in samples:
        if not starts:
            bounds = [str(bound * UNIT) for bound in histogram.bounds]
            starts = [f'{name}_bucket{{le="{bound}",' for bound in (*bounds, "+Inf")]
        # The library sorts labels by name, and so do we.
        named = sorted(zip(row.labels, labels, strict=True))
        own = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in named)
        examples = histogram.examples if openmetrics else {}
        count = 0
        for at, count in enumerate(accumulate(histogram.counts)):
            example = _example_text(examples[at]) if at in examples else ""
            lines.append(f"{starts[at]}{own}}} {count}.0{example}")
        lines.append(f"{name}_count{{{own}}} {count}.0")
        lines.append(f"{name}_sum{{{own}}} {histogram.sum * UNIT}")
    return "\n".join((*lines, "")).encode()


def _example_text(example: Example) -> str:
    text = example.text.translate(_ESCAPES)
    return f' # {{{example.label}="{text}"}} {example.value * UNIT} {example.at_ms / 1000}'
