"""Answers requests for the files of the dashboard, with the headers that protect it.

The files hold no data and need no right: the page gets all data by calls of the API, with the
rights of its user. The policy lets the page load from, and talk to, its own origin only, so a
message body that contains markup can do nothing.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from delaylog.broker.calls.answers import Answer, Problem, problem_answer

UI: Final = "/ui/"
PAGE: Final = Path(__file__).parent / "page"
INDEX: Final = "index.html"
KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Media types by suffix; files with another suffix are not served."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # A browser asks each time, and mostly gets a 304 without a body.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


class _File(NamedTuple):
    kind: str
    plain: bytes
    packed: bytes
    tag: str


def answer_of(method: str, path: str, headers: Mapping[str, str]) -> Answer | None:
    """The answer to a request for the dashboard; None if it asks for something else.

    `path` has no query. A browser, which accepts HTML, is redirected from the root.
    """
    if path == "/" and method == "GET" and "text/html" in headers.get("Accept", ""):
        return _redirect()
    if path == UI[:-1]:
        return _redirect()
    if not path.startswith(UI):
        return None
    if method not in ("GET", "HEAD"):
        refusal = Problem("method", f"{method} is not offered here; use GET", allow="GET, HEAD")
        return problem_answer(refusal)
    found = _load(path.removeprefix(UI) or INDEX)
    if found is None:
        return problem_answer(Problem("unknown", f"there is nothing at {path[:200]}"))
    sent = {**HEADERS, "ETag": found.tag}
    known = [tag.strip().removeprefix("W/") for tag in headers.get("If-None-Match", "").split(",")]
    if found.tag in known or known == ["*"]:
        return Answer(b"", found.kind, 304, sent)
    if "gzip" in headers.get("Accept-Encoding", ""):
        return Answer(found.packed, found.kind, 200, {**sent, "Content-Encoding": "gzip"})
    return Answer(found.plain, found.kind, 200, sent)


def _redirect() -> Answer:
    return Answer(b"", KINDS[".html"], 303, {"Location": UI, "Vary": "Accept"})


@lru_cache(1)
def names() -> frozenset[str]:
    """The names of all files, relative to the page."""
    found = (path for path in PAGE.rglob("*") if path.suffix in KINDS)
    return frozenset(path.relative_to(PAGE).as_posix() for path in found)


@lru_cache(128)
def _load(name: str) -> _File | None:
    """One file, compressed when it is first asked for: the largest takes 3 ms."""
    if name not in names():
        return None
    path = PAGE / name
    plain = path.read_bytes()
    digest = sha256(plain).hexdigest()[:32]
    return _File(KINDS[path.suffix], plain, gzip.compress(plain, mtime=0), f'"{digest}"')
