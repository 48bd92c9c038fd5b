"""Long polling: a receive leases messages at once if any is ready, else when one becomes ready."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from delaylog.broker.calls.named_groups import the_group
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.receives import waiting_key
from delaylog.broker.engine.dispatch.dispatching import DUE_SECONDS, LOADING_SECONDS
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.late.demand import EVERYTHING, IDS, Masks
from delaylog.broker.engine.model import Delivery
from delaylog.broker.host.waiters import TopicKey

GATE_SECONDS: Final = 0.25
"""A receive without `wait_ms` still waits this long for a cluster to permit deliveries."""


async def long_poll(node: ServingNode, topic_key: TopicKey, call: ReceiveCall) -> Delivery | None:
    """Lease ready messages of a topic, waiting up to `wait_ms`; None if there were none.

    All waiting goes through `node`, because an embedded broker runs this without an event loop.
    """
    with asking(node, topic_key, call.group, asked_masks(call)):
        return await _long_poll(node, topic_key, call)


@contextmanager
def asking(node: ServingNode, topic_key: TopicKey, group: str, masks: Masks) -> Iterator[None]:
    """Tell the timeline that a consumer asks meanwhile, so that it knows when none did."""
    state = node.engine.state
    topic = state.topics.get(topic_key)
    found = None if topic is None else topic.group(group)
    number, leased, ready = 0, 0, False
    if topic is not None and found is not None:
        number = found.number
        leased = state.leases.leased(topic.number, number)
        ready = found.ready_count > 0
    place = (0 if topic is None else topic.number, number)
    timeline, key = state.timeline, (*topic_key, group)
    timeline.begin_asking(key, place, leased, node.clock.now_ms(), ready=ready, masks=masks)
    try:
        yield
    finally:
        timeline.end_asking(key, node.clock.now_ms(), masks)


def asked_masks(call: ReceiveCall) -> Masks:
    """Which messages a receive asks for."""
    if call.ids is not None:
        return IDS
    return EVERYTHING if call.only is None else call.only.masks


async def _long_poll(node: ServingNode, topic_key: TopicKey, call: ReceiveCall) -> Delivery | None:
    state, waits = node.engine.state, call.wait_ms > 0
    asked_ms, now_s = node.clock.now_ms(), node.time_s()
    until, until_ms = now_s + call.wait_ms / 1000, asked_ms + call.wait_ms
    looks_until = until if waits else now_s + DUE_SECONDS
    key = waiting_key(topic_key, call)
    while True:
        may = False
        try:
            gate_s = max(until - node.time_s(), GATE_SECONDS)
            may = await node.role.until_may_deliver(gate_s)
        finally:
            if not may:
                # This call gives up or was cancelled: pass its wake-up on to another waiter.
                node.waiters.wake(key)
        if not may:
            return None
        if node.engine.state is not state:
            raise NotLeadingError("the leadership changed meanwhile; ask again")
        found = await node.turn.receives.receive(topic_key, call)
        if found is None:
            # The gate has closed.
            continue
        if isinstance(found, Delivery):
            return found
        try:
            if node.engine.state is not state:
                raise NotLeadingError("the leadership changed meanwhile; ask again")
            topic = state.topics.get(topic_key)
            group = the_group(topic, call.group)
            if topic is not None and group is not None:
                if state.log.pending_size:
                    node.appended()
                if (topic.number, group.number) in state.marks.newly_ready:
                    # One receive looks at a limited number of messages, and there are more.
                    node.wake_ready()
                    await node.pause()
                    if node.time_s() < looks_until:
                        continue
                elif not waits and node.time_s() < looks_until and node.engine.has_due(asked_ms):
                    loading = node.engine.dispatcher.unloaded_ms() is not None
                    await node.pause(LOADING_SECONDS if loading else 0.0)
                    continue
            if not await found.wait(node.seconds_left(until, until_ms)):
                return None
        finally:
            found.leave()
