"""A flow of deliveries to one client: it leases messages of a group as they become ready.

A flow leases only what its credit allows (how many messages, and how many of their bytes), one
frame at a time; its carrier asks for the next frame when the connection has taken the one before.
The leases are ordinary ones: when the flow ends they expire, unless the client left in order and
they are given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.places import the_group
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.contract.calls.streams import CREDIT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delaylog.broker.calls.context import Context
    from delaylog.broker.engine.errors import EngineError
    from delaylog.broker.engine.model import Delivery


class Credit:
    """A stream leases while both numbers are above 0. A message may exceed the bytes."""

    def __init__(self, messages: int, bytes_: int, messages_max: int) -> None:
        self.messages = messages
        self.bytes = bytes_
        """Below 0 if a message was larger than what was left."""
        self._messages_max = messages_max
        self._there = asyncio.Event()
        self._look()

    def __bool__(self) -> bool:
        return self.messages > 0 and self.bytes > 0

    def give(self, messages: int, bytes_: int) -> None:
        """Add to it. Raises a Problem if a client gives more than it can ever use."""
        messages, bytes_ = self.messages + messages, self.bytes + bytes_
        for name, now, most in (
            ("messages", messages, self._messages_max),
            ("bytes", bytes_, CREDIT_BYTES_MAX),
        ):
            if now > most:
                raise Problem(
                    "bad_request", f"the credit would be {now} {name}; it is at most {most}"
                )
        self.set(messages, bytes_)

    def set(self, messages: int, bytes_: int) -> None:
        """Replace it."""
        self.messages, self.bytes = messages, bytes_
        self._look()

    def take(self, messages: int, bytes_: int) -> None:
        """Subtract what was leased."""
        self.set(self.messages - messages, self.bytes - bytes_)

    async def wait(self, seconds: float) -> bool:
        """Wait until there is some, at most this long; returns whether there is."""
        if not self:
            try:
                async with asyncio.timeout(seconds):
                    await self._there.wait()
            except TimeoutError:
                return False
        return True

    def _look(self) -> None:
        if self:
            self._there.set()
        else:
            self._there.clear()


FRAME_BYTES: Final = 256 << 10
"""Bytes of the messages of one frame, after the first one: what a slow reader may hold in memory
here, beside what the kernel has taken."""
PLAIN_MESSAGES_MAX: Final = 500
"""Messages of one frame of objects: encoding them takes a millisecond."""
_FITTING: Final = 256
"""Messages of the first frame, before the size of messages is known."""
LEASES_KEPT: Final = 1_024
"""Beyond this number of leases, those that have closed are forgotten."""


class Flow:
    """One client's deliveries. All methods belong to the loop's thread."""

    def __init__(self, ctx: Context, values: Mapping[str, Any]) -> None:
        """`values` = members of the query. Raises a Problem if the group does not exist."""
        self.node, self.caller, self.topic_key = ctx.node, ctx.caller, ctx.topic_key
        limits = ctx.node.engine.limits
        group = ctx.params["group"]
        the_group(ctx.node.engine.state.topics.get(ctx.topic_key), group)
        self.place = (*ctx.topic_key, group)
        self.form: str = values["form"] or "json"
        self.credit = Credit(values["messages"], values["bytes"], limits.leased_max)
        self._messages_max = limits.receive_max if self.form == "bulk" else PLAIN_MESSAGES_MAX
        self._call = ReceiveCall(
            0,
            lease_ms=values["lease_ms"] or None,
            group=group,
            only=TagFilter.parse(values["tags"], values["tags_mode"] or "any"),
            begin=None if values["begin"] else 0,
            consumer=(values["consumer"] or b"").decode(),
            address=ctx.address,
        )
        self._fitting = _FITTING
        self._leases: dict[int, tuple[int, int]] = {}
        """Messages and bytes of each lease, open or not."""
        self.ended: asyncio.Future[EngineError] = asyncio.get_running_loop().create_future()
        """Why the broker ends the flow, once it does."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """While it is open, the node ends it when it stops, or does not lead any more."""
        streams = self.node.waiters.streams
        streams.add(self.place, self)
        try:
            yield
        finally:
            streams.remove(self.place, self)

    def end(self, why: EngineError) -> None:
        """End it; the carrier tells the client why."""
        if not self.ended.done():
            self.ended.set_result(why)

    async def next(self, wait_ms: int) -> Delivery | None:
        """Lease messages for the next frame; None if none became ready in time.

        There must be credit. Raises EngineError.
        """
        credit = self.credit
        assert credit, "the carrier waits for credit"
        asked = replace(
            self._call,
            count_max=min(credit.messages, self._messages_max, self._fitting),
            bytes_max=min(credit.bytes, FRAME_BYTES),
            wait_ms=wait_ms,
        )
        found = await long_poll(self.node, self.topic_key, asked)
        if found is None:
            return None
        count, size = found.count, len(found.records)
        credit.take(count, size)
        if len(self._leases) >= LEASES_KEPT:
            self._open_leases()
        self._leases[found.lease] = count, size
        # A look-up that finds many large messages puts most of them back.
        self._fitting = max(2 * FRAME_BYTES * count // max(size, 1), 1)
        return found

    def unsettled(self) -> tuple[int, int]:
        """Messages, and about how many bytes, that are still under lease."""
        messages = size = 0
        for number, (count, bytes_) in self._open_leases().items():
            lease = self.node.engine.state.leases.get(number)
            if lease is not None:
                messages += lease.open_count
                size += bytes_ * lease.open_count // count
        return messages, size

    def _open_leases(self) -> dict[int, tuple[int, int]]:
        leases = self.node.engine.state.leases
        closed = [number for number in self._leases if leases.get(number) is None]
        for number in closed:
            del self._leases[number]
        return self._leases

    async def give_back(self) -> None:
        """Make all messages that are still under lease ready for others, as never received."""
        receipts = [Receipts(number) for number in self._open_leases()]
        if receipts:
            untried = Settling("extend", lease_ms=0)
            await self.node.turn.settles.settle(self.topic_key, untried, receipts)
