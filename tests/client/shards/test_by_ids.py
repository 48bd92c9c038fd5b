"""Ids that are looked for at several shards of which some fail: what is known is not lost."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from aiohttp import web

from delaylog.client import (
    AnswerLost,
    Changed,
    ClientError,
    DiskFull,
    NotFound,
    NotReached,
    ReplayFailed,
    SettleFailed,
)
from delaylog.client.errors import api_error
from delaylog.client.models import Settled
from delaylog.client.shards.answers import ByIds
from tests.client.scenes import drained, not_ready, serving

AWAY = NotReached("http://b:1: refused")
LOST = AnswerLost("http://b:1: broken")
LACKS = api_error(404, {"code": "unknown"})
DONE, UNKNOWN, GONE = Settled.DONE, Settled.UNKNOWN, Settled.GONE
Said = dict[int, Settled] | ClientError


def said(count: int, *rounds: tuple[list[int], Said]) -> list[Settled]:
    """Each round: the places that would be asked for, and what the shard says of those left."""
    found = ByIds(count, UNKNOWN, SettleFailed)
    for asked, answer in rounds:
        left = found.left(asked)
        if isinstance(answer, ClientError):
            found.failed(left, answer)
        else:
            found.answered(left, [answer.get(place, UNKNOWN) for place in left])
    return found.results()


def test_each_is_looked_for_until_a_shard_knows_it() -> None:
    assert said(3, ([0, 1], {0: DONE}), ([2], {}), ([2], {2: GONE}), ([0, 1], {1: DONE})) == [
        DONE,
        DONE,
        GONE,
    ]
    assert said(2, ([0, 1], {}), ([0, 1], {1: DONE})) == [UNKNOWN, DONE]
    assert said(0) == []


def test_a_shard_that_fails_matters_only_for_what_no_other_knows() -> None:
    assert said(2, ([0, 1], AWAY), ([0, 1], {0: DONE, 1: GONE})) == [DONE, GONE]
    with pytest.raises(SettleFailed, match="1 of 3 were not settled; the first: http://b:1") as got:
        said(3, ([0], {0: DONE}), ([1, 2], AWAY), ([1, 2], {2: DONE}), ([0], LOST))
    assert got.value.results == [DONE, AWAY, DONE]
    copied = pickle.loads(pickle.dumps(got.value))
    assert (str(copied), copied.results[2]) == (str(got.value), DONE)


def test_the_first_error_of_an_id_is_told() -> None:
    with pytest.raises(SettleFailed) as got:
        said(2, ([0], LOST), ([1], {1: DONE}), ([0], AWAY))
    assert got.value.results == [LOST, DONE]


@pytest.mark.parametrize("error", [AWAY, LOST, LACKS])
def test_where_all_fail_alike_it_is_their_own_error(error: ClientError) -> None:
    with pytest.raises(type(error)):
        said(2, ([0, 1], error))
    with pytest.raises(type(error)):
        said(2, ([0], error), ([1], error), ([1], error), ([0], error))


def test_a_shard_without_the_topic_knows_none_of_them() -> None:
    assert said(2, ([0, 1], LACKS), ([0, 1], {0: DONE})) == [DONE, UNKNOWN]
    with pytest.raises(SettleFailed):
        said(2, ([0, 1], LACKS), ([0, 1], AWAY))


async def test_a_shard_that_is_away_and_one_that_is_there(
    make: Any, two_brokers: Any, topic: str
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        await request.read()
        return not_ready(507, "disk_full")

    async with serving(refuse) as url:
        here = two_brokers[0]
        async with make(here, url) as client:
            ids = [f"id-{n}" for n in range(20)]
            await client.send_columns(topic, [b"x"] * 10, ids=ids[:10], shard=here)
            async with make(here) as other:
                await drained(other, topic, 10)
            with pytest.raises(SettleFailed) as settled:
                await client.settle_ids(topic, "ack", ids)
            results = settled.value.results
            assert results[:10] == [DONE] * 10, "wherever their home is"
            assert {type(each) for each in results[10:]} == {DiskFull}
            with pytest.raises(ReplayFailed, match="10 of 20 were not replayed") as replayed:
                await client.replay(topic, ids)
            assert replayed.value.results[:10] == [Changed("too_late", "acked")] * 10
            with pytest.raises(NotFound):
                await client.replay(f"{topic}-never", ids, shard=here)
