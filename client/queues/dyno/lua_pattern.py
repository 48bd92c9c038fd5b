"""Lua's patterns as regular expressions, for the calls of Dyno that take one.

The one rule: what matches is what Lua 5.1's `string.match` matches in the bytes of a text, whose
classes know ASCII only. `%b()` (balanced pairs) is no regular expression and is refused.
"""

from __future__ import annotations

import re
from typing import Final

_CLASSES: Final = {
    "a": "A-Za-z",
    "c": r"\x00-\x1f\x7f",
    "d": "0-9",
    "l": "a-z",
    "p": r"!-/:-@\[-`{-~",
    "s": r" \t-\r",
    "u": "A-Z",
    "w": "0-9A-Za-z",
    "x": "0-9A-Fa-f",
    "z": r"\x00",
}
_REPEATS: Final = {"*": "*", "+": "+", "-": "*?", "?": "?"}
_DIGITS: Final = frozenset("0123456789")
_CAPTURES_MAX: Final = 32


class LuaPattern:
    """A pattern to search texts with. ValueError for one that Lua would not take, or with `%b`."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        try:
            self._found = re.compile(_Translation(pattern).text, re.DOTALL).search
        except re.error as error:
            raise ValueError(f"the pattern {pattern!r} cannot be used: {error}") from error

    def matches(self, text: str) -> bool:
        """Whether it matches anywhere in the text."""
        return self._found(text.encode(errors="surrogateescape")) is not None


class _Translation:
    """One pass over a pattern, item by item, as Lua's matcher goes."""

    def __init__(self, pattern: str) -> None:
        # A byte is a character here, so that sets and dots take bytes as Lua's do.
        self._pattern = pattern.encode(errors="surrogateescape").decode("latin-1")
        self._shown = pattern
        self._at = 0
        self._captures = 0
        self._open: list[int] = []
        self.text = self._translate().encode("latin-1")

    def _translate(self) -> str:
        out = []
        if self._pattern.startswith("^"):
            out.append(r"\A")
            self._at = 1
        while self._at < len(self._pattern):
            out.append(self._item())
        if self._open:
            raise self._wrong("a capture is not closed")
        return "".join(out)

    def _item(self) -> str:
        here = self._pattern[self._at]
        if here == "(":
            return self._opened()
        if here == ")":
            if not self._open:
                raise self._wrong("a capture is closed that is not open")
            self._at += 1
            self._open.pop()
            return ")"
        if here == "$" and self._at + 1 == len(self._pattern):
            self._at += 1
            return r"\Z"
        if here == "%" and self._peek() == "b":
            raise self._wrong("%b is not offered")
        if here == "%" and self._peek() == "f":
            return self._frontier()
        if here == "%" and self._peek() in _DIGITS:
            return self._back_reference()
        return self._single() + self._repeat()

    def _opened(self) -> str:
        self._captures += 1
        if self._captures > _CAPTURES_MAX:
            raise self._wrong("it has too many captures")
        if self._peek() == ")":
            # The capture of a place.
            self._at += 2
            return "()"
        self._at += 1
        self._open.append(self._captures)
        return "("

    def _back_reference(self) -> str:
        number = int(self._peek())
        if not 1 <= number <= self._captures or number in self._open:
            raise self._wrong(f"%{number} is no closed capture")
        self._at += 2
        return f"(?:\\{number})"

    def _frontier(self) -> str:
        """A place between a byte outside of a set and one in it; both ends count as a zero byte."""
        self._at += 2
        if self._pattern[self._at : self._at + 1] != "[":
            raise self._wrong("a set is missing after %f")
        inside = self._set()
        if re.match(inside.encode("latin-1"), b"\0"):
            return rf"(?<=(?!{inside})[\x00-\xff])(?:(?={inside})|\Z)"
        return f"(?<!{inside})(?={inside})"

    def _repeat(self) -> str:
        here = self._pattern[self._at : self._at + 1]
        if here in _REPEATS and here:
            self._at += 1
            return _REPEATS[here]
        return ""

    def _single(self) -> str:
        here = self._pattern[self._at]
        if here == "[":
            return self._set()
        self._at += 1
        if here == ".":
            return "."
        if here != "%":
            return re.escape(here)
        escaped = self._next("it ends with %")
        members = _CLASSES.get(escaped.lower())
        if members is None:
            return re.escape(escaped)
        return f"[^{members}]" if escaped.isupper() else f"[{members}]"

    def _set(self) -> str:
        """`[...]` from its bracket; alternatives, since a class in a set may be a complement."""
        self._at += 1
        outside = self._pattern[self._at : self._at + 1] == "^"
        self._at += outside
        parts: list[str] = []
        first = True
        while first or self._pattern[self._at : self._at + 1] != "]":
            first = False
            here = self._next("a set is not closed")
            if here == "%":
                escaped = self._next("a set is not closed")
                members = _CLASSES.get(escaped.lower())
                if members is None:
                    parts.append(re.escape(escaped))
                else:
                    parts.append(f"[^{members}]" if escaped.isupper() else f"[{members}]")
                continue
            behind = self._pattern[self._at + 1 : self._at + 2]
            if self._pattern[self._at : self._at + 1] == "-" and behind not in ("", "]"):
                self._at += 2
                if here <= behind:
                    parts.append(f"[{re.escape(here)}-{re.escape(behind)}]")
                continue
            parts.append(re.escape(here))
        self._at += 1
        either = "|".join(parts) or "(?!)"
        return f"(?:(?!{either})[\\x00-\\xff])" if outside else f"(?:{either})"

    def _peek(self) -> str:
        return self._pattern[self._at + 1 : self._at + 2]

    def _next(self, missing: str) -> str:
        if self._at >= len(self._pattern):
            raise self._wrong(missing)
        self._at += 1
        return self._pattern[self._at - 1]

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"the pattern {self._shown!r} cannot be used: {what}")
