"""Client and AsyncClient on two real brokers as shards, by the same scenes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgpack
import numpy as np
import pytest
from aiohttp import web

from delaylog.client import (
    ByKey,
    NotFound,
    NotReached,
    RoundRobin,
    Settled,
    Shard,
    ShardsFailed,
    TooLate,
    TopicSettings,
)
from delaylog.client.wire.bulk import BULK_TYPE
from tests.client.scenes import deaf_url, drained, leased, serving

DONE, GONE, UNKNOWN = Settled.DONE, Settled.GONE, Settled.UNKNOWN
FAR_MS = 3_600_000


async def test_receiving_from_all_shards(make: Any, two_brokers: Any, topic: str) -> None:
    """Equal ids that two brokers made are told apart, and each ack finds its broker."""
    async with make(*two_brokers) as client:
        for shard in two_brokers:
            answer = await client.send_columns(topic, [b"1", b"2"], shard=shard)
            assert answer.shard == shard
        found = await drained(client, topic, 4)
        assert sorted(message.shard for message in found) == sorted(two_brokers * 2)
        assert await client.ack(found) == [DONE] * 4
        assert await client.receive(topic, wait=timedelta(milliseconds=30)) == []
        stats = await client.stats(topic)
        assert (stats.counts.acked, stats.sent) == (4, 4)


async def test_what_came_late_is_handed_out_next_and_nothing_twice(
    make: Any, two_brokers: Any, topic: str
) -> None:
    async with make(*two_brokers) as client:
        for shard in two_brokers:
            await client.send_columns(topic, [b"%d" % n for n in range(50)], shard=shard)
        seen: list[Any] = []
        while len(seen) < 100:
            found = await client.receive(topic, max=7, wait=timedelta(seconds=5))
            assert 1 <= len(found) <= 7
            seen += found
        assert await client.receive(topic) == []
        assert len({(message.shard, message.ref) for message in seen}) == len(seen) == 100
        assert {message.attempts for message in seen} == {1}
        assert await client.ack(seen) == [DONE] * 100


async def test_close_gives_back_what_nobody_took(make: Any, two_brokers: Any, topic: str) -> None:
    """A lease of an hour would hide them else."""
    async with make(*two_brokers) as client:
        for shard in two_brokers:
            await client.send_columns(topic, [b"1", b"2"], shard=shard)
        (taken,) = await client.receive(
            topic, max=1, wait=timedelta(seconds=5), lease=timedelta(hours=1)
        )
        # Whatever the other poll brings is there now, or comes and is ended by close.
        await leased(client, topic, 2)
    async with make(*two_brokers) as client:
        others = await drained(client, topic, 3)
        assert (taken.shard, taken.ref) not in {(each.shard, each.ref) for each in others}


async def test_what_came_after_the_last_receive_is_given_back(
    make: Any, two_brokers: Any, topic: str
) -> None:
    """It was in nobody's hands, so it has not been tried: its only attempt is still to come."""
    near, far = two_brokers
    async with make(*two_brokers) as client:
        await client.send_columns(topic, [b"1"], shard=near)
        first = await client.receive(
            topic, max=1, wait=timedelta(seconds=5), lease=timedelta(seconds=4)
        )
        await client.ack(first)
        await client.send_columns(topic, [b"2"], max_retry=[0], shard=far)
        await leased(client, topic, 1)
        await leased(client, topic, 0, most=0)
        (left,) = [each async for each in client.browse(topic, shard=far)]
        assert (left.state, left.attempts) == ("ready", 0)


async def test_what_was_held_too_long_is_given_back(
    make: Any, two_brokers: Any, topic: str
) -> None:
    async with make(*two_brokers) as client:
        for shard in two_brokers:
            await client.send_columns(topic, [b"x"], shard=shard)
        (one,) = await client.receive(
            topic, max=1, wait=timedelta(seconds=5), lease=timedelta(seconds=4)
        )
        await leased(client, topic, 2)
        # More than half of the lease.
        await asyncio.sleep(2.3)
        (two,) = await drained(client, topic, 1)
        assert two.shard != one.shard or two.attempts == 2


async def test_a_dead_shard_holds_nobody_up(make: Any, two_brokers: Any, topic: str) -> None:
    dead = Shard(deaf_url(), name="dead")
    async with make(dead, two_brokers[0], timeout=timedelta(seconds=2)) as client:
        for _ in range(3):
            # Rows without a home go where somebody is.
            assert (await client.send_columns(topic, [b"x"])).shard == two_brokers[0]
        assert len(await drained(client, topic, 3)) == 3
        assert await client.receive(topic, max=3) == []
        await client.send_columns(topic, [b"seen"])
        assert [each.body for each in await client.peek(topic, max=3)] == [b"seen"]
        with pytest.raises(NotReached):
            await client.send_columns(topic, [b"x"], shard="dead")
        with pytest.raises(ShardsFailed, match="dead failed"):
            await client.stats(topic)
    async with make(dead) as client:
        with pytest.raises(NotReached):
            await client.receive(topic)
        with pytest.raises(NotReached):
            await client.peek(topic)
    async with make(dead, Shard(dead.url, name="too")) as client:
        with pytest.raises(NotReached):
            await client.receive(topic, wait=timedelta(milliseconds=100))
        with pytest.raises(NotReached):
            await client.receive(topic)


async def test_ids_are_found_at_any_shard(make: Any, two_brokers: Any, topic: str) -> None:
    """Also where a key led the message elsewhere; an id made by a broker needs its shard."""
    async with make(*two_brokers) as client:
        answer = None
        for number, shard in enumerate(two_brokers):
            answer = await client.send_columns(
                topic, [b"x"], ids=[f"own{number}"], delay_ms=FAR_MS, shard=shard
            )
            made = await client.send_columns(topic, [b"y"], delay_ms=FAR_MS, shard=shard)
        assert answer is not None
        for number, shard in enumerate(two_brokers):
            assert (await client.get(topic, f"own{number}")).shard == shard
        ref_id = f"~{int(made.refs[0]):016x}"
        with pytest.raises(ValueError, match="shard="):
            await client.get(topic, ref_id)
        assert (await client.get(topic, ref_id, shard=two_brokers[1])).body == b"y"
        assert (await client.cancel(topic, "own0")).state == "cancelled"
        assert (await client.cancel(topic, "own1")).state == "cancelled"
        with pytest.raises(NotFound):
            await client.get(topic, "nobody")
        with pytest.raises(TooLate):
            await client.reschedule(topic, "own1", delay=timedelta(0))
        due = [each.deliver_at_ms async for each in client.browse(topic)]
        assert len(due) == 4
        assert due == sorted(due)
        assert [each async for each in client.browse(topic + "x", shard=two_brokers[0])] == []


async def test_a_topic_is_made_and_dropped_everywhere(
    make: Any, two_brokers: Any, topic: str
) -> None:
    async with make(*two_brokers, namespace=topic) as client:
        await client.put_topic("a", TopicSettings(lease=timedelta(seconds=5)))
        await client.put_group("a", "g")
        for shard in two_brokers:
            async with make(shard, namespace=topic) as single:
                assert (await single.get_topic("a")).groups == ("default", "g")
                await single.send_columns("a", [b"1"], delay_ms=FAR_MS)
        assert (await client.get_topic("a")).counts.waiting == 2
        assert [each.counts.waiting for each in await client.groups("a")] == [2, 2]
        assert sum(hour.count for hour in (await client.forecast("a", hours=3)).hours) == 2
        assert await client.purge("a", group="g") == 2
        await client.drop_topic("a", force=True)
        assert await client.topics() == []


async def test_what_is_asked_of_all_shards_names_the_one_that_is_away(
    make: Any, two_brokers: Any, topic: str
) -> None:
    """What the other one has answered, or done, is told with the error."""
    here, away = two_brokers[0], deaf_url()
    async with make(here, away) as client:
        await client.send_columns(topic, [b"x", b"y"], delay_ms=FAR_MS, shard=here)
        for call in (client.stats, client.get_topic, client.groups, client.forecast):
            with pytest.raises(ShardsFailed, match=f"{away} failed: .*answered by") as caught:
                await call(topic)
            assert isinstance(caught.value.errors[away], NotReached)
            assert list(caught.value.answers) == [here]
        with pytest.raises(ShardsFailed) as caught:
            await client.stats(topic)
        assert caught.value.answers[here].counts.waiting == 2
        with pytest.raises(ShardsFailed) as caught:
            await client.topics()
        assert topic in [each.topic for each in caught.value.answers[here]]
        with pytest.raises(ShardsFailed, match="shard= lists one shard alone") as caught:
            assert [each async for each in client.browse(topic)]
        assert isinstance(caught.value.errors[away], NotReached)
        assert [each.shard async for each in client.browse(topic, shard=here)] == [here] * 2
        with pytest.raises(ShardsFailed, match=r"answered by .* \(2\)") as caught:
            await client.purge(topic)
        assert caught.value.answers == {here: 2}


async def test_what_is_about_one_broker_needs_its_name(
    make: Any, two_brokers: Any, topic: str
) -> None:
    async with make(*two_brokers) as client:
        with pytest.raises(ValueError, match="shard="):
            client.broker()
        with pytest.raises(ValueError, match="shard="):
            await client.send_columns(topic, [b"x"], ids=["a"])
        assert client.broker(two_brokers[0]) is not None
    async with make(*two_brokers, sharding=RoundRobin()) as client:
        shards = {(await client.send_columns(topic, [b"x"], ids=["a"])).shard for _ in "ab"}
        assert shards == set(two_brokers)


async def test_sends_without_a_home_prefer_the_own_zone(
    make: Any, two_brokers: Any, topic: str
) -> None:
    far, near = Shard(two_brokers[0], zone="far"), Shard(two_brokers[1], "near", "here")
    async with make(far, near, zone="here", sharding=ByKey()) as client:
        assert {(await client.send_columns(topic, [b"x"])).shard for _ in range(4)} == {"near"}


async def test_exact_tags_look_again(make: Any, two_brokers: Any, topic: str) -> None:
    """A server that hands out what was not asked for is what the second look is for."""
    settled: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        asked = msgpack.unpackb(await request.read())
        if request.path.endswith("/extend"):
            settled.append(asked)
            answer = {"n": 1, "done": 1, "gone": b"", "unknown": b""}
        else:
            answer = {"n": 3, "lease": 4, "lease_until_ms": 10**15, "now_ms": 1, "attempts": 1}
            answer |= {"refs": np.arange(3, dtype="<i8").tobytes(), "deliver_at_ms": 1}
            answer |= {"body_size": 0, "bodies": b"", "tags_size": 3, "tags": b"a\nbd\ncc\nb"}
        return web.Response(body=msgpack.packb(answer), content_type=BULK_TYPE)

    async with serving(handle) as url, make(url) as client:
        found = await client.receive(topic, max=3, tags=["a", "b"], exact_tags=True)
        assert [message.ref for message in found] == [0, 2]
        assert client.mismatched == 1
        found = await client.receive(
            topic, max=3, tags=["c", "b"], tags_mode="all", exact_tags=True
        )
        assert [message.ref for message in found] == [2]
    assert [each["lease_ms"] for each in settled] == [0, 0]
    assert np.frombuffer(settled[0]["refs"], "<i8").tolist() == [1]
