"""Which due times a send, a reschedule or a replay may ask for, as columns of numbers.

Interfaces that take one number check it by its member (`DELIVER_AT_MS`) or its word. A past time
means now: whoever applies a due time sees to that.
"""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.errors import BadRequestError
from delaylog.storage.messages.batch import Column, column_max, column_min
from delaylog.storage.messages.message_fields import UNIX_MS_MIN, not_unix_ms
from delaylog.storage.messages.spans import in_words, ms_in_words


def delay_over_horizon(horizon_ms: int, item: int | None = None) -> BadRequestError:
    """The error for a delay that ends over the horizon, which perhaps is a time."""
    return BadRequestError(
        f"delay_ms is over the horizon of {ms_in_words(horizon_ms)}; it counts from now, and "
        "deliver_at_ms is a time",
        field="delay_ms",
        item=item,
    )


def check_due_times(due: Column, now_ms: int, horizon_ms: int) -> None:
    """BadRequestError for times over the horizon, and for seconds instead of milliseconds.

    By a clock that is before 2001 itself, only negative times are refused.
    """
    last_ms = int(column_max(due))
    if last_ms > now_ms + horizon_ms:
        raise _wrong(_too_far(last_ms, now_ms, horizon_ms), int(np.argmax(due)))
    first_ms = UNIX_MS_MIN if now_ms >= UNIX_MS_MIN else 0
    if column_min(due) >= first_ms:
        return
    values = np.atleast_1d(due)
    wrong = np.flatnonzero((values < first_ms) & (values != 0))
    if len(wrong):
        raise _wrong(not_unix_ms(int(values[wrong[0]])), int(wrong[0]))


def _wrong(what: str, item: int) -> BadRequestError:
    return BadRequestError(f"deliver_at_ms {what}", field="deliver_at_ms", item=item)


def _too_far(due_ms: int, now_ms: int, horizon_ms: int) -> str:
    """What is wrong with a time over the horizon, which perhaps is in micro- or nanoseconds."""
    for unit, factor in (("microseconds", 1_000), ("nanoseconds", 1_000_000)):
        if UNIX_MS_MIN <= due_ms // factor <= now_ms + horizon_ms:
            return f"{due_ms} looks like {unit}: give milliseconds since 1970"
    ahead = in_words(due_ms - now_ms)
    return f"{due_ms} is {ahead} ahead, over the horizon of {ms_in_words(horizon_ms)}"
