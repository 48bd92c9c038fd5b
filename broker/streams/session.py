"""The protocol of a stream over a duplex connection, such as a WebSocket.

Three tasks share a connection: one reads frames of the client, one leases and sends messages, one
tells the client what is settled. A frame of deliveries is leased when the connection has taken the
one before, so a slow reader costs the memory of one frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from delaylog.broker.calls.answers import problem_of
from delaylog.broker.calls.turn.settles import settle_bulk, settle_named
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.streams.frames import Grant, Settle, Stop, decode, delivery_frame, frame
from delaylog.contract.calls.streams import CLIENT_FRAME_BYTES_MAX, HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from delaylog.broker.streams.flow import Flow

SETTLES_MAX: Final = 64
"""Settling frames whose outcome is awaited; beyond it no further frame is read."""
QUOTA_SECONDS: Final = 0.05
"""How often a caller over its limit of calls is looked at again; meanwhile nothing is read."""
SHARE_BYTES: Final = 65_536
"""Bytes of frames that are read before other tasks run."""
FRAME_COST_BYTES: Final = 2_048
"""What the smallest frame counts as: it takes tens of microseconds, whatever it has."""
HEARTBEAT_MS: Final = round(HEARTBEAT_SECONDS * 1000)


class Channel(Protocol):
    """A duplex connection that carries whole frames."""

    async def read(self) -> str | bytes | None:
        """The next frame of the client; None when the connection has ended."""

    async def write(self, raw: bytes) -> None:
        """Send a frame; returns when the connection can take another one."""


class Session:
    """One client's stream."""

    def __init__(self, flow: Flow, channel: Channel) -> None:
        self._flow = flow
        self._channel = channel
        self._node = flow.node
        self._count = 0
        """Settling frames that have arrived."""
        self._last_wanted: object = None
        self._leasing: asyncio.Task[None] | None = None
        """Leases and sends messages; cancelled when the client takes its credit back."""
        self._pending: deque[asyncio.Task[dict[str, Any] | None]] = deque()
        """The outcomes of settling frames that were not told yet, in order."""
        self._arrived = asyncio.Event()
        self._room = asyncio.Semaphore(SETTLES_MAX)

    async def run(self) -> EngineError | None:
        """Carry the stream until it ends; returns why the broker ends it, None if the client left.

        Raises errors that are no refusals.
        """
        flow = self._flow
        with flow.opened():
            tasks = [
                asyncio.create_task(work)
                for work in (self._deliver(), self._read(), self._tell_settled())
            ]
            try:
                first: list[asyncio.Future[Any]] = [*tasks, flow.ended]
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancel(tasks)
                for settling in self._pending:
                    # It is carried out; its outcome cannot be told any more.
                    settling.add_done_callback(_look_at)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, ConnectionError):
                return None
            if isinstance(error, Exception):
                why = problem_of(error)
                if why is None:
                    raise error
                return why
        return flow.ended.result() if flow.ended.done() else None

    # ------------------------------------------------------------------ three tasks

    async def _read(self) -> None:
        flow, node = self._flow, self._node
        share = 0
        while (raw := await self._channel.read()) is not None:
            await self._admitted()
            # Frames that have arrived are read without waiting for anything.
            share += max(len(raw), FRAME_COST_BYTES)
            if share >= SHARE_BYTES:
                share = 0
                await node.pause()
            asked = decode(raw, node.engine.limits)
            if isinstance(asked, Grant):
                flow.credit.give(asked.messages, asked.bytes)
                continue
            if isinstance(asked, Stop):
                flow.credit.set(0, 0)
                if self._leasing is not None:
                    self._leasing.cancel()
                continue
            await node.room_for_changes(rows=False)
            if asked.wanted != self._last_wanted:
                # Settles of one turn are merged by kind; a turn apart, they keep their order.
                await node.pause()
                self._last_wanted = asked.wanted
            await self._room.acquire()
            self._count += 1
            self._pending.append(asyncio.create_task(self._settle(self._count, asked)))
            self._arrived.set()

    async def _deliver(self) -> None:
        flow = self._flow
        await self._send(
            {
                "open": {
                    "heartbeat_ms": HEARTBEAT_MS,
                    "frame_bytes_max": CLIENT_FRAME_BYTES_MAX,
                    "messages": flow.credit.messages,
                    "bytes": flow.credit.bytes,
                },
                "now_ms": self._node.clock.now_ms(),
            }
        )
        while True:
            leasing = self._leasing = asyncio.create_task(self._lease_and_send())
            try:
                await asyncio.wait((leasing,))
            finally:
                leasing.cancel()
            if not leasing.cancelled():
                # It ends by an error only.
                leasing.result()
            await self._send({"stopped": True})

    async def _lease_and_send(self) -> None:
        flow, channel, node = self._flow, self._channel, self._node
        while True:
            found = None
            if await flow.credit.wait(HEARTBEAT_SECONDS):
                found = await flow.next(HEARTBEAT_MS)
            now_ms = node.clock.now_ms()
            if found is None:
                await self._send({"now_ms": now_ms})
            else:
                await channel.write(delivery_frame(found, flow.form, now_ms))

    async def _tell_settled(self) -> None:
        told = done = 0
        while True:
            while self._pending:
                task = self._pending[0]
                if not task.done():
                    if told < done:
                        await self._send({"settled": done})
                        told = done
                    # To await the task itself would cancel it together with this one.
                    await asyncio.wait((task,))
                gone = task.result()
                self._pending.popleft()
                self._room.release()
                done += 1
                if gone is not None:
                    await self._send(gone)
            if told < done:
                await self._send({"settled": done})
                told = done
            self._arrived.clear()
            await self._arrived.wait()

    async def _settle(self, number: int, asked: Settle) -> dict[str, Any] | None:
        """Carry a frame out; returns what tells its failures, None if there are none."""
        began_s = self._node.time_s()
        try:
            return await self._carry_out(number, asked)
        finally:
            seconds = self._node.time_s() - began_s
            self._node.timings.note_request("websocket", asked.wanted.verb, seconds)

    async def _carry_out(self, number: int, asked: Settle) -> dict[str, Any] | None:
        flow = self._flow
        if asked.columns is not None:
            gone = (await settle_bulk(flow, asked.wanted, asked.columns)).gone_column
            if not len(gone):
                return None
            return {
                "frame": number,
                "lease": asked.columns.lease,
                "gone": gone.tolist() if flow.form == "json" else gone.tobytes(),
            }
        results = await settle_named(flow, asked.wanted, asked.named)
        lost = [
            receipt
            for receipt, result in zip(asked.receipts, results, strict=True)
            if result != "done"
        ]
        return {"frame": number, "gone": lost} if lost else None

    async def _admitted(self) -> None:
        """Wait until the caller's limit of calls allows another one."""
        caller = self._flow.caller
        while caller.calls is not None:
            try:
                caller.take_call(self._node.clock.now_ms())
            except EngineError:
                await self._node.pause(QUOTA_SECONDS)
            else:
                return

    async def _send(self, members: dict[str, Any]) -> None:
        await self._channel.write(frame(members, self._flow.form))


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _look_at(settling: asyncio.Task[Any]) -> None:
    """Keep asyncio from logging a failure that nobody is told."""
    if not settling.cancelled():
        settling.exception()
