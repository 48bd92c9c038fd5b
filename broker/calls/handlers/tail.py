"""Handler of the tail of a topic: what is handed out, without leasing it."""

from __future__ import annotations

from typing import Final

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.places import the_topic
from delaylog.contract.calls.shapes import TAIL_MAX

POLL_SECONDS: Final = 0.1
"""How often a waiting call looks. It wakes nobody who receives."""


async def get_tail(ctx: Context) -> Answer:
    """GET …/tail: hand-outs from the number `after` on, or from now on."""
    values = ctx.query_values()
    node, topic = ctx.node, the_topic(ctx)
    taps = node.engine.state.taps
    wait_ms = values["wait_ms"]
    tap = taps.of(topic.number, node.clock.now_ms())
    after = values["after"] or tap.next
    until_s = node.time_s() + wait_ms / 1000
    ctx.wait_ms = wait_ms
    while tap.next <= after and node.time_s() < until_s and not node.stopping:
        await node.pause(POLL_SECONDS)
        # The engine, or the tap, may have been replaced meanwhile.
        tap = node.engine.state.taps.of(topic.number, node.clock.now_ms())
    found, complete = tap.since(after, TAIL_MAX)
    return ctx.answer(
        {
            "messages": [
                {
                    "id": each.id,
                    "group": each.group,
                    "consumer": each.consumer,
                    "handed_out_ms": each.at_ms,
                    "deliver_at_ms": each.deliver_at_ms,
                    "attempts": each.attempts,
                    "size": each.size,
                }
                for each in found
            ],
            "next": found[-1].number + 1 if found else max(after, tap.next),
            "complete": complete,
            "now_ms": node.clock.now_ms(),
        }
    )
