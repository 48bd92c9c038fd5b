"""What pushes leave in memory: nothing that grows with their number, and no cycles.

The collector of a broker may freeze what is in use (`broker/process/parts.py`), so a cycle
around an attempt would never be freed. docs/design/push.md has a long run.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from delaylog.broker.push.attempts import Attempts
from delaylog.broker.push.outcomes import Verdict
from delaylog.broker.rules.push_addresses import AddressRules
from tests.broker.push.receivers import Receiver, Script, answer, hang, raw
from tests.broker.push.test_attempts import LOOPBACK, REQUEST
from tests.broker.push.test_pusher import pushing

pytestmark = pytest.mark.processes
ATTEMPTS = 100
STEP = 1_000
"""Messages that are pushed before the first count, and between two of them."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        (answer(200, body=b"ok"), Verdict.ACKED),
        (answer(500, body=b"no"), Verdict.FAILED),
        (raw(b""), Verdict.FAILED),
        (hang, Verdict.FAILED),
    ],
)
def test_an_attempt_leaves_no_cycles(script: Script, verdict: Verdict) -> None:
    """On the broker's loop: transports of the standard library's loop are cycles."""
    uvloop.run(_attempts(script, verdict))


async def _attempts(script: Script, verdict: Verdict) -> None:
    async with Receiver(script) as receiver:
        rules = AddressRules(LOOPBACK, frozenset((receiver.port,)))
        attempts = Attempts(rules, now_ms=lambda: time.time_ns() // 1_000_000)
        url = f"http://127.0.0.1:{receiver.port}/"
        timeout_ms = 200 if script is hang else 10_000
        await attempts.post(url, REQUEST, timeout_ms)
        gc.collect()
        for _ in range(ATTEMPTS // 10):
            posts = (attempts.post(url, REQUEST, timeout_ms) for _ in range(10))
            assert {each.verdict for each in await asyncio.gather(*posts)} == {verdict}
        await asyncio.sleep(0.05)
        found = gc.collect()
        await attempts.close()
    assert found < ATTEMPTS


async def test_memory_does_not_grow_with_the_number_of_pushes(tmp_path: Path) -> None:
    """Blocks of Python's allocator: a list, task or future that each push leaves is seen."""
    async with Receiver(answer(200)) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.target(receiver)
        blocks: list[int] = []
        for number in range(3):
            push.it.send(STEP)
            await push.counts(acked=(number + 1) * STEP, leased=0)
            receiver.requests.clear()
            await asyncio.sleep(0.1)
            gc.collect()
            blocks.append(sys.getallocatedblocks())
        assert min(blocks[1] - blocks[0], blocks[2] - blocks[1]) < STEP / 2
