"""The bounds of ranges over sorted sets: scores (`(1.5`, `+inf`), members (`[a`, `(b`, `-`, `+`).

A range of members is defined only if all scores are equal. If they differ, the result is that of
Redis for a small set: a scan from the end at which the range begins, up to the first entry outside.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Final, TypeAlias

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.values.number_texts import to_bound
from delaylog.broker.keyspace.values.score_order import Entry, Rank, ScoreOrder

_NO_SCORE: Final = b"ERR min or max is not a float"
_NO_MEMBER: Final = b"ERR min or max not valid string range item"

ScoreRange: TypeAlias = tuple[float | None, float | None]
"""The least score in the range and the least score above it; None = above all scores."""
Bound: TypeAlias = tuple[int, bytes, bool]
"""(0, member, exclusive), or with -1 before all members, or with 1 after all members."""


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


def to_member_bound(text: bytes) -> Bound:
    """Parse a bound of a range of members. Raises CommandError."""
    first = text[:1]
    if first in (b"-", b"+") and text[1:2] in (b"", b"\0"):
        return (-1 if first == b"-" else 1, b"", True)
    if first in (b"(", b"["):
        return (0, text[1:], first == b"(")
    raise CommandError(_NO_MEMBER)


def member_ranks(
    order: ScoreOrder, low: Bound, high: Bound, *, reverse: bool = False
) -> tuple[Rank, Rank]:
    """Convert a range of members to ranks [start, stop)."""
    (score, _), (greatest, _) = order.walk(0, order.end, 0, 1)[0], _last(order)
    if score == greatest:
        return (
            _member_rank(order, low, score, upper=False),
            _member_rank(order, high, score, upper=True),
        )
    start, stop = _mixed(list(order), low, high, reverse=reverse)
    return start, stop


def _last(order: ScoreOrder) -> Entry:
    return order.walk_back(0, order.end, 0, 1)[0]


def _member_rank(order: ScoreOrder, bound: Bound, score: float, *, upper: bool) -> Rank:
    side, member, exclusive = bound
    if side:
        return 0 if side < 0 else order.end
    # The member with a zero byte appended is the next possible member.
    return order.find(score, member if exclusive is upper else member + b"\0")


def _above(member: bytes, low: Bound) -> bool:
    side, least, exclusive = low
    return side < 0 or (side == 0 and (member > least if exclusive else member >= least))


def _below(member: bytes, high: Bound) -> bool:
    side, most, exclusive = high
    return side > 0 or (side == 0 and (member < most if exclusive else member <= most))


def _mixed(entries: list[Entry], low: Bound, high: Bound, *, reverse: bool) -> tuple[int, int]:
    """Return the ranks [start, stop) that Redis's scan finds if scores differ."""
    nothing = (0, 0)
    if low[:2] > high[:2] or (low[:2] == high[:2] and (low[2] or high[2])):
        return nothing
    if not _above(entries[-1][1], low) or not _below(entries[0][1], high):
        return nothing
    count = len(entries)
    if reverse:
        stop = next((n for n in range(count, 0, -1) if _below(entries[n - 1][1], high)), 0)
        start = stop
        while start > 0 and _above(entries[start - 1][1], low):
            start -= 1
        return start, stop
    start = next((n for n in range(count) if _above(entries[n][1], low)), count)
    stop = start
    while stop < count and _below(entries[stop][1], high):
        stop += 1
    return start, stop
