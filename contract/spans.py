"""Durations in the words of errors: nobody sees that 316224000000 ms are ten years."""

from __future__ import annotations

from typing import Final

YEAR_MS: Final = 365.25 * 86_400_000
_UNITS: Final = (
    (YEAR_MS, "year"),
    (86_400_000, "day"),
    (3_600_000, "hour"),
    (60_000, "minute"),
    (1_000, "second"),
)


def in_words(ms: float) -> str:
    """The duration in its largest unit, such as `10 years` or `1.5 days`."""
    size_ms, unit = next((each for each in _UNITS if ms >= each[0]), (1, "millisecond"))
    count = f"{ms / size_ms:,.1f}".removesuffix(".0")
    return f"{count} {unit}{'' if count == '1' else 's'}"


def ms_in_words(ms: int) -> str:
    """The duration in milliseconds, as callers write it, and in words."""
    return f"{ms} ms ({in_words(ms)})"
