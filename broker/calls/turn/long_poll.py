"""Long polling: a receive leases messages at once if any is ready, else when one becomes ready."""

from __future__ import annotations

from delaylog.broker.calls.named_groups import the_group
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.receives import GATE_SECONDS, waiting_key
from delaylog.broker.engine.dispatch.dispatching import DUE_SECONDS, LOADING_SECONDS
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.late.demand import EVERYTHING, IDS, Masks
from delaylog.broker.engine.late.timeline import GroupKey
from delaylog.broker.engine.model import Delivery
from delaylog.broker.host.waiters import TopicKey


async def long_poll(node: ServingNode, topic_key: TopicKey, call: ReceiveCall) -> Delivery | None:
    """Lease ready messages of a topic, waiting up to `wait_ms`; None if there were none.

    All waiting goes through `node`, because an embedded broker runs this without an event loop.
    """
    masks = EVERYTHING if call.only is None else call.only.masks
    if call.ids is not None:
        masks = IDS
    timeline, asker = node.engine.state.timeline, (*topic_key, call.group)
    begin_asking(node, asker, masks)
    try:
        return await _long_poll(node, topic_key, call)
    finally:
        timeline.end_asking(asker, node.clock.now_ms(), masks)


def begin_asking(node: ServingNode, asker: GroupKey, masks: Masks) -> None:
    """Tell the timeline that a consumer asks, so that it knows when none did; and for what."""
    state, (namespace, name, group) = node.engine.state, asker
    topic = state.topics.get((namespace, name))
    found = None if topic is None else topic.group(group)
    number, leased, ready = 0, 0, False
    if topic is not None and found is not None:
        number = found.number
        leased = state.leases.leased(topic.number, number)
        ready = found.ready_count > 0
    place = (0 if topic is None else topic.number, number)
    now_ms = node.clock.now_ms()
    state.timeline.begin_asking(asker, place, leased, now_ms, ready=ready, masks=masks)


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
