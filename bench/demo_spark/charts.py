"""A page with line charts that is one HTML file: no scripts, and nothing that a browser fetches.

The style is also that of the charts, which are inline SVG. What the page says comes from the
caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from math import floor, log10
from typing import Final

WIDTH: Final = 900
HEIGHT: Final = 220
LEFT: Final = 64
RIGHT: Final = 20
TOP: Final = 8
BOTTOM: Final = 22
COLOURS: Final = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")
DASHES: Final = ("", "6 3", "2 2", "8 2 2 2")
"""Lines differ without colours too."""

Points = Sequence[tuple[float, float | None]]

_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1f2328;background:#fff}h1{font-size:1.5rem}h2{font-size:1.05rem;margin:1.6rem 0 .2rem}
svg{width:100%;height:auto}polyline{fill:none;stroke-width:1.5}.g{stroke:#8884}
text{font-size:11px;fill:currentColor}.y{text-anchor:end}.x{text-anchor:middle}
.legend span{margin-right:1.2rem}.k{width:24px;height:8px}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid #8884;vertical-align:top}
.n{text-align:right}@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}
"""


def document(title: str, parts: Iterable[str]) -> str:
    """The whole file: the title as a heading, then the parts, which are HTML."""
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>"
    )
    return "\n".join((head, *parts, "</html>"))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts, which are escaped."""
    head = "".join(f"<th>{escape(cell)}" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def line_chart(
    title: str, lines: Mapping[str, Points], unit: str, times: Sequence[tuple[float, str]]
) -> str:
    """A chart from zero up. A value of None interrupts a line. `times` = marks below, by x."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points if y is not None]
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    top = _round_up(max(ys, default=0.0))

    def at(x: float) -> float:
        return LEFT + (x - low) / ((high - low) or 1.0) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    for n in range(5):
        y = top * n / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(y):.1f}" y2="{up(y):.1f}" class="g"/>'
            f'<text x="{LEFT - 6}" y="{up(y) + 4:.1f}" class="y">{y:,.10g} {escape(unit)}</text>'
        )
    for x, text in times:
        parts.append(f'<text x="{at(x):.1f}" y="{HEIGHT - 6}" class="x">{escape(text)}</text>')
    for n, points in enumerate(lines.values()):
        style = f'stroke="{COLOURS[n]}" stroke-dasharray="{DASHES[n]}"'
        for known, run in groupby(points, key=lambda point: point[1] is not None):
            if known:
                path = " ".join(f"{at(x):.1f},{up(y or 0.0):.1f}" for x, y in run)
                # A single point would be no line.
                first, _, rest = path.partition(" ")
                parts.append(f'<polyline points="{path if rest else f"{first} {first}"}" {style}/>')
    parts.append("</svg>")
    legend = "".join(
        f'<span><svg class="k" viewBox="0 0 24 8"><polyline points="0,4 24,4" '
        f'stroke="{COLOURS[n]}" stroke-dasharray="{DASHES[n]}"/></svg> {escape(name)}</span>'
        for n, name in enumerate(lines)
    )
    return f"<h2>{escape(title)}</h2><p class=legend>{legend}</p>{''.join(parts)}"


def _round_up(value: float) -> float:
    """The next of 1, 2, 4 and 8 times a power of ten, at least 1."""
    if value <= 1:
        return 1.0
    power: float = 10.0 ** floor(log10(value))
    return next(power * n for n in (1, 2, 4, 8, 10) if value <= power * n)
