"""The winners of a commit: the row count of each is compared with what its attempt has staged.

All winners, up to ten thousand, are compared as columns in one turn of the loop, since nothing may
be staged between the comparison and the decision. Comparing row counts is enough: an attempt
without one of its numbered parts lacks that part's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.errors import BadRequestError, ConflictError
from delaylog.broker.engine.transactions.parts import PartTable
from delaylog.storage.log.transaction_frames import PartIndexes

_Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Winner:
    """An attempt to commit, and the number of rows that its writer has staged."""

    producer: str | None
    """None = the only producer of the transaction."""
    part: int
    attempt: int
    rows: int


def parts_of_winners(parts: PartTable, winners: Sequence[Winner]) -> PartIndexes:
    """Places of the parts that win, in log order. Raises an error for the first wrong winner."""
    if not winners:
        return np.zeros(0, np.uint32)
    staged, numbers = parts.columns, _numbers(parts, winners)
    ours = _keys(numbers, np.array([winner.part for winner in winners], np.uint64))
    theirs = _keys(staged["producer"].astype(np.uint64), staged["part"].astype(np.uint64))
    attempts = np.array([winner.attempt for winner in winners], np.uint64)
    group = _groups(np.concatenate([theirs, ours]), np.concatenate([staged["attempt"], attempts]))
    of_parts, of_winners = group[: len(staged)], group[len(staged) :]
    rows = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(rows, of_parts, staged["rows"])
    wrong = rows[of_winners] != np.array([winner.rows for winner in winners], np.int64)
    twice = np.ones(len(winners), np.bool_)
    twice[np.unique(ours, return_index=True)[1]] = False
    if (wrong | twice).any():
        item = int(np.argmax(wrong | twice))
        _refuse(parts, winners, item, int(rows[of_winners[item]]), twice=bool(twice[item]))
    won = np.zeros(len(rows), np.bool_)
    won[of_winners] = True
    return np.flatnonzero(won[of_parts]).astype(np.uint32)


def _numbers(parts: PartTable, winners: Sequence[Winner]) -> _Keys:
    """The producer of each winner as an index into the table, or an index behind its end."""
    known: dict[str | None, int] = {name: number for number, name in enumerate(parts.producers)}
    for name in {winner.producer for winner in winners}:
        known[name] = known.setdefault(_producer(parts, name), len(known))
    return np.array([known[winner.producer] for winner in winners], np.uint64)


def _producer(parts: PartTable, name: str | None) -> str:
    if name is not None:
        return name
    return parts.producers[0] if len(parts.producers) == 1 else ""


def _keys(producers: _Keys, parts: _Keys) -> _Keys:
    return producers << np.uint64(32) | parts


def _groups(keys: _Keys, attempts: _Keys) -> npt.NDArray[np.intp]:
    """A group number for each (key, attempt) pair, equal for equal pairs."""
    order = np.lexsort((attempts, keys))
    keys, attempts = keys[order], attempts[order]
    other = (keys[1:] != keys[:-1]) | (attempts[1:] != attempts[:-1])
    out = np.zeros(len(order), np.intp)
    out[order[1:]] = np.cumsum(other)
    return out


def _refuse(
    parts: PartTable, winners: Sequence[Winner], item: int, there: int, *, twice: bool
) -> None:
    winner = winners[item]
    if twice:
        raise BadRequestError(f"part {winner.part} has two winners", field="winners", item=item)
    raise ConflictError(
        f"attempt {winner.attempt} of part {winner.part} has staged {there} rows, "
        f"not {winner.rows}",
        field="winners",
        item=item,
        producer=_producer(parts, winner.producer),
        part=winner.part,
        attempt=winner.attempt,
        rows=there,
    )
