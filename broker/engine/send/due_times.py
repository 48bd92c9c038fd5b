"""Which due times a send, a reschedule or a replay may ask for, as columns of numbers.

Interfaces that take one number check it by its member (`DELIVER_AT_MS`, `DELAY_MS`) or its word. A
past time means now: whoever applies a due time sees to that.
"""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.errors import BadRequestError
from delaylog.contract.members import in_words, limit_note, ms_in_words
from delaylog.contract.times import UNIX_MS_MIN, UNIX_US_MIN, delay_fault, time_fault
from delaylog.storage.messages.batch import Column, column_max, column_min


def check_delays(delays: Column, horizon_ms: int) -> None:
    """BadRequestError for delays that end over the horizon."""
    if column_max(delays) > horizon_ms:
        item = int(np.argmax(delays))
        raise BadRequestError(f"delay_ms {delay_fault(horizon_ms)}", field="delay_ms", item=item)


def check_due_times(
    due: Column, now_ms: int, horizon_ms: int, *, name: str = "deliver_at_ms"
) -> None:
    """BadRequestError for times over the horizon, and for other units than milliseconds.

    By a clock that is before 2001 itself, any time that is not negative is accepted. `name`: what
    the caller calls the column.
    """
    wrong = wrong_time(due, UNIX_MS_MIN if now_ms >= UNIX_MS_MIN else 0)
    last_ms = int(column_max(due))
    if wrong is None and last_ms > now_ms + horizon_ms:
        wrong = int(np.argmax(due)), too_far(last_ms, now_ms, horizon_ms)
    if wrong is not None:
        item, fault = wrong
        raise BadRequestError(f"{name} {fault}", field=name, item=item)


def too_far(due_ms: int, now_ms: int, horizon_ms: int) -> str:
    """What is wrong with a time over the horizon, to follow its name."""
    return (
        f"{due_ms} is {in_words(due_ms - now_ms)} ahead, over the horizon of"
        f" {ms_in_words(horizon_ms)}{limit_note('horizon_ms')}"
    )


def wrong_time(times: Column, first_ms: int = UNIX_MS_MIN) -> tuple[int, str] | None:
    """(row, what is wrong with it) of the first number that is no Unix time in ms; None: none."""
    if column_min(times) >= first_ms and column_max(times) < UNIX_US_MIN:
        return None
    values = np.atleast_1d(times)
    rows = np.flatnonzero((values != 0) & ((values < first_ms) | (values >= UNIX_US_MIN)))
    if not len(rows):
        return None
    row = int(rows[0])
    fault = time_fault(int(values[row]), first_ms)
    assert fault is not None, "the mask and the check of one number agree"
    return row, fault
