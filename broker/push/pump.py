"""Pushes the messages of one group: leases what its breaker permits, makes attempts, and settles.

A pump is an ordinary consumer inside the broker. It receives by the long poll that clients use and
settles by the merger of a turn, so keys, limits, retries and dead letters are those of every
consumer. It leases a message only when its attempt may begin: while the breaker is open, messages
wait in the group and use up no retries.

`Share` is what the pumps of a node share: the attempts in flight, and the pace of targets that
fail. A failed attempt costs the broker about a millisecond: a connection, a lease, a nack. A
thousand targets that begin to hang together also time out together. So attempts at targets that
fail, and the ends of failed attempts, take turns at a fixed pace, and what is left of the loop's
time goes to targets that work. At most `most` attempts are in flight. A pump that waits for
messages holds no slot: thousands of idle targets would use them all up. It takes slots when
messages arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.errors import EngineError, NotLeadingError
from delaylog.broker.engine.model import Delivery
from delaylog.broker.engine.push.commands import note_health
from delaylog.broker.engine.push.targets import GroupKey, Health, Target
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.push.attempts import Attempts
from delaylog.broker.push.breaker import Breaker
from delaylog.broker.push.outcomes import Outcome, Verdict, fault, without_excerpt
from delaylog.broker.push.requests import PushedMessage, PushRequest, event_id, make_request
from delaylog.broker.rules.push_signatures import make_signers, signature_headers
from delaylog.contract.calls.shapes import LEASE_MS_MAX
from delaylog.storage.errors import DISTRUSTED
from delaylog.storage.layout import NEVER_MS, ref_to_id
from delaylog.storage.messages.records import split_records

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode


# ----------------------------------------------------------------------------- what pumps share

TURN_SECONDS: Final = 0.010
"""The pace of targets that fail: 100 turns a second. A quarter of it changed no p99."""
FIRST_SECONDS: Final = 0.003
"""The pace of targets of which nothing is known, as after a start: 333 turns a second."""
WAIT_SECONDS_MAX: Final = 20.0
"""The longest wait for a turn, well below the time by which a lease outlasts its attempt."""
IDLE_MAX: Final = 256
"""Idle tasks that wait for the next attempts, a few KiB each."""
_Work: TypeAlias = Coroutine[None, None, None]


class Share:
    """The attempts in flight of all pumps, which share the process's connections."""

    def __init__(self, most: int) -> None:
        self.most, self.in_flight = most, 0
        self.ended: dict[Verdict, int] = dict.fromkeys(Verdict, 0)
        self.running: set[asyncio.Task[None]] = set()
        """Tasks with an attempt or a settle that has not ended."""
        self._idle: list[tuple[asyncio.Task[None], asyncio.Future[_Work | None]]] = []
        """Tasks that wait for work: a new task for each attempt costs more than its signature."""
        self._closed = False
        self.failing, self.unknown = Turns(TURN_SECONDS), Turns(FIRST_SECONDS)
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Pumps that wait for a slot."""

    def room(self, in_flight: int) -> int:
        """How many attempts may begin at a target that has `in_flight`.

        No target gets more than what it leaves to the others. So one target uses half of all
        attempts, n greedy ones leave the part 1/(n + 1), and a new one can always begin (dynamic
        thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
        """
        left = self.most - self.in_flight
        return max((left - in_flight) // 2, int(left > in_flight == 0))

    @property
    def is_full(self) -> bool:
        """Whether no further attempt may begin before one ends."""
        return self.in_flight >= self.most

    def take(self, count: int) -> None:
        """Count attempts that begin; `room` has permitted them in this turn of the loop."""
        self.in_flight += count
        assert self.in_flight <= self.most, "`room` permits no more"

    async def slot(self) -> None:
        """Take a slot for one attempt, first come, first served; `free` returns it."""
        if not self.is_full:
            self.take(1)
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                self.free()
            raise

    def free(self) -> None:
        """Return the slot of an attempt that ended or was not made; the longest wait gets it."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self.in_flight -= 1

    def run(self, work: _Work) -> None:
        """Run it on the loop, in a task that may have done other work before."""
        if self._idle:
            task, future = self._idle.pop()
            future.set_result(work)
        else:
            task = asyncio.get_running_loop().create_task(self._do(work))
        self.running.add(task)

    def close(self) -> None:
        """Keep no idle tasks any more."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].set_result(None)

    async def _do(self, work: _Work | None) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "the loop runs this as a task"
        while work is not None:
            try:
                await work
            finally:
                self.running.discard(task)
            if self._closed or len(self._idle) >= IDLE_MAX:
                return
            future: asyncio.Future[_Work | None] = loop.create_future()
            self._idle.append((task, future))
            try:
                work = await future
            except asyncio.CancelledError:
                self.running.discard(task)
                if future.done() and not future.cancelled() and (lost := future.result()):
                    lost.close()
                raise


class Turns:
    """Turns at one pace, in the order of calls."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next_s, self._lock = seconds, 0.0, asyncio.Lock()

    async def next(self) -> None:
        """Wait for a turn. A loop that was late does not make up for turns: overdue ones would come
        together. Waits of more than half of `WAIT_SECONDS_MAX` raise the pace: none is longer.
        """
        loop = asyncio.get_running_loop()
        called_s = loop.time()
        async with self._lock:
            wait_s = self._next_s - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            waited = (loop.time() - called_s) / WAIT_SECONDS_MAX
            self._next_s = loop.time() + self._seconds * min(max(2 - 2 * waited, 0), 1)


# ------------------------------------------------------------------------------------- one pump

WAIT_MS: Final = 20_000
"""How long one receive waits for messages."""
LEASE_SLACK_MS: Final = 30_000
"""A lease is longer than an attempt: the end of a failed one may wait for its turn."""
FULL_SECONDS: Final = 1.0
"""A pump with attempts in flight, of which the share permits no more, looks again after this time,
or when an attempt of its own ends."""
ROOM_SECONDS: Final = 0.02
"""A busy target waits this long at most for a quarter of its attempts to end, so that one receive
leases several messages, and one settle acks as many."""
LOOK_SECONDS: Final = 10.0
"""A pump that may not begin an attempt looks again after this time, whatever it waits for: the
clock may have been set."""
REFUSED_SECONDS: Final = 1.0
"""Pause after a receive that the node refused."""
THROTTLE_STORED_MS: Final = 10_000
"""Shorter throttles are not stored: they are over when a new leader has begun."""
CONSUMER: Final = "push"
"""The name of the consumer in histories of messages."""
_UNTRIED: Final = Settling("extend", lease_ms=0)
"""The message is ready at once, and the attempt does not count."""

log = logging.getLogger("delaylog.push")


class Place(NamedTuple):
    """The group that a pump empties."""

    topic_key: TopicKey
    group: str
    key: GroupKey


class Pump:
    """The pushes to one target. Replaced when the target changes."""

    def __init__(
        self, node: ServingNode, place: Place, target: Target, attempts: Attempts, share: Share
    ) -> None:
        self.target = target
        self._node, self._place, self._attempts, self._share = node, place, attempts, share
        self._state = node.engine.state
        self._signers = make_signers(target.secrets)
        namespace, topic = place.topic_key
        self._source = f"/v1/ns/{namespace}/topics/{topic}"
        self._stored = self._state.targets.healths[place.key]
        self.breaker = Breaker(
            self._stored, concurrency=target.concurrency, per_second=target.per_second
        )
        self._is_known = False
        """Whether an attempt of this pump has succeeded."""
        self._acks: dict[int, list[int]] = {}
        """By lease: origins of messages that are to be acked."""
        self._acks_wait = False
        """Whether acks wait for the next receive, so that both are one write of the log."""
        self._turn: asyncio.Event | None = None
        """Set at the turn for which a failed attempt waits; None if none waits."""
        self._room = asyncio.Event()
        self._wake_at = 0
        """The event is set when at most this number of attempts is in flight."""
        self._task: asyncio.Task[None] | None = None

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Begin to push; `failed` is called if the pump ends by an error."""
        self._task = asyncio.get_running_loop().create_task(self._run())

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                failed(error)

        self._task.add_done_callback(ended)

    def stop(self) -> None:
        """Begin no attempt any more; those in flight go on and settle."""
        if self._task is not None:
            self._task.cancel()

    @property
    def is_current(self) -> bool:
        """Whether the group still has this target, and the node this state and no hold."""
        state = self._node.engine.state
        current = state.targets.targets.get(self._place.key)
        held = state.holding.now is not None
        return state is self._state and current is self.target and not held

    # ------------------------------------------------------------------ leasing

    async def _run(self) -> None:
        while True:
            try:
                await self._push()
            except DISTRUSTED:
                raise
            except Exception:
                # One message must not end the broker again and again.
                log.exception("pushing from group %r failed; it begins again", self._place.group)
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return

    async def _push(self) -> None:
        """Lease and attempt until the target is not current any more."""
        while True:
            now_ms = self._node.clock.now_ms()
            in_flight = self.breaker.in_flight
            # A target that has none in flight waits for its slot below.
            wanted = max(self._share.room(in_flight), int(in_flight == 0))
            count = self.breaker.permitted(now_ms, wanted)
            if count == 0:
                ready_ms = self.breaker.ready_at_ms(now_ms)
                if wanted and now_ms < ready_ms < NEVER_MS:
                    self._note_wait(now_ms, ready_ms)
                wait_s = (ready_ms - now_ms) / 1_000
                wait_s = min(max(wait_s, ROOM_SECONDS if wanted else FULL_SECONDS), LOOK_SECONDS)
                await self._until_ended(in_flight - 1, wait_s)
                continue
            begun = 0
            try:
                if self.breaker.health.failing_since_ms:
                    await self._share.failing.next()
                elif not self._is_known:
                    await self._share.unknown.next()
                delivery = await self._receive_in_slot() if self._share.is_full else None
                has_slot = delivery is not None
                if delivery is None:
                    delivery = await self._receive(count, WAIT_MS)
                if delivery is not None:
                    in_flight = self.breaker.in_flight - count
                    begun = self._begin(delivery, in_flight, has_slot=has_slot)
            finally:
                self.breaker.unused(count - begun)
            if delivery is None:
                continue
            if begun < delivery.count:
                rest = Receipts(delivery.lease, delivery.origins[begun:])
                await self._settle(_UNTRIED, [rest])
            if not self.is_current:
                return
            if begun == count:
                self._acks_wait = True
                try:
                    await self._until_ended(self.breaker.in_flight * 3 // 4, ROOM_SECONDS)
                finally:
                    self._acks_wait = False
                    self._flush_acks()

    def _note_wait(self, now_ms: int, ready_ms: int) -> None:
        """The target permits no attempt before `ready_ms`: messages may wait for it."""
        if not self.is_current:
            return
        key = *self._place.topic_key, self._place.group
        if self.breaker.blocked_until_ms <= now_ms:
            self._state.marks.rate_limited[self._place.key] = ready_ms
            self._state.timeline.group(key, "rate_limit", now_ms, ready_ms)
        elif not self._stored.blocks:
            # A short throttle: a health that blocks and is stored notes it by itself.
            self._state.timeline.group(key, "push_target", now_ms, ready_ms)

    async def _receive_in_slot(self) -> Delivery | None:
        """Wait for a slot, then receive one message that is ready; without one the slot is free."""
        await self._share.slot()
        delivery = None
        try:
            delivery = await self._receive(1, 0)
        finally:
            if delivery is None:
                self._share.free()
        return delivery

    async def _receive(self, count: int, wait_ms: int) -> Delivery | None:
        lease_ms = self.target.timeout_ms + LEASE_SLACK_MS
        call = ReceiveCall(
            count,
            wait_ms=wait_ms,
            lease_ms=min(lease_ms, LEASE_MS_MAX),
            group=self._place.group,
            consumer=CONSUMER,
        )
        try:
            return await long_poll(self._node, self._place.topic_key, call)
        except EngineError:
            # The node does not lead, or the group is gone. The pusher ends this pump soon, or the
            # node leads again.
            await asyncio.sleep(REFUSED_SECONDS)
            return None

    async def _until_ended(self, in_flight: int, seconds: float) -> None:
        """Wait until at most this number of attempts is in flight, for at most `seconds`."""
        self._wake_at = in_flight
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._room.wait()

    # ------------------------------------------------------------------ attempts

    def _begin(self, delivery: Delivery, in_flight: int, *, has_slot: bool) -> int:
        """Begin the attempts for which there is room beside `in_flight` of this target; returns how
        many. There may be less room than before the receive.
        """
        if not self.is_current:
            # The target changed during the receive. The next pump gets the messages.
            if has_slot:
                self._share.free()
            return 0
        at_s = self._node.clock.now_ms() // 1_000
        columns = (
            delivery.origins.tolist(),
            delivery.attempts.tolist(),
            delivery.rows["deliver_at"].tolist(),
            split_records(delivery.records, delivery.rows),
        )
        count = delivery.count
        if not has_slot:
            count = min(count, self._share.room(in_flight))
            self._share.take(count)
        # All requests are made at once: code that ran a moment ago runs twice as fast.
        for origin, attempts, deliver_at_ms, record in islice(zip(*columns, strict=True), count):
            said = PushedMessage(
                event_id(ref_to_id(origin), record.id, record.headers, self._source),
                record.id,
                deliver_at_ms,
                attempts,
                record.key,
                record.tags,
                record.headers,
                record.body,
            )
            self._share.run(self._attempt(self._request(said, at_s), delivery.lease, origin))
        return count

    def _request(self, said: PushedMessage, at_s: int) -> PushRequest | None:
        """None if the broker cannot make it: one message must not end the attempts at others."""
        try:
            made = make_request(said, self._source, self.target.mode)
            signed = signature_headers(self._signers, said.id, at_s, made.body)
        except Exception:
            log.exception("message %s cannot be made a request", said.id)
            return None
        return PushRequest(made.headers + signed, made.body)

    async def _attempt(self, request: PushRequest | None, lease: int, origin: int) -> None:
        if not await self._may_attempt():
            self._share.free()
            self.breaker.unused(1)
            receipts = Receipts(lease, np.array([origin], np.int64))
            await self._settle(_UNTRIED, [receipts])
            return
        # If the attempt is cancelled, the broker does not know what the receiver has got.
        outcome = Outcome(Verdict.FAILED, "the broker stopped during the attempt")
        try:
            try:
                outcome = await self._post(request)
            finally:
                self._share.free()
            if outcome.unwell:
                await self._failing_turn()
        except asyncio.CancelledError:
            pass
        except Exception as error:
            log.exception("an attempt at a push failed by an error of the broker")
            outcome = fault(error, self.target.timeout_ms)
        self._share.ended[outcome.verdict] += 1
        self._note(outcome)
        if outcome.verdict is Verdict.ACKED:
            self._is_known = True
            self._ack(lease, origin)
        else:
            receipts = Receipts(lease, np.array([origin], np.int64))
            await self._settle(_settling(outcome), [receipts])

    async def _may_attempt(self) -> bool:
        """False if the process was stopped since the lease: another node may push the message."""
        try:
            return await self._node.turn.receives.may_hand_out()
        except EngineError:
            return False

    async def _post(self, request: PushRequest | None) -> Outcome:
        if request is None:
            return Outcome(Verdict.FAILED, "the broker cannot make a request of this message")
        return await self._attempts.post(self.target.url, request, self.target.timeout_ms)

    async def _failing_turn(self) -> None:
        """Wait for a turn, or for the one of this target that is waited for. If each failed attempt
        took a turn, the last ones would wait longer than their leases last.
        """
        if self._turn is not None:
            await self._turn.wait()
            return
        self._turn = turn = asyncio.Event()
        try:
            await self._share.failing.next()
        finally:
            self._turn = None
            turn.set()

    def _ack(self, lease: int, origin: int) -> None:
        """Ack in one call what receivers have taken in this turn of the loop, or until the next
        receive of a busy target.
        """
        if not self._acks and not self._acks_wait:
            asyncio.get_running_loop().call_soon(self._flush_acks)
        self._acks.setdefault(lease, []).append(origin)

    def _flush_acks(self) -> None:
        acks, self._acks = self._acks, {}
        if not acks:
            return
        receipts = [Receipts(lease, np.array(all_, np.int64)) for lease, all_ in acks.items()]
        self._share.run(self._settle(Settling("ack"), receipts))

    async def _settle(self, wanted: Settling, receipts: Sequence[Receipts]) -> None:
        try:
            await self._node.turn.settles.settle(self._place.topic_key, wanted, receipts)
        except EngineError:
            # Another node leads now, or the topic is gone: the lease ends by itself.
            return

    def _note(self, outcome: Outcome) -> None:
        now_ms = self._node.clock.now_ms()
        self.breaker.ended(outcome, now_ms)
        if self.breaker.in_flight <= self._wake_at:
            self._room.set()
        health = self.breaker.health
        if health is self._stored or not _is_news(self._stored, health, now_ms):
            return
        before, self._stored = self._stored, health
        if self.is_current:
            try:
                note_health(self._state, self._place.key, health, now_ms)
            except NotLeadingError:
                return
            self._node.appended()
        _log_turn(self._place, before.state(now_ms), health, now_ms)


def _settling(outcome: Outcome) -> Settling:
    if outcome.verdict is Verdict.REFUSED:
        return Settling("reject", reason=outcome.reason)
    waits = outcome.verdict is Verdict.THROTTLED and not outcome.unwell
    if waits or outcome.verdict is Verdict.GONE:
        # The target gets nothing for a while, and the message did nothing wrong.
        return _UNTRIED
    return Settling("nack", reason=outcome.reason)


def _is_news(stored: Health, health: Health, now_ms: int) -> bool:
    """Whether a new leader should know what has changed."""
    if health.throttled_until_ms >= max(stored.throttled_until_ms, now_ms) + THROTTLE_STORED_MS:
        return True
    if stored.blocks and not health.blocks:
        return True
    return (stored.disabled, stored.open_until_ms) != (health.disabled, health.open_until_ms)


def _log_turn(place: Place, before: str, health: Health, now_ms: int) -> None:
    """Log that a target works or does not work any more. Its URL may be secret."""
    state = health.state(now_ms)
    if state == before or {before, state} == {"open", "half-open"}:
        return
    namespace, topic = place.topic_key
    extra = {
        "namespace": namespace,
        "topic": topic,
        "group": place.group,
        "why": without_excerpt(health.reason),
    }
    if state in ("open", "disabled"):
        log.warning("a push target is %s", state, extra=extra)
    elif before in ("open", "half-open", "disabled"):
        log.info("a push target works again", extra=extra)
