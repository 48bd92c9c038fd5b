"""Calls to an old leader, which it finds in its sockets when it continues, to catch wrong answers.

The witness calls only this node, and only after the fault. A leader that was cut off or stopped
must not deliver messages or acknowledge sends until it is elected again, so any such answer is a
violation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import aiohttp

from delaylog.broker.drills.load import CONSUMER_SHAPE, LEASE_MS, PLACE
from delaylog.broker.drills.node_watch import LogMark
from delaylog.broker.drills.rounds import Stage
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.history import body_hash

RECEIVES: Final = 2
SENDS: Final = 2
EVERY_S: Final = 0.05
TIMEOUT_S: Final = 45.0
"""Longer than any drill stops a node: the calls are still open when it continues."""


class Answer(NamedTuple):
    """An answer that only a leader may give."""

    at_ms: int
    """When it was received. A leader that was stopped may state an older time in it."""
    text: str


class Witness:
    """Receives and sends to the node at `url`, begun when the block is entered."""

    def __init__(self, url: str, stage: Stage) -> None:
        self._url = url + PLACE
        self._stage = stage
        self._calls: list[asyncio.Task[Answer | None]] = []
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

    async def report_answers(self, who: str, leader: int, logs: LogMark) -> None:
        """Wait for the answers, and add each violation to the stage."""
        self._ended = True
        for answer in await asyncio.gather(*self._calls):
            if answer is not None and not logs.led(leader, answer.at_ms):
                self._stage.broken.append(f"{who} {answer.text}")

    async def _receive(self) -> Answer | None:
        """Receive again and again until `report_answers` is called; return what an answer gave."""
        found = None
        while found is None and not self._ended:
            found = await self._receive_once()
            await asyncio.sleep(EVERY_S)
        return found

    async def _receive_once(self) -> Answer | None:
        shape = {**CONSUMER_SHAPE, "wait_ms": 500}
        t0 = int(wall_ms())
        status, answer = await self._post("/receive", shape)
        t1 = int(wall_ms())
        self._stage.recorder.call("deliver", t0, t1, None, lease_ms=LEASE_MS)
        if status == 200 and answer["messages"]:
            count, at_ms = len(answer["messages"]), answer["now_ms"]
            return Answer(t1, f"handed out {count} messages at {at_ms}")
        return None

    async def _send(self) -> Answer | None:
        body = f"witness {wall_ms()} {id(asyncio.current_task())}"
        t0 = int(wall_ms())
        status, answer = await self._post("/messages", {"body": body, "delay_ms": 0})
        # The client cannot know whether the message is in the log, whatever the old leader says.
        hashed = body_hash(body.encode())
        t1 = int(wall_ms())
        self._stage.recorder.call("send", t0, t1, None, due=t0, body=hashed)
        return Answer(t1, f"acknowledged a send as {answer['id']}") if status == 200 else None

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
