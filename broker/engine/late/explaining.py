"""Explains a wait: which cause kept a message from being handed out, at each of its moments.

A wait is cut where a span begins or ends. Of the causes that hold in a piece the first in `CAUSES`
counts. A piece that no span covers is `unknown`: a guess would hide what is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.late.timeline import CAUSES, UNKNOWN, Span

_RANK: Final = {cause: rank for rank, cause in enumerate(CAUSES)}
PIECE_MIN_MS: Final = 5
"""A shorter piece counts to its neighbour."""
UNKNOWN_MIN_MS: Final = 100
"""A shorter unknown piece counts to its neighbour: stalls and commits below are not noted."""
PARTS_MAX: Final = 256
"""Pieces shorter than this share of a wait are joined: it has about this number of parts."""
_PIECES_A_SLICE: Final = 256


class Held(NamedTuple):
    """The message's key was locked by another message."""

    from_ms: int
    until_ms: int | None
    origin: int
    """0 = by several, one after another."""


class Wait(NamedTuple):
    """A part of a wait with one cause."""

    from_ms: int
    until_ms: int
    cause: str
    origin: int = 0
    """The message that held the key; 0 = another cause, or several messages."""

    @property
    def size_ms(self) -> int:
        """How long it took."""
        return self.until_ms - self.from_ms

    def members(self) -> dict[str, Any]:
        """Its members in answers, without the id of the holder."""
        return {"from_ms": self.from_ms, "until_ms": self.until_ms, "cause": self.cause}


def explain(
    from_ms: int, until_ms: int, spans: Iterable[Span], held: Sequence[Held] = ()
) -> Generator[None, None, list[Wait]]:
    """The parts of a wait, in order; in slices."""
    found = [Wait(each.from_ms, _end(each, until_ms), each.cause) for each in spans]
    found += [Wait(each.from_ms, _end(each, until_ms), "key", each.origin) for each in held]
    found = [each for each in found if each.from_ms < until_ms and each.until_ms > from_ms]
    found.sort(key=itemgetter(0))
    pieces: list[Wait] = []
    for number, piece in enumerate(_pieces(from_ms, until_ms, found), 1):
        pieces.append(piece)
        if number % _PIECES_A_SLICE == 0:
            yield None
    least_ms = max(PIECE_MIN_MS, (until_ms - from_ms) // PARTS_MAX)
    joined: list[Wait] = []
    for number, piece in enumerate(_without_crumbs(pieces), 1):
        _add(joined, piece)
        if number % _PIECES_A_SLICE == 0:
            yield None
    parts: list[Wait] = []
    for part in _grouped(joined, least_ms):
        _add(parts, part)
    return parts


def _end(span: Span | Held, until_ms: int) -> int:
    return until_ms if span.until_ms is None else span.until_ms


def _pieces(from_ms: int, until_ms: int, found: Sequence[Wait]) -> Iterator[Wait]:
    """The cause of each moment. `found` is sorted by the begin."""
    there: list[tuple[int, int, int, int]] = []
    """(rank, begin, end, index) of those that began; the first one counts until its end."""
    at, now_ms = 0, from_ms
    while now_ms < until_ms:
        while at < len(found) and found[at].from_ms <= now_ms:
            begun = found[at]
            heappush(there, (_RANK[begun.cause], begun.from_ms, begun.until_ms, at))
            at += 1
        while there and there[0][2] <= now_ms:
            heappop(there)
        end_ms = min(found[at].from_ms, until_ms) if at < len(found) else until_ms
        if there:
            best = found[there[0][3]]
            end_ms = min(end_ms, best.until_ms)
            yield Wait(now_ms, end_ms, best.cause, best.origin)
        else:
            yield Wait(now_ms, end_ms, UNKNOWN)
        now_ms = end_ms


def _without_crumbs(pieces: Sequence[Wait]) -> Iterator[Wait]:
    """Short unknown pieces get the cause of a neighbour."""
    for at, piece in enumerate(pieces):
        if piece.cause == UNKNOWN and piece.size_ms < UNKNOWN_MIN_MS:
            near = pieces[max(at - 1, 0) : at + 2]
            known = next((each for each in near if each.cause != UNKNOWN), piece)
            piece = piece._replace(cause=known.cause, origin=known.origin)
        yield piece


def _grouped(pieces: Sequence[Wait], least_ms: int) -> Iterator[Wait]:
    """Pieces of at least `least_ms`: shorter ones are joined, under the cause of most of them."""
    group: list[Wait] = []
    last: list[Wait] = []
    """The part before, which takes short pieces that are too few for a part of their own."""
    for piece in pieces:
        if piece.size_ms >= least_ms:
            if last or not group:
                if last:
                    yield _named([*last, *group])
                last = [piece]
            else:
                last = [*group, piece]
            group = []
            continue
        group.append(piece)
        if piece.until_ms - group[0].from_ms >= least_ms:
            if last:
                yield _named(last)
            last, group = group, []
    if last or group:
        yield _named([*last, *group])


def _named(group: Sequence[Wait]) -> Wait:
    """Pieces as one part: of the cause that holds longest, and the holder of three quarters."""
    if len(group) == 1:
        return group[0]
    causes: defaultdict[str, int] = defaultdict(int)
    origins: defaultdict[int, int] = defaultdict(int)
    for piece in group:
        causes[piece.cause] += piece.size_ms
    cause = max(causes, key=lambda each: causes[each])
    for piece in group:
        if piece.cause == cause:
            origins[piece.origin] += piece.size_ms
    origin = max(origins, key=lambda each: origins[each])
    if 4 * origins[origin] < 3 * causes[cause]:
        origin = 0
    return Wait(group[0].from_ms, group[-1].until_ms, cause, origin)


def _add(parts: list[Wait], part: Wait) -> None:
    """Append a part, joined with the one before it if that has the same cause."""
    if parts and (parts[-1].cause, parts[-1].origin) == (part.cause, part.origin):
        parts[-1] = parts[-1]._replace(until_ms=part.until_ms)
    else:
        parts.append(part)
