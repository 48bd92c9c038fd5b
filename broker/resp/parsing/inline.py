"""Inline commands: one line of words, separated by blanks, some of them in quotes.

The rules are those of Redis 7.0.15. A vertical tab or a form feed counts as a blank only before a
word. A quote may open inside a word, and the word must end with the closing quote.
"""

from __future__ import annotations

import re
from typing import Final

# A line without these characters can be split by bytes.split.
_UNUSUAL: Final = re.compile(rb"[\"'\v\f]")

_BLANKS: Final = re.compile(rb"[ \t\n\v\f\r]*")
_PLAIN: Final = re.compile(rb"[^ \t\n\r\"']*")
# The possessive *+ never backtracks, so an escaped quote cannot close the word.
_DOUBLE: Final = re.compile(rb'"((?:\\.|[^"\\])*+)"', re.DOTALL)
_SINGLE: Final = re.compile(rb"'((?:\\'|[^'])*+)'")
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_line(line: bytes) -> list[bytes] | None:
    """Split a line into words; returns None if its quotes do not match."""
    if _UNUSUAL.search(line) is None:
        return line.split()
    words: list[bytes] = []
    at = _skip(_BLANKS, line, 0)
    while at < len(line):
        end = _skip(_PLAIN, line, at)
        word = line[at:end]
        if end < len(line) and line[end] in b"\"'":
            double = line[end] == ord('"')
            quoted = (_DOUBLE if double else _SINGLE).match(line, end)
            if quoted is None:
                return None
            word += _unescaped(quoted[1]) if double else quoted[1].replace(b"\\'", b"'")
            end = quoted.end()
        at = _skip(_BLANKS, line, end)
        if at == end < len(line):
            return None  # The closing quote is not at the end of its word.
        words.append(word)
    return words


def _skip(pattern: re.Pattern[bytes], line: bytes, at: int) -> int:
    match = pattern.match(line, at)
    assert match is not None, "the pattern also matches the empty string"
    return match.end()


def _unescaped(text: bytes) -> bytes:
    return _ESCAPE.sub(_meaning, text)


def _meaning(escape: re.Match[bytes]) -> bytes:
    if escape[1] is not None:
        return bytes.fromhex(escape[1].decode())
    return _LETTERS.get(escape[2], escape[2])
