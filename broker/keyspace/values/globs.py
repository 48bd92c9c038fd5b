"""Converts glob patterns of Redis (KEYS, SCAN MATCH, PSUBSCRIBE) to regular expressions.

`*`, `?`, `[abc]`, `[^a-z]`, and a backslash before a literal character. An unclosed class extends
to the end of the pattern; a range may be written backwards. The empty name matches only the empty
pattern, not even `*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from delaylog.broker.keyspace.errors import CommandError

Match: TypeAlias = Callable[[bytes], object]
_STAR, _ANY, _OPEN, _CLOSE, _BACKSLASH, _NOT, _RANGE = b"*?[]\\^-"
_NEVER: Final = rb"(?!)"
PATTERN_BYTES_MAX: Final = 1_024
"""Compiling a matcher for this length takes about 20 ms of the loop. Redis has no limit."""
_CACHED_BYTES_MAX: Final = 128
"""Matchers of longer patterns are not cached, so the cache takes about 10 MiB at most."""


def check_pattern(pattern: bytes) -> None:
    """Raise CommandError if a pattern is too long."""
    if len(pattern) > PATTERN_BYTES_MAX:
        raise CommandError(b"ERR a pattern may have %d bytes at most" % PATTERN_BYTES_MAX)


def matcher(pattern: bytes, *, ignore_case: bool = False) -> Match:
    """Return a predicate for names that match. Raises CommandError if the pattern is too long."""
    check_pattern(pattern)
    make = _matcher if len(pattern) <= _CACHED_BYTES_MAX else _matcher.__wrapped__
    return make(pattern, ignore_case=ignore_case)


@lru_cache(maxsize=1_024)
def _matcher(pattern: bytes, *, ignore_case: bool = False) -> Match:
    if not pattern:
        return _is_empty
    if not pattern.strip(b"*"):
        return len
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    return re.compile(rb"(?!\Z)(?:%b)" % _translate(pattern), flags).fullmatch


def _is_empty(name: bytes) -> bool:
    return not name


def _translate(pattern: bytes) -> bytes:
    parts: list[bytes] = []
    at, end = 0, len(pattern)
    while at < end:
        char = pattern[at]
        if char == _STAR:
            while at + 1 < end and pattern[at + 1] == _STAR:
                at += 1
            # Adjacent stars are one star.
            parts.append(b"*")
        elif char == _ANY:
            parts.append(b".")
        elif char == _OPEN:
            text, at = _class(pattern, at + 1)
            parts.append(text)
        else:
            if char == _BACKSLASH and at + 1 < end:
                at += 1
            parts.append(re.escape(pattern[at : at + 1]))
        at += 1
    return _join(parts)


def _join(parts: list[bytes]) -> bytes:
    """Join atoms. Each star but the last takes the shortest match and never backtracks, so that a
    pattern with many stars stays fast.
    """
    runs: list[list[bytes]] = [[]]
    for part in parts:
        if part == b"*":
            runs.append([])
        else:
            runs[-1].append(part)
    if len(runs) == 1:
        return b"".join(runs[0])
    first, *middle, last = (b"".join(run) for run in runs)
    return first + b"".join(b"(?>.*?%b)" % run for run in middle if run) + b".*" + last


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Translate the class whose content begins at `at`; returns it, and the index of its end."""
    end = len(pattern)
    negated = at < end and pattern[at] == _NOT
    if negated:
        at += 1
    chars: list[bytes] = []
    while at < end:
        char = pattern[at]
        if char == _BACKSLASH and at + 1 < end:
            at += 1
            chars.append(re.escape(pattern[at : at + 1]))
        elif char == _CLOSE:
            break
        elif at + 2 < end and pattern[at + 1] == _RANGE:
            low, high = sorted((char, pattern[at + 2]))
            chars.append(re.escape(bytes((low,))) + b"-" + re.escape(bytes((high,))))
            at += 2
        else:
            chars.append(re.escape(bytes((char,))))
        at += 1
    if not chars:
        return (b"." if negated else _NEVER), min(at, end)
    return b"[%b%b]" % (b"^" if negated else b"", b"".join(chars)), at
