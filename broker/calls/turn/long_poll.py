"""Long polling: a receive leases messages at once if any is ready, else when one becomes ready.

`long_poll` does it as a coroutine, and `Poll` by callbacks, for carriers that start no task. Both
follow the same rules: those of `Asking`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from delaylog.broker.calls.places import the_group
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.receives import GATE_SECONDS, Looked, waiting_key
from delaylog.broker.engine.deliver.dispatcher import DUE_SECONDS, LOADING_SECONDS
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.late.demand import EVERYTHING, IDS, Masks
from delaylog.broker.engine.late.timeline import GroupKey
from delaylog.broker.engine.model import Delivery
from delaylog.broker.engine.state import EngineState
from delaylog.broker.host.waiters import Place, TopicKey

Made = TypeVar("Made")
"""What a carrier answers with."""
_CHANGED: Final = "the leadership changed meanwhile; ask again"


class Asking:
    """A receive in progress: how long it waits, and that the timeline counts its consumer."""

    __slots__ = (
        "_group",
        "_masks",
        "asked_ms",
        "call",
        "key",
        "node",
        "state",
        "until_s",
    )

    def __init__(self, node: ServingNode, key: TopicKey, call: ReceiveCall) -> None:
        self.node, self.key, self.call = node, key, call
        self._masks = EVERYTHING if call.only is None else call.only.masks
        if call.ids is not None:
            self._masks = IDS
        self.state: EngineState | None = node.engine.state
        """None after `end`: the traceback of an error may keep this object, which must not keep an
        engine that was replaced."""
        self.asked_ms = node.clock.now_ms()
        self.until_s = node.time_s() + call.wait_ms / 1000
        self._group = (*key, call.group)
        begin_asking(node, self._group, self._masks, self.asked_ms)

    def end(self) -> None:
        """Tell the timeline that the consumer asks no more."""
        state, self.state = self.state, None
        if state is not None:
            state.timeline.end_asking(self._group, self.node.clock.now_ms(), self._masks)

    @property
    def left_s(self) -> float:
        """Seconds that the call may still wait."""
        return self.until_s - self.node.time_s()

    def must_look_again(self) -> float | None:
        """After a look-up without messages: seconds until the next one; None = wait to be woken."""
        node, state, call = self.node, self.state, self.call
        assert state is not None, "`end` was not called"
        topic = state.topics.get(self.key)
        group = the_group(topic, call.group)
        if topic is None or group is None:
            return None
        if state.log.pending_size:
            node.appended()
        now_s = node.time_s()
        looks_until_s = self.until_s if call.wait_ms else self.until_s + DUE_SECONDS
        if (topic.number, group.number) in state.marks.newly_ready:
            # One receive looks at a limited number of messages, and there are more.
            node.wake_ready()
            return 0.0 if now_s < looks_until_s else None
        if not call.wait_ms and now_s < looks_until_s and node.engine.has_due(self.asked_ms):
            return 0.0 if node.engine.dispatcher.unloaded_ms() is None else LOADING_SECONDS
        return None


async def long_poll(node: ServingNode, topic_key: TopicKey, call: ReceiveCall) -> Delivery | None:
    """Lease ready messages of a topic, waiting up to `wait_ms`; None if there were none."""
    asking = Asking(node, topic_key, call)
    try:
        return await look(asking)
    finally:
        asking.end()


def begin_asking(node: ServingNode, key: GroupKey, masks: Masks, now_ms: int) -> None:
    """Tell the timeline that a consumer asks a group, and for what: it records when none does."""
    state, (namespace, name, group) = node.engine.state, key
    if state.timeline.ask_too(key, masks, now_ms):
        return
    topic = state.topics.get((namespace, name))
    found = None if topic is None else topic.group(group)
    number, leased, ready = 0, 0, False
    if topic is not None and found is not None:
        number = found.number
        leased = state.leases.leased(topic.number, number)
        ready = found.ready_count > 0
    place = (0 if topic is None else topic.number, number)
    state.timeline.begin_asking(key, place, leased, now_ms, ready=ready, masks=masks)


async def look(asking: Asking) -> Delivery | None:
    """Look for messages, and wait for them; None if there were none in time."""
    node, call = asking.node, asking.call
    key = waiting_key(asking.key, call)
    while True:
        may = False
        try:
            gate_s = max(asking.until_s - node.time_s(), GATE_SECONDS)
            may = await node.role.until_may_deliver(gate_s)
        finally:
            if not may:
                # This call gives up or was cancelled: pass its wake-up on to another waiter.
                node.waiters.wake(key)
        if not may:
            return None
        if node.engine.state is not asking.state:
            raise NotLeadingError(_CHANGED)
        found = await node.turn.receives.receive(asking.key, call)
        if found is None:
            # The gate has closed.
            continue
        if isinstance(found, Delivery):
            return found
        try:
            if node.engine.state is not asking.state:
                raise NotLeadingError(_CHANGED)
            again_s = asking.must_look_again()
            if again_s is not None:
                await node.pause(again_s)
            elif not await found.wait(asking.left_s):
                return None
        finally:
            found.leave()


class Poll(ABC, Generic[Made]):
    """A receive without a task: it looks for messages, waits to be woken, and looks again.

    If it has to wait for anything else, it goes on as a task. A carrier derives a class that
    answers.
    """

    __slots__ = ("_leased", "_looks", "_place", "_task", "_timer", "asking", "gone")

    def __init__(self, node: ServingNode, key: TopicKey, call: ReceiveCall) -> None:
        self.gone = False
        """Whether the client has left, or was answered."""
        self.asking = Asking(node, key, call)
        self._place: Place | None = None
        self._looks = False
        """Whether it is about to look, so that a wake-up may be for nothing if it does not."""
        self._leased: Delivery | None = None
        """Messages for a task that has not begun."""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ what the carrier does

    @abstractmethod
    def made(self, found: Delivery | None) -> Made:
        """The answer with messages that are under lease, or with none."""

    @abstractmethod
    def reply(self, made: Made) -> None:
        """Answer."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Answer with an error."""

    def cancel(self) -> None:
        """The client has left."""
        if not self.gone:
            self.end()
            if self._task is not None:
                self._task.cancel()

    # ------------------------------------------------------------------ looking and waiting

    def look(self) -> None:
        """Look for messages with the other receives of this turn."""
        asking, self._looks = self.asking, True
        asking.node.turn.receives.add(asking.key, asking.call, self)

    def tell(self, found: Looked) -> None:
        """Answer with messages, or wait."""
        # The gate has closed if it is None: nothing was looked up.
        self._looks = found is None
        try:
            if isinstance(found, Delivery):
                self._found(found)
                return
            self._place = found
            if found is not None and self.asking.node.engine.state is self.asking.state:
                self._wait(found)
            else:
                self._go_on(found)
        except Exception as error:
            self.refuse(error)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error."""
        self._looks = False
        self.end()
        self.fail(error)

    def end(self) -> None:
        """The poll is over: it is answered, or the client has left."""
        self.gone = True
        self._leave()
        asking, leased, looks = self.asking, self._leased, self._looks
        self._leased, self._looks = None, False
        asking.end()
        if leased is not None:
            asking.node.turn.receives.give_back(asking.key, leased)
        if looks:
            # Pass the consumer's wake-up on to another waiter.
            asking.node.waiters.wake(waiting_key(asking.key, asking.call))

    def _found(self, found: Delivery | None) -> None:
        made = self.made(found)
        # Asked as late as possible, because the process may have been stopped since the lease.
        if found is not None and not self.asking.node.turn.receives.in_time():
            self._leased = found
            self._go_on(found)
            return
        self.reply(made)
        self.end()

    def _wait(self, place: Place) -> None:
        if self.asking.must_look_again() is not None:
            self._go_on(place)
            return
        left_s = self.asking.left_s
        if place.future.done() or left_s <= 0:
            self._woken(place.future)
            return
        self._timer = place.future.get_loop().call_later(left_s, place.future.cancel)
        place.future.add_done_callback(self._woken)

    def _woken(self, future: asyncio.Future[None]) -> None:
        """Messages may be ready, the time is up, or the node stops."""
        if self._place is None or self.gone:
            return
        node = self.asking.node
        try:
            self._leave(looks=True)
            if not future.done() or future.cancelled():
                self._found(None)
            elif node.role.may_deliver() and node.engine.state is self.asking.state:
                self.look()
            else:
                self._looks = True
                self._go_on(None)
        except Exception as error:
            self.refuse(error)

    def _go_on(self, found: Looked) -> None:
        """Go on as a task, with what was found."""
        self._task = asyncio.get_running_loop().create_task(self._finish(found))
        # A task that is cancelled before it begins runs none of its code.
        self._task.add_done_callback(self._over)

    def _over(self, _: asyncio.Task[None]) -> None:
        # The error of a task refers to this poll, and the collector may have frozen both.
        self._task = None
        self.end()

    async def _finish(self, found: Looked) -> None:
        try:
            made = self.made(await self._rest(found))
        except Exception as error:
            self.fail(error)
        else:
            self.reply(made)

    async def _rest(self, found: Looked) -> Delivery | None:
        self._leased, self._looks = None, False
        try:
            receives, asking = self.asking.node.turn.receives, self.asking
            if isinstance(found, Delivery):
                if await receives.may_answer(asking.key, found):
                    return found
            elif found is not None and (again_s := asking.must_look_again()) is not None:
                await asking.node.pause(again_s)
            self._leave(looks=True)
            return await look(asking)
        finally:
            self.end()

    def _leave(self, *, looks: bool = False) -> None:
        place, self._place = self._place, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if place is not None:
            place.leave(looks=looks)
