"""Which messages failed last in a given way, for jobs that change those alone, and for lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from delaylog.broker.engine.failures.failure_table import (
    FAILED,
    HOW,
    FailedRows,
    FailurePart,
    FailureTable,
    Wanted,
)
from delaylog.broker.engine.failures.folding import FOLDED, fold
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.storage.columns.questions import Mask, distinct
from delaylog.storage.columns.whole_rows import concat_rows, take_rows
from delaylog.storage.layout import Int64Array


def failed_so(table: FailureTable, topic: int, wanted: MessageFilter, found: FoundMessages) -> Mask:
    """Which messages have a failure that is kept, the last of which is as the filter says."""
    out = np.zeros(len(found), np.bool_)
    if len(found) == 0:
        return out
    messages = Wanted(topic, found.group.number, found.origins)
    for part in table.parts:
        at, slots = messages.among(part)
        # A later failure of a message replaces an earlier one: parts and rows are oldest first.
        out[slots] = _is_so(part, take_rows(part.rows, at), wanted)
    return out


def origins_failed_so(
    table: FailureTable, topic: int, group: int, wanted: MessageFilter
) -> Int64Array:
    """The messages of a group, ascending, whose last failure is as the filter says."""
    parts = table.parts
    rows, part_of = last_failures(parts, topic, group)
    origins: Int64Array = rows["origin"][failed_as(parts, rows, part_of, wanted)]
    return origins


def last_failures(
    parts: Sequence[FailurePart], topic: int, group: int
) -> tuple[FailedRows, Int64Array]:
    """The last failure of each message of a group, by message, and the part that it is in."""
    # Once each: rows may be added meanwhile.
    every = [part.rows for part in parts]
    mine = [take_rows(rows, (rows["topic"] == topic) & (rows["group"] == group)) for rows in every]
    part_of = np.repeat(np.arange(len(parts)), [len(rows) for rows in mine])
    rows = concat_rows([np.zeros(0, FAILED), *mine])
    _, at = np.unique(rows["origin"][::-1], return_index=True)
    at = len(rows) - 1 - at
    return take_rows(rows, at), part_of[at]


def failed_as(
    parts: Sequence[FailurePart], rows: FailedRows, part_of: Int64Array, wanted: MessageFilter
) -> Mask:
    """Which rows, each of a part, fail as the filter says."""
    out = np.ones(len(rows), np.bool_)
    if wanted.names_failure:
        for number, part in enumerate(parts):
            at = np.flatnonzero(part_of == number)
            out[at] = _is_so(part, take_rows(rows, at), wanted)
    return out


def _is_so(part: FailurePart, rows: FailedRows, wanted: MessageFilter) -> Mask:
    """Which of these rows of a part fail as the filter says."""
    so = np.ones(len(rows), np.bool_)
    if wanted.cause is not None:
        so &= rows["how"] == HOW.index(wanted.cause)
    if wanted.reason is not None:
        reason = wanted.reason
        so &= _has_text(part, rows, lambda text: _is_reason(reason, text))
    if wanted.reason_prefix is not None:
        prefix = wanted.reason_prefix
        so &= _has_text(part, rows, lambda text: text.startswith(prefix))
    return so


def _has_text(part: FailurePart, rows: FailedRows, fits: Callable[[str], bool]) -> Mask:
    """Which rows have a reason that fits."""
    used = distinct(rows["reason"].astype(np.int64)).tolist()
    return np.isin(rows["reason"], [number for number in used if fits(part.texts[number])])


def _is_reason(wanted: str, text: str) -> bool:
    """Whether a reason is the wanted one, or of the wanted kind as counts by reason show it."""
    return text == wanted or (FOLDED in wanted and fold(text).text == wanted)
