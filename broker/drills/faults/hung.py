"""A leader that hangs for long, and clients of the SDK with a long time limit.

Two clients are made as the documentation shows: one sends, the other one receives. Their topic is
their own. They have a time limit of minutes and no repeats besides the SDK's, so the pauses that
they see are the SDK's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from delaylog.broker.drills.faults.processes import stop_leader
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.rounds import Stage
from delaylog.broker.drills.timeline import Served, Timeline, wall_ms
from delaylog.client import AsyncClient
from delaylog.client.models import Settled

# -------------------------------------------------------------------------------------- clients

TOPIC: Final = "drill-sdk"
LIMIT: Final = timedelta(minutes=5)
SEND_EVERY_S: Final = 0.05
RECEIVE_MAX: Final = 20
WAIT: Final = timedelta(seconds=5)
LEASE: Final = timedelta(seconds=5)
END_S: Final = 60.0


class SdkClients:
    """The two clients; they work while the block runs."""

    def __init__(self, urls: Sequence[str]) -> None:
        members = ",".join(urls)
        self.timeline = Timeline()
        self.sends_ended_ms = 0.0
        self._sender = AsyncClient(members, timeout=LIMIT)
        self._receiver = AsyncClient(members, timeout=LIMIT)
        self._sent: set[str] = set()
        """Bodies of the sends that were acknowledged."""
        self._ids: defaultdict[str, set[str]] = defaultdict(set)
        """The ids under which each body was received: several if a send was carried out twice."""
        self._acknowledged: set[str] = set()
        self._after_ack: list[str] = []
        self._stopping = False

    async def __aenter__(self) -> SdkClients:
        loop = asyncio.get_running_loop()
        self._sending = loop.create_task(self._send())
        self._receiving = loop.create_task(self._receive())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = (self._sending, self._receiving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(
            *(each.close(within=timedelta(0)) for each in (self._sender, self._receiver))
        )

    async def both_work(self) -> None:
        """Wait for a send and a delivery. Raises DrillError."""
        if await self.timeline.serving_again(0.0, 0.0, END_S) is None:
            raise DrillError("the clients of the SDK did not work before the fault")

    async def end(self) -> list[str]:
        """Stop the sender and receive the rest. Return a text for each promise that was broken."""
        self._stopping = True
        wrong = []
        try:
            async with asyncio.timeout(END_S):
                await self._sending
                self.sends_ended_ms = wall_ms()
                while not self._sent <= self._ids.keys():
                    if self._receiving.done():
                        await self._receiving
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.sends_ended_ms = self.sends_ended_ms or wall_ms()
            wrong.append(f"{len(self._sent - self._ids.keys())} messages were lost")
        doubled = sum(len(ids) > 1 for ids in self._ids.values())
        if doubled:
            wrong.append(f"{doubled} sends were carried out twice")
        if self._after_ack:
            wrong.append(f"{len(self._after_ack)} messages came again after their ack")
        return wrong

    async def _send(self) -> None:
        number = 0
        while not self._stopping:
            number += 1
            body, began_ms = f"{id(self)} {number}", wall_ms()
            await self._sender.send(TOPIC, body)
            self._sent.add(body)
            self.timeline.sent(Served(began_ms, wall_ms(), 0))
            await asyncio.sleep(SEND_EVERY_S)

    async def _receive(self) -> None:
        while True:
            began_ms = wall_ms()
            messages = await self._receiver.receive(TOPIC, max=RECEIVE_MAX, wait=WAIT, lease=LEASE)
            if not messages:
                continue
            self.timeline.delivered(Served(began_ms, wall_ms(), 0))
            self._after_ack += [each.id for each in messages if each.id in self._acknowledged]
            for message in messages:
                self._ids[message.text].add(message.id)
            results = await self._receiver.ack(messages)
            pairs = zip(messages, results, strict=True)
            self._acknowledged |= {each.id for each, result in pairs if result is Settled.DONE}


# ------------------------------------------------------------------------------------ the fault

HUNG_S = (10.0, 30.0)
SENDS_RESUME_MS = 2_000.0
POLLS_RESUME_MS = 3_000.0


async def hang_leader(stage: Stage) -> None:
    """Stop the leader for 10 to 30 s. The SDK must go to its successor long before that."""
    async with SdkClients(list(stage.trio.urls.values())) as sdk:
        await sdk.both_work()
        await stop_leader(stage, stage.random.uniform(*HUNG_S))
        fault_ms = stage.rounds[-1].strike.fault_ms
        wrong = await sdk.end()
    sends_ms, polls_ms = sdk.timeline.longest_silence_ms(fault_ms, sdk.sends_ended_ms)
    stage.notes.append(
        f"SDK: at most {sends_ms:,.0f} ms without a send, {polls_ms:,.0f} ms without a message"
    )
    if sends_ms > SENDS_RESUME_MS:
        wrong.append(f"no send for {sends_ms:,.0f} ms; the limit is {SENDS_RESUME_MS:,.0f} ms")
    if polls_ms > POLLS_RESUME_MS:
        wrong.append(f"no message for {polls_ms:,.0f} ms; the limit is {POLLS_RESUME_MS:,.0f} ms")
    stage.broken += [f"round {len(stage.rounds)}: SDK: {text}" for text in wrong]
