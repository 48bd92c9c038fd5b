"""The generated parts of the pages, each made from the table that the code works by.

Run this file to write them into the pages; test_generated.py fails while one is out of date. A part
is between a comment with its name and `<!-- to here -->`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Final

from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.settings import OPTIONS
from delaylog.broker.host.watch.metrics_table import SECTIONS
from delaylog.broker.streams.live import DOC, LIVE
from delaylog.broker.web.openapi import PAGES
from delaylog.contract.calls.table import ALL
from delaylog.contract.error_codes import CODES
from tests.broker.resp.commands_table import listed
from tests.docs.job_systems_list import listing

DOCS: Final = Path(__file__).parents[2] / "docs"
BEGIN: Final = "<!-- made by tests/docs/generated.py: {} -->"
END: Final = "<!-- to here -->"
WIDTH: Final = 120
_UNITS: Final = {"days": 86_400_000}
_SIZES: Final = (("GiB", 30), ("MiB", 20), ("KiB", 10))


def calls() -> str:
    """Every path: its methods with their rights, the sentences of its first call and of POST."""
    ordered = sorted(ALL, key=lambda call: "/target" in call.path or "/schedules" in call.path)
    rights: dict[str, dict[str, list[str]]] = {}
    texts: dict[str, str] = {}
    for call in ordered:
        rights.setdefault(call.path, {}).setdefault(call.right, []).append(call.method)
        if call.path not in texts:
            texts[call.path] = call.doc.removesuffix(".")
        elif call.method == "POST":
            texts[call.path] += f"; POST: {call.doc.removesuffix('.')}"
    for path, (_, right, text, _) in PAGES.items():
        rights[path], texts[path] = {right or "none": ["GET"]}, text
    rights[LIVE], texts[LIVE] = {"any": ["GET"]}, DOC
    rows = []
    for path, methods in rights.items():
        shown = "; ".join(f"{'/'.join(names)} {right}" for right, names in methods.items())
        rows.append(f"`{path}` ({shown}): {texts[path]}")
    return _items(rows)


def errors() -> str:
    """Every code of a refusal by its status."""
    texts = [f"`{code.code}` {code.status}" for code in CODES.values()]
    return textwrap.fill(", ".join(texts) + ".", WIDTH)


def limits() -> str:
    """Every limit that can be set, with its default."""
    (kind,) = ast.parse(inspect.getsource(Limits)).body
    assert isinstance(kind, ast.ClassDef)
    texts = {}
    for name, text in zip(kind.body, kind.body[1:], strict=False):
        if isinstance(name, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(name.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            texts[name.target.id] = " ".join(str(text.value.value).split())
    names = [field.name for field in fields(Limits)]
    return _items(f"`{name}` ({_shown(name)}): {texts[name]}" for name in names)


def _shown(name: str) -> str:
    """The default of a limit."""
    value = getattr(Limits(), name)
    if name.endswith("_ms"):
        return f"{value // _UNITS['days']:,} days"
    if "bytes" in name:
        unit, shift = next(size for size in _SIZES if value >> size[1])
        return f"{value >> shift} {unit}"
    return f"{value:,}"


def metrics() -> str:
    """Every metric, as it is written in a query, by section."""
    lines = []
    for title, section in SECTIONS.items():
        rows = []
        for row in section:
            labels = f"{{{','.join(row.labels)}}}" if row.labels else ""
            kind = " (histogram)" if row.kind == "histogram" else ""
            rows.append(f"`{row.name}{labels}`{kind}: {row.text}")
        lines += [f"## {title}", "", _items(rows), ""]
    return "\n".join(lines).strip()


def options() -> str:
    """Every setting of `delaylog serve`, with its default."""
    return _items(
        f"`--{option.name}`{f' (`{option.default}`)' if option.default else ''}: {option.help}"
        for option in OPTIONS
    )


def _items(rows: Iterable[str]) -> str:
    return "\n".join(
        textwrap.fill(
            f"- {row.removesuffix('.')}",
            WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )
        for row in rows
    )


PARTS: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "calls": ("HTTP.md", calls),
    "errors": ("HTTP.md", errors),
    "limits": ("LIMITS.md", limits),
    "metrics": ("METRICS.md", metrics),
    "options": ("OPERATIONS.md", options),
    "redis commands": ("REDIS.md", listed),
    "job systems": ("job-systems/redis-endpoint.md", listing),
}
"""Name of a part, its page, and what makes it."""


def put_in(document: str, name: str) -> str:
    """The page with a part as it is now."""
    begin = BEGIN.format(name)
    head, _, rest = document.partition(begin)
    assert rest, f"the page has no place for {name}"
    return f"{head}{begin}\n\n{PARTS[name][1]()}\n\n{END}{rest.partition(END)[2]}"


def part(name: str) -> str:
    """A part as its page has it."""
    page = (DOCS / PARTS[name][0]).read_text()
    found = re.search(f"{re.escape(BEGIN.format(name))}(.*?){END}", page, re.DOTALL)
    assert found, name
    return found[1]


if __name__ == "__main__":
    for name, (page, _) in PARTS.items():
        path = DOCS / page
        path.write_text(put_in(path.read_text(), name))
