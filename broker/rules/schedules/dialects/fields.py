"""The fields of a line: numbers, names, ranges and steps of a dialect, as terms of our cron.

A dialect differs from ours in the number of its Sunday, in ranges that wrap and in its special
terms. What it says is written out, so that a term means the same in both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_LAST_DAY: Final = re.compile(r"L(-[0-9]{1,2})?(W)?|([0-9]{1,2})W", re.ASCII)
_NTH: Final = re.compile(r"([A-Z0-9]+?)(L?)(#.*)?")


class RefusedError(ValueError):
    """A line says what has no exact equivalent here; the text says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a dialect."""

    name: str
    first: int
    last: int
    names: Sequence[str] = ()
    """Of the values, from `names_from` on."""
    names_from: int = 1
    special: frozenset[str] = frozenset()
    """Special terms: `L`, `L-n`, `LW`, `nW`, `L-nW` of days; `L`, `nL` and `n#k` of weekdays."""
    sunday: int | None = None
    """The number of Sunday, of a field of weekdays. With `last` 7 and `sunday` 0, 7 is one too."""

    def term_values(self, term: str) -> list[int]:
        """The values of one term, in its order; a range that goes backwards wraps."""
        body, slash, step_text = term.partition("/")
        step = self._whole(step_text, term) if slash else 1
        if step < 1:
            raise RefusedError(f"{self.name} {term!r} has no step of 1 or more")
        if body in ("*", "") and (body or slash):
            first, last = self.first, self._top
        else:
            start, dash, stop = body.partition("-")
            first = self._value(start, term)
            last = self._value(stop, term) if dash else (self._top if slash else first)
        if self.sunday == 0 and first == 7 and last != 7:
            if last == 0:
                raise RefusedError(f"{term} is Sunday alone or the whole week: write SUN or *")
            first = 0
        if first <= last:
            return list(range(first, last + 1, step))
        size = self._top - self.first + 1
        walk = [*range(first, self._top + 1), *range(self.first, last + 1)][::step]
        return [value for value in walk if value - self.first < size]

    @property
    def _top(self) -> int:
        # Of 0 to 7 both ends are Sunday.
        return 6 if self.sunday == 0 else self.last

    def _value(self, text: str, term: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.names_from
        value = self._whole(text, term)
        if not self.first <= value <= self.last:
            raise RefusedError(
                f"{self.name} must lie from {self.first} to {self.last}, not {text!r}"
            )
        return value

    def _whole(self, text: str, term: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
            raise RefusedError(f"{self.name} has no term {term!r}")
        return int(text)

    def ours(self, text: str) -> str:
        """The field in our terms. Raises RefusedError."""
        if text in ("*", "?"):
            return "*"
        terms = text.split(",")
        if self.sunday == 1 and len(terms) > 1:
            # The documents allow one, and Quartz takes the first day of such a list for it.
            for term in terms:
                if "#" in term or re.fullmatch(r"[1-7A-Z]*L", term):
                    raise RefusedError(
                        f"{term} must be the only day of the week: put a schedule for each"
                    )
        return ",".join(dict.fromkeys(self._term(term) for term in terms))

    def _term(self, term: str) -> str:
        if term == "":
            raise RefusedError(f"{self.name} has an empty term")
        found = self._special(term)
        if found is not None:
            return found
        if term == "*":
            return "*"
        values = self.term_values(term)
        if self.sunday is not None:
            return runs([self.weekday(value) for value in values], WEEKDAYS)
        body, slash, step = term.partition("/")
        if body in ("*", "") and len(values) > 1:
            return f"*/{step}"
        if slash and "-" not in body and len(values) > 2:
            return f"{values[0]}/{step}"
        return runs(values)

    def weekday(self, value: int) -> int:
        """Our number of a weekday, from 0 for Sunday."""
        assert self.sunday is not None
        return (value - self.sunday) % 7

    def _special(self, term: str) -> str | None:
        """A special term in ours, None if it is none."""
        if self.name == "day of month" and (match := _LAST_DAY.fullmatch(term)):
            back, weekday, near = match.groups()
            kind = "nW" if near else f"L{'-n' * bool(back)}{'W' * bool(weekday)}"
            self._need(kind, term)
            if near:
                near = str(self._value(near, term))
            elif back:
                count = int(back[1:])
                if count > 30:
                    raise RefusedError(f"{term} has at most 30 days before the last")
                back = f"-{count}" if count else ""
            return f"{near}W" if near else f"L{back or ''}{weekday or ''}"
        if self.sunday is None:
            return None
        if term == "L":
            self._need("L", term)
            return WEEKDAYS[self.weekday(self.last)]
        match = _NTH.fullmatch(term)
        if match is None or not (match[2] or match[3]):
            return None
        day, last, nth = match.groups()
        self._need("nL" if last else "n#k", term)
        number = self.weekday(self._value(day, term))
        if last and not nth:
            return f"{number}L"
        if last or nth[1:] not in ("1", "2", "3", "4", "5"):
            raise RefusedError(f"{self.name} has #1 to #5, not {nth}")
        return f"{WEEKDAYS[number]}{nth}"

    def _need(self, kind: str, term: str) -> None:
        if kind not in self.special:
            raise RefusedError(f"{self.name} has no {term!r} in this dialect")


def runs(values: Sequence[int], names: Sequence[str] = ()) -> str:
    """Values as a list of ranges, in their order."""
    out: list[str] = []
    at = 0
    while at < len(values):
        step = values[at + 1] - values[at] if at + 1 < len(values) else 0
        end = at + 1
        while step > 0 and end < len(values) and values[end] - values[end - 1] == step:
            end += 1
        count = end - at
        if step > 0 and (count > 2 or (count == 2 and step == 1)) and not (names and step > 1):
            first, last = (names[v] if names else str(v) for v in (values[at], values[end - 1]))
            out.append(f"{first}-{last}{f'/{step}' if step > 1 else ''}")
            at = end
        else:
            out.append(names[values[at]] if names else str(values[at]))
            at += 1
    return ",".join(out)


TIMES: Final = (Field("second", 0, 59), Field("minute", 0, 59), Field("hour", 0, 23))
DAY: Final = Field("day of month", 1, 31)
MONTH: Final = Field("month", 1, 12, MONTHS)
OUR_WEEKDAY: Final = Field("day of week", 0, 7, WEEKDAYS, 0, sunday=0)
"""As in ours, to read what `ours` has written."""
CRON_WEEKDAY: Final = replace(OUR_WEEKDAY, special=frozenset({"nL", "n#k"}))
JAVA_WEEKDAY: Final = Field(
    "day of week", 1, 7, WEEKDAYS, 1, special=frozenset({"L", "nL", "n#k"}), sunday=1
)
"""Of Quartz, and of AWS, which has taken it over."""
MONDAY_FIRST: Final = (*WEEKDAYS[1:], WEEKDAYS[0])
