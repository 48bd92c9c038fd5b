"""Explains a wait: which cause kept a message from being handed out, at each of its moments.

A wait is cut where a span begins or ends. Of the causes that hold in a piece the first in `CAUSES`
counts. A piece without any is the consumers' own pace, if consumers took messages or asked in it:
others were ahead in the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.late.timeline import CAUSES, UNKNOWN, Span

_RANK: Final = {cause: rank for rank, cause in enumerate(CAUSES)}
PIECE_MIN_MS: Final = 5
"""A shorter piece counts to its neighbour."""


class Held(NamedTuple):
    """The message's key was locked by another message."""

    from_ms: int
    until_ms: int | None
    origin: int


class Wait(NamedTuple):
    """A part of a wait with one cause."""

    from_ms: int
    until_ms: int
    cause: str
    origin: int = 0
    """The message that held the key; 0 = another cause."""

    def members(self) -> dict[str, Any]:
        """Its members in answers, without the id of the holder."""
        return {"from_ms": self.from_ms, "until_ms": self.until_ms, "cause": self.cause}


def explain(
    from_ms: int,
    until_ms: int,
    spans: Iterable[Span],
    held: Sequence[Held] = (),
    *,
    known_ms: int,
) -> list[Wait]:
    """The parts of a wait, in order. `known_ms` = since when the timeline has been kept."""
    if until_ms <= from_ms:
        return []
    found = [Wait(span.from_ms, _end(span.until_ms, until_ms), span.cause) for span in spans]
    found += [Wait(one.from_ms, _end(one.until_ms, until_ms), "key", one.origin) for one in held]
    found = [each for each in found if each.from_ms < until_ms and each.until_ms > from_ms]
    cuts = {from_ms, until_ms}
    for each in found:
        cuts |= {cut for cut in each[:2] if from_ms < cut < until_ms}
    if from_ms < known_ms < until_ms:
        cuts.add(known_ms)
    ordered = sorted(cuts)
    parts: list[Wait] = []
    for first, last in pairwise(ordered):
        there = [each for each in found if each.from_ms <= first and each.until_ms >= last]
        if there:
            best = min(there, key=lambda each: (_RANK[each.cause], each.from_ms))
            cause, origin = best.cause, best.origin
        else:
            cause, origin = UNKNOWN if last <= known_ms else "slow_consumers", 0
        _add(parts, Wait(first, last, cause, origin))
    return parts


def _end(until_ms: int | None, now_ms: int) -> int:
    return now_ms if until_ms is None else until_ms


def _add(parts: list[Wait], part: Wait) -> None:
    """Append a part, joined with the one before it if that has the same cause or one is short."""
    if parts:
        last = parts[-1]
        if (last.cause, last.origin) == (part.cause, part.origin):
            parts[-1] = last._replace(until_ms=part.until_ms)
            return
        if part.until_ms - part.from_ms < PIECE_MIN_MS:
            parts[-1] = last._replace(until_ms=part.until_ms)
            return
        if last.until_ms - last.from_ms < PIECE_MIN_MS:
            parts[-1] = part._replace(from_ms=last.from_ms)
            return
    parts.append(part)
