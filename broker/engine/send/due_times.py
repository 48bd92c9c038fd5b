"""Which due times a send, a reschedule or a replay may ask for, as columns of numbers.

Interfaces that take one number check it by its member (`DELIVER_AT_MS`, `DELAY_MS`) or its word. A
past time means now: whoever applies a due time sees to that.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.errors import BadRequestError
from delaylog.storage.messages.batch import Column, column_max
from delaylog.storage.messages.members import limit_note
from delaylog.storage.messages.time_columns import wrong_time
from delaylog.storage.messages.times import UNIX_MS_MIN, delay_fault

_YEAR_MS: Final = 365.25 * 86_400_000


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
    ahead, most = ((ms / _YEAR_MS) for ms in (due_ms - now_ms, horizon_ms))
    return (
        f"{due_ms} is {ahead:,.1f} years ahead, over the horizon of {horizon_ms} ms"
        f" ({most:.1f} years){limit_note('horizon_ms')}"
    )
