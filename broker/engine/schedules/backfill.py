"""Backfill: messages for instants of the past, which a caller asks for.

They are ordinary delayed messages with the ids of their instants. A rate is a distance between
their due times, so nothing has to run meanwhile. Progress, `count` and overlap of the schedule are
not concerned, and the header `n` is 0. An instant whose message is living is not sent again; one
whose message has ended is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from delaylog.broker.engine.errors import BadRequestError, ConflictError
from delaylog.broker.engine.schedules.firing import SLICE_BYTES, SLICE_FIRINGS, append_firings
from delaylog.broker.engine.schedules.messages import Firing
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.state import EngineState
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones

INSTANTS_MAX: Final = 1_000
"""Instants of one call; the answer says where the next one goes on."""


class Backfill(NamedTuple):
    """What a call sends."""

    firings: list[Firing]
    next_from_ms: int | None
    """The first instant of the range that is left; None: none is."""


def plan_backfill(
    state: EngineState,
    one: Schedule,
    *,
    from_ms: int,
    until_ms: int,
    rate: int | None,
    now_ms: int,
    zones: Zones = PACKAGED,
) -> Backfill:
    """The firings of instants in [from_ms, until_ms), `rate` a second; None: all due now.

    Raises BadRequestError for a range that is empty, or not of the past.
    """
    if until_ms > now_ms:
        raise BadRequestError(
            f"until_ms {until_ms} is after the present {now_ms}: instants to come fire by "
            "themselves",
            field="until_ms",
        )
    if from_ms >= until_ms:
        raise BadRequestError(
            f"from_ms must be before until_ms {until_ms}, not {from_ms}", field="from_ms"
        )
    # Together not more than the largest send.
    room = state.limits.request_bytes_max // max(len(one.spec.message), 1)
    count_max = min(max(room, 1), INSTANTS_MAX)
    firings: list[Firing] = []
    at = next_instant(one.spec.timing, from_ms - 1, zones)
    while at is not None and at < until_ms:
        if len(firings) == count_max:
            return Backfill(firings, at)
        after_ms = 0 if rate is None else len(firings) * 1_000 // rate
        firings.append(Firing(one, at, now_ms + after_ms, 0))
        at = next_instant(one.spec.timing, at, zones)
    return Backfill(firings, None)


def send_backfill(
    state: EngineState, firings: list[Firing], now_ms: int, zones: Zones = PACKAGED
) -> Iterator[None]:
    """Send firings of one schedule, a frame in each step. ConflictError if it changes meanwhile."""
    if not firings:
        return
    one = firings[0].schedule
    step = max(min(SLICE_BYTES // max(len(one.spec.message), 1), SLICE_FIRINGS), 1)
    for first in range(0, len(firings), step):
        present = state.schedules.get(one.number)
        if present is None or present.spec != one.spec:
            raise ConflictError(
                f"schedule {one.name!r} was changed meanwhile; {first} messages were sent"
            )
        append_firings(state, firings[first : first + step], {}, now_ms, by=zones.version)
        yield
