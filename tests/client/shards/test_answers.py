"""What calls over several shards answer: of which some fail, by ids, and summed.

Nothing that other shards have answered is lost behind the failure of one.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
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
    ShardsFailed,
)
from delaylog.client.errors import api_error
from delaylog.client.models import Forecast, ForecastSlot, Settled
from delaylog.client.shards.answers import ByIds, OverShards, Shape, list_failed, merged_forecast
from tests.client.scenes import drained, not_ready, serving

AWAY = NotReached("http://b:1: refused")
LOST = AnswerLost("http://b:1: broken")
LACKS = api_error(404, {"code": "unknown"})
CONFLICT = api_error(409, {"code": "conflict"})
NAMES = ("a", "b", "c")


def total(shapes: Sequence[Shape]) -> int:
    return sum(each["n"] for each in shapes)


def said(*heard: int | ClientError, go_on: bool = True, may_lack: bool = True) -> int:
    """The call at shards that say this in turn."""
    over = OverShards("purge of 't'", NAMES[: len(heard)], go_on=go_on, may_lack=may_lack)
    for name, one in zip(NAMES, heard, strict=False):
        if isinstance(one, int):
            over.answered(name, {"n": one})
        elif not over.failed(name, one):
            break
    return over.joined(total)


def test_answers_are_summed_and_shards_that_lack_it_count_as_nothing() -> None:
    assert said(1, 2, 4) == 7
    assert said(1, LACKS, 4) == 5
    with pytest.raises(NotFound):
        said(LACKS, LACKS)


@pytest.mark.parametrize("error", [AWAY, LOST, CONFLICT])
def test_where_all_shards_fail_alike_it_is_their_own_error(error: ClientError) -> None:
    with pytest.raises(type(error)):
        said(error, error)
    with pytest.raises(type(error)):
        said(error, 3, go_on=False)


def test_the_error_names_what_was_done_and_what_was_not() -> None:
    with pytest.raises(ShardsFailed) as caught:
        said(3, AWAY, LACKS)
    error = caught.value
    assert (error.answers, error.errors) == ({"a": 3}, {"b": AWAY, "c": LACKS})
    assert str(error) == (
        "purge of 't': b failed: http://b:1: refused; c failed: 404 unknown: ; answered by a (3)"
    )
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.answers, str(copied)) == ({"a": 3}, str(error))


def test_shards_that_were_left_alone_are_named() -> None:
    with pytest.raises(ShardsFailed, match=r"not asked: c$") as caught:
        said(3, CONFLICT, 5, go_on=False)
    assert (caught.value.answers, caught.value.not_asked) == ({"a": 3}, ("c",))
    with pytest.raises(ShardsFailed) as caught:
        said(3, LACKS, may_lack=False)
    assert caught.value.errors == {"b": LACKS}


def test_different_failures_are_all_told() -> None:
    with pytest.raises(ShardsFailed) as caught:
        said(AWAY, LOST)
    assert caught.value.errors == {"a": AWAY, "b": LOST}


def test_a_list_names_the_shard_and_the_way_out() -> None:
    error = list_failed("messages", "t", "b", AWAY)
    assert error.errors == {"b": AWAY}
    assert "the list of messages of 't' (shard= lists one shard alone): b failed" in str(error)


DONE, UNKNOWN, GONE = Settled.DONE, Settled.UNKNOWN, Settled.GONE
Found = dict[int, Settled] | ClientError


def by_ids(count: int, *rounds: tuple[list[int], Found]) -> list[Settled]:
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
    assert by_ids(3, ([0, 1], {0: DONE}), ([2], {}), ([2], {2: GONE}), ([0, 1], {1: DONE})) == [
        DONE,
        DONE,
        GONE,
    ]
    assert by_ids(2, ([0, 1], {}), ([0, 1], {1: DONE})) == [UNKNOWN, DONE]
    assert by_ids(0) == []


def test_a_shard_that_fails_matters_only_for_what_no_other_knows() -> None:
    assert by_ids(2, ([0, 1], AWAY), ([0, 1], {0: DONE, 1: GONE})) == [DONE, GONE]
    with pytest.raises(SettleFailed, match="1 of 3 were not settled; the first: http://b:1") as got:
        by_ids(3, ([0], {0: DONE}), ([1, 2], AWAY), ([1, 2], {2: DONE}), ([0], LOST))
    assert got.value.results == [DONE, AWAY, DONE]
    copied = pickle.loads(pickle.dumps(got.value))
    assert (str(copied), copied.results[2]) == (str(got.value), DONE)


def test_the_first_error_of_an_id_is_told() -> None:
    with pytest.raises(SettleFailed) as got:
        by_ids(2, ([0], LOST), ([1], {1: DONE}), ([0], AWAY))
    assert got.value.results == [LOST, DONE]


@pytest.mark.parametrize("error", [AWAY, LOST, LACKS])
def test_where_all_fail_alike_about_ids_it_is_their_own_error(error: ClientError) -> None:
    with pytest.raises(type(error)):
        by_ids(2, ([0, 1], error))
    with pytest.raises(type(error)):
        by_ids(2, ([0], error), ([1], error), ([1], error), ([0], error))


def test_a_shard_without_the_topic_knows_none_of_them() -> None:
    assert by_ids(2, ([0, 1], LACKS), ([0, 1], {0: DONE})) == [DONE, UNKNOWN]
    with pytest.raises(SettleFailed):
        by_ids(2, ([0, 1], LACKS), ([0, 1], AWAY))


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


OLD: dict[str, Any] = {
    "topic": "t",
    "now_ms": 5,
    "minutes": [{"from_ms": 0, "count": 1}],
    "hours": [],
    "later": 2,
}


def shape(from_ms: int, until_ms: int, *, left: bool) -> dict[str, Any]:
    """What a shard with three schedules answers."""
    slots = [{"from_ms": from_ms, "count": 1, "firings": 4}]
    counted = {"schedules": 3, "schedules_left": left, "firings_until_ms": until_ms}
    return {"topic": "t", "now_ms": 5, "minutes": slots, "hours": slots, "later": 2, **counted}


def test_firings_are_summed_by_slot() -> None:
    merged = merged_forecast([shape(0, 90, left=False), shape(0, 70, left=True)])
    assert merged.minutes == merged.hours == (ForecastSlot(0, 2, 8),)
    assert (merged.schedules, merged.schedules_left, merged.firings_until_ms) == (6, True, 70)
    assert merged_forecast([shape(0, 90, left=False), shape(60, 90, left=False)]).minutes == (
        ForecastSlot(0, 1, 4),
        ForecastSlot(60, 1, 4),
    )


def test_a_broker_without_schedules_has_none() -> None:
    assert Forecast.of(OLD).minutes == (ForecastSlot(0, 1, 0),)
    merged = merged_forecast([OLD, OLD])
    assert (merged.later, merged.schedules, merged.firings_until_ms) == (4, 0, None)
    assert merged_forecast([OLD, shape(0, 90, left=False)]).firings_until_ms == 90
