"""Hands messages out to a receive: at once if one is ready, else when one becomes ready."""

from __future__ import annotations

import asyncio
from typing import Final

from delaylog.broker.calls.places import the_group
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.engine.dispatching import DUE_SECONDS, LOADING_SECONDS
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.model import Delivery
from delaylog.broker.engine.receiving import receive
from delaylog.broker.node import Node
from delaylog.broker.waiters import TopicKey

GATE_SECONDS: Final = 0.25
"""Who does not wait for messages still waits that long for a cluster to let them out."""


async def hand_out(node: Node, topic_key: TopicKey, call: ReceiveCall) -> Delivery | None:
    """Lease what is ready in a topic, waiting for it up to `wait_ms`; None if nothing came."""
    state = node.engine.state
    loop = asyncio.get_running_loop()
    until = loop.time() + call.wait_ms / 1000
    key = ((*topic_key, call.group), call.ids or call.only)
    asked_ms, due_until = node.clock.now_ms(), loop.time() + DUE_SECONDS
    if call.wait_ms == 0:
        # Who does not wait is told of everything that is due: a send that was answered counts.
        node.run_due(unpaced=True)
    while True:
        may = False
        try:
            gate_s = max(until - loop.time(), GATE_SECONDS)
            may = await node.standing.until_may_hand_out(gate_s)
        finally:
            if not may:
                # It gives up, or the consumer went away: what woke it must wake another.
                node.waiters.wake(key)
        if not may:
            return None
        if node.engine.state is not state:
            raise NotLeadingError("the leadership changed meanwhile; ask again")
        topic = state.topics.get(topic_key)
        group = the_group(topic, call.group)
        if topic is not None and group is not None:
            now_ms = node.clock.now_ms()
            delivery = receive(
                state,
                topic,
                group,
                count_max=call.count_max,
                lease_ms=call.lease_ms or topic.settings.lease_ms,
                now_ms=now_ms,
                only=call.only,
                chosen=call.ids,
            )
            # Who finds something leaves the rest to the next one; who finds nothing does not,
            # or they would wake each other for messages that are not for them.
            if delivery is not None:
                if group.has_ready:
                    node.waiters.wake(key)
                # The lease is in the file before the answer is on the wire: a killed broker
                # comes back knowing who holds what. Its fsync is not waited for.
                if node.write_through():
                    node.standing.appended(at_once=True)
                else:
                    await node.durable(delivery.position)
                return delivery
            if state.log.pending_size:
                node.appended()
            if (topic.number, group.number) in state.woken:
                # There was more than one call looks through.
                node.wake_ready()
                await asyncio.sleep(0)
                if loop.time() < until:
                    continue
            if call.wait_ms == 0 and loop.time() < due_until and node.engine.has_due(asked_ms):
                loading = node.engine.dispatcher.unloaded_ms() is not None
                await asyncio.sleep(LOADING_SECONDS if loading else 0)
                node.run_due(unpaced=True)
                continue
        if not await node.waiters.wait(key, until - loop.time()):
            return None
