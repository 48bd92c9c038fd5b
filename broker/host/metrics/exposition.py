"""Text of histograms, which are most of a scrape.

prometheus_client needs 110 us for one of them, since it makes and formats objects for each line;
two for each of 200 topics would take 45 ms of the interpreter at each scrape. A test compares this
text with its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from delaylog.broker.engine.watch.histogram import Example, Histogram
from delaylog.broker.host.metrics.table import METRICS

MS: Final = 0.001
"""Seconds of a millisecond."""
_LE: Final = "le="
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sampled(NamedTuple):
    """The histograms of one row of the table, which have the same bounds."""

    name: str
    samples: Iterable[tuple[Sequence[str], Histogram]]
    """The values of the row's labels, and the histogram."""
    unit: float = 1.0
    """Seconds of the histograms' unit."""


def histogram_text(sampled: Sampled, *, openmetrics: bool) -> bytes:
    """The lines of histograms, in seconds."""
    name, samples, unit = sampled
    row = METRICS[name]
    lines = [f"# HELP {name} {row.text}", f"# TYPE {name} histogram"]
    bounds: list[str] = []
    for values, histogram in samples:
        if not bounds:
            upper = [*(str(bound * unit) for bound in histogram.bounds), "+Inf"]
            bounds = [f'le="{bound}"' for bound in upper]
        # The library sorts labels by name, and so do we.
        labels = [
            f'{key}="{value.translate(_ESCAPES)}"'
            for key, value in sorted(zip(row.labels, values, strict=True))
        ]
        own = f"{{{','.join(labels)}}}" if labels else ""
        before = "".join(f"{label}," for label in labels if label < _LE)
        after = "".join(f",{label}" for label in labels if label > _LE)
        examples = histogram.examples if openmetrics else {}
        count = 0
        for at, count in enumerate(accumulate(histogram.counts)):
            example = _example_text(examples[at], unit) if at in examples else ""
            lines.append(f"{name}_bucket{{{before}{bounds[at]}{after}}} {count}.0{example}")
        lines.append(f"{name}_count{own} {count}.0")
        lines.append(f"{name}_sum{own} {histogram.sum * unit}")
    return "\n".join((*lines, "")).encode()


def _example_text(example: Example, unit: float) -> str:
    text = example.text.translate(_ESCAPES)
    return f' # {{{example.label}="{text}"}} {example.value * unit} {example.at_ms / 1000}'
