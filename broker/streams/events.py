"""Server-sent events: each message is an event with its receipt, settled by ordinary calls.

The credit of the query is a window: the flow leases more when messages are settled, or their leases
expire. Nothing else tells the broker how far a client is, since it cannot send on this connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.answers import problem_of
from delaylog.broker.streams.frames import end_event, events
from delaylog.contract.calls.streams import HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from delaylog.broker.engine.model import Delivery
    from delaylog.broker.streams.flow import Flow

HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies must neither keep nor collect the events."""
RETRY: Final = b"retry: 1000\n\n"
BEAT: Final = b":\n\n"
WINDOW_SECONDS: Final = 0.05
"""How often a stream whose window is full looks for settled messages."""


async def pieces(flow: Flow) -> AsyncGenerator[bytes, None]:
    """The body of the answer."""
    window = flow.credit.messages, flow.credit.bytes
    with flow.opened():
        yield RETRY
        while True:
            try:
                found = await _next(flow, window)
                receives = flow.node.turn.receives
                if found is not None and not await receives.may_answer(flow.topic_key, found):
                    # The process was stopped since the lease.
                    found = None
            except Exception as error:
                why = problem_of(error)
                if why is None:
                    raise
                flow.node.timings.problems["http", why.code] += 1
                yield end_event(why)
                return
            yield BEAT if found is None else events(found)


async def _next(flow: Flow, window: tuple[int, int]) -> Delivery | None:
    """The next messages; None if none became ready in time. Raises EngineError."""
    asking = asyncio.ensure_future(_ask(flow, window))
    try:
        await asyncio.wait((asking, flow.ended), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise flow.ended.result()
        return asking.result()
    finally:
        # If it is done, this does nothing. If not, the messages that it may lease go back.
        asking.cancel()


async def _ask(flow: Flow, window: tuple[int, int]) -> Delivery | None:
    node = flow.node
    until_s = node.time_s() + HEARTBEAT_SECONDS
    while not _has_room(flow, window):
        if node.time_s() >= until_s:
            return None
        await node.pause(WINDOW_SECONDS)
    return await flow.next(max(round((until_s - node.time_s()) * 1000), 1))


def _has_room(flow: Flow, window: tuple[int, int]) -> bool:
    """Make the credit what the window leaves."""
    messages, size = flow.unsettled()
    flow.credit.set(window[0] - messages, window[1] - size)
    return bool(flow.credit)
