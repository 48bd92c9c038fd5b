"""The bounds of ranges of scores over sorted sets: `1.5`, `(1.5`, `+inf`."""

from __future__ import annotations

from math import inf, nextafter
from typing import Final, TypeAlias

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.values.number_texts import to_bound
from delaylog.broker.keyspace.values.score_order import Rank, ScoreOrder

_NO_SCORE: Final = b"ERR min or max is not a float"

ScoreRange: TypeAlias = tuple[float | None, float | None]
"""The least score in the range and the least score above it; None = above all scores."""


def to_score_range(low: bytes, high: bytes) -> ScoreRange:
    """Parse a range of scores. Raises CommandError."""
    return _first_score(low, upper=False), _first_score(high, upper=True)


def _first_score(text: bytes, *, upper: bool) -> float | None:
    exclusive = text[:1] == b"("
    score = to_bound(text[1:] if exclusive else text)
    if score is None:
        raise CommandError(_NO_SCORE)
    if exclusive is upper:
        return score
    return None if score == inf else nextafter(score, inf)


def score_ranks(order: ScoreOrder, span: ScoreRange) -> tuple[Rank, Rank]:
    """Convert a range of scores to ranks [start, stop)."""
    low, high = span
    start = 0 if low == -inf else order.end if low is None else order.find(low)
    return start, order.end if high is None else order.find(high)
