"""Calls to an old leader, which it finds in its sockets when it continues, to catch wrong answers.

The witness calls only this node, and only after the fault. A leader that was cut off or stopped
must not deliver messages or acknowledge sends any more, so any such answer is a violation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from delaylog.broker.drills.load import CONSUMER_SHAPE, LEASE_MS, PLACE
from delaylog.broker.drills.rounds import Stage
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.history import body_hash

RECEIVES: Final = 2
SENDS: Final = 2
EVERY_S: Final = 0.05
TIMEOUT_S: Final = 45.0
"""Longer than any drill stops a node: the calls are still open when it continues."""


class Witness:
    """Receives and sends to the node at `url`, begun when the block is entered."""

    def __init__(self, url: str, stage: Stage) -> None:
        self._url = url + PLACE
        self._stage = stage
        self._calls: list[asyncio.Task[str | None]] = []
        self._ended = False

    async def __aenter__(self) -> Witness:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        loop = asyncio.get_running_loop()
        self._calls = [
            *(loop.create_task(self._receive()) for _ in range(RECEIVES)),
            *(loop.create_task(self._send()) for _ in range(SENDS)),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._session.close()

    async def report_answers(self, who: str, *, leads: bool = False) -> None:
        """Wait for the answers, and add each violation to the stage.

        `leads`: no other node has led meanwhile, so each answer was right.
        """
        self._ended = True
        for answer in await asyncio.gather(*self._calls):
            if answer is not None and not leads:
                self._stage.broken.append(f"{who} {answer}")

    async def _receive(self) -> str | None:
        """Receive again and again until `report_answers` is called; return a violation, if any."""
        found = None
        while found is None and not self._ended:
            found = await self._receive_once()
            await asyncio.sleep(EVERY_S)
        return found

    async def _receive_once(self) -> str | None:
        shape = {**CONSUMER_SHAPE, "wait_ms": 500}
        t0 = int(wall_ms())
        status, answer = await self._post("/receive", shape)
        self._stage.recorder.call("deliver", t0, int(wall_ms()), None, lease_ms=LEASE_MS)
        if status == 200 and answer["messages"]:
            return f"handed out {len(answer['messages'])} messages at {answer['now_ms']}"
        return None

    async def _send(self) -> str | None:
        body = f"witness {wall_ms()} {id(asyncio.current_task())}"
        t0 = int(wall_ms())
        status, answer = await self._post("/messages", {"body": body, "delay_ms": 0})
        # The client cannot know whether the message is in the log, whatever the old leader says.
        hashed = body_hash(body.encode())
        self._stage.recorder.call("send", t0, int(wall_ms()), None, due=t0, body=hashed)
        return f"acknowledged a send as {answer['id']}" if status == 200 else None

    async def _post(self, path: str, shape: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json"}
        body = json.dumps(shape).encode()
        try:
            async with self._session.post(
                self._url + path, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status, read = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, {}
        return status, json.loads(read) if status == 200 else {}
