"""The same history on two servers gives the same replies and leaves the same data.

Method: a seeded history of a recipe runs on the reference and is recorded; its commands are sent
to the endpoint in the same trips; every reply, refusals with their words included, and the final
content of every key must be equal.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.redis.recipes.histories import HISTORIES, Recorder, replay
from tests.redis.recipes.support import contents
from tests.redis.servers import RedisServer

STEPS = 250


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("history", sorted(HISTORIES))
def test_replies_and_data_are_the_same(
    reference: RedisServer, endpoint: RedisServer, history: str, seed: int, protocol: int
) -> None:
    with reference.client(protocol=protocol) as client:
        client.flushall()
        client.script_flush()
        recorder = Recorder(client)
        HISTORIES[history](recorder, Random(seed), STEPS)
    with endpoint.client(protocol=protocol) as client:
        client.flushall()
        client.script_flush()
        replayed = replay(client, recorder.steps)
    assert len(replayed) == len(recorder.steps)
    for number, (expected, actual) in enumerate(zip(recorder.steps, replayed, strict=True)):
        assert actual == expected, f"seed {seed}, step {number}"
    with reference.client() as left, endpoint.client() as right:
        data = contents(left)
        assert contents(right) == data
        expiring = {key for key in data if left.pttl(key) >= 0}
        assert {key for key in data if right.pttl(key) >= 0} == expiring
    assert data
