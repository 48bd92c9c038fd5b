"""A page that is one HTML file: no scripts, and nothing that a browser has to fetch.

The style is also that of the charts of `svg`. What the page says comes from the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

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
