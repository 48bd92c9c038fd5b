"""Client and AsyncClient on real brokers, by the same scenes: one broker, two as shards, faults.

Servers made of aiohttp stand for brokers where a fault has to come at a certain moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import msgpack
import numpy as np
import pytest
from aiohttp import web

from delaylog.client import (
    AnswerLost,
    BadRequest,
    ByKey,
    ClientError,
    Conflict,
    Hooks,
    NotFound,
    NotReached,
    RoundRobin,
    Settled,
    SettleFailed,
    Shard,
    ShardsFailed,
    TooLate,
    TopicSettings,
)
from delaylog.client.bulk import BULK_TYPE
from tests.client.either import CLIENTS, ThreadedClient

DONE, GONE, UNKNOWN = Settled.DONE, Settled.GONE, Settled.UNKNOWN
FAR_MS = 3_600_000


@pytest.fixture(params=CLIENTS, ids=["async", "sync"])
def make(request: pytest.FixtureRequest) -> Any:
    """The kind of client."""
    return request.param


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex}"


async def deaf_url() -> str:
    """An address at which nobody listens."""
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return f"http://127.0.0.1:{port}"


async def drained(client: Any, topic: str, count: int, **options: Any) -> list[Any]:
    """So many messages, however many receives that takes."""
    found: list[Any] = []
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        found += await client.receive(topic, max=count - len(found), wait_ms=1_000, **options)
    assert len(found) == count
    return found


async def leased(client: Any, topic: str, least: int, *, most: int = 1_000) -> None:
    """Wait until so many are under lease: a poll that nobody waits for has brought its own."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if least <= (await client.stats(topic)).counts.leased <= most:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {least} to {most} were leased in time")


def bodies(messages: list[Any]) -> list[bytes]:
    return sorted(message.body for message in messages)


# --------------------------------------------------------------------------- one broker


def test_a_message_with_all_that_it_may_have(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(two_brokers[0]) as client:
            columns: dict[str, Any] = {"ids": ["own", ""], "keys": ["k", ""], "priority": [3, 0]}
            columns |= {"tags": [["a", "b"], []], "headers": [{"h": "é"}, {}]}
            answer = await client.send_columns(topic, [b"one", b"two"], delay_ms=0, **columns)
            assert (answer.n, answer.shard) == (2, two_brokers[0])
            one, two = sorted(await drained(client, topic, 2), key=lambda message: message.body)
            assert (one.id, one.key, one.tags, one.headers) == ("own", "k", ("a", "b"), {"h": "é"})
            assert (one.priority, one.attempts, one.text) == (3, 1, "one")
            assert (two.key, two.tags, two.headers, two.priority) == (None, (), {}, 0)
            assert two.id.startswith("~")
            assert two.ref == int(answer.refs[1])
            assert await client.ack([two, one]) == [DONE, DONE]
            assert await client.ack(one) == [GONE]

    asyncio.run(scene())


def test_settling_in_all_ways(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(two_brokers[0]) as client:
            await client.send_columns(topic, [b"a", b"b", b"c"])
            first = await drained(client, topic, 3)
            assert await client.nack(first[:1], delay_ms=0) == [DONE]
            assert await client.extend(first[1:2], lease_ms=0) == [DONE]
            again = await drained(client, topic, 2)
            # What was given back has not been tried.
            attempts = {message.id: message.attempts for message in again}
            assert attempts == {first[0].id: 2, first[1].id: 1}
            assert await client.extend(first[2], lease_ms=60_000) == [DONE]
            assert await client.ack([*first, *again]) == [GONE, GONE, DONE, DONE, DONE]
            assert await client.receive(topic) == []
            assert (await client.stats(topic)).counts.acked == 3
            assert await client.ack([]) == []

    asyncio.run(scene())


def test_messages_by_their_ids(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(two_brokers[0]) as client:
            await client.send_columns(topic, [b"x"], ids=["own"], delay_ms=FAR_MS, tags=[["t"]])
            seen = await client.get(topic, "own", life=True)
            assert (seen.state, seen.body, seen.tags) == ("waiting", b"x", ("t",))
            assert seen.life[0]["event"] == "sent"
            assert (await client.reschedule(topic, "own", delay_ms=0)).result == "done"
            peeked = await client.peek(topic, max=5)
            assert [each.id for each in peeked] == ["own"]
            (message,) = await drained(client, topic, 1, ids=["own"])
            with pytest.raises(TooLate) as caught:
                await client.cancel(topic, "own")
            assert caught.value.state == "leased"
            assert await client.settle_ids(topic, "ack", ["own", "other"]) == [DONE, UNKNOWN]
            assert await client.ack(message) == [GONE]
            with pytest.raises(NotFound):
                await client.get(topic, "nobody")
            with pytest.raises(ValueError, match="time"):
                await client.reschedule(topic, "own")

    asyncio.run(scene())


def test_lists_and_dead_letters(make: Any, two_brokers: Any, topic: str) -> None:
    """More than a page of them."""

    async def scene() -> None:
        async with make(two_brokers[0]) as client:
            await client.put_topic(topic, TopicSettings(max_retry=0))
            due_ms = np.arange(1_200) + time.time_ns() // 1_000_000 + FAR_MS
            await client.send_columns(
                topic, [b"%d" % n for n in range(1_200)], deliver_at_ms=due_ms
            )
            listed = [each async for each in client.messages(topic, state=["waiting", "ready"])]
            assert [each.deliver_at_ms for each in listed] == due_ms.tolist()
            assert listed[0].body is None
            await client.send_columns(topic, [b"dies"], ids=["d"])
            await client.nack(await drained(client, topic, 1))
            (dead,) = [each async for each in client.dead(topic, bodies=True)]
            assert (dead.id, dead.state, dead.body) == ("d", "dead", b"dies")
            assert dead.life
            assert [each.result for each in await client.replay(topic, ["d", "e"])] == [
                "done",
                "unknown",
            ]
            assert (await drained(client, topic, 1))[0].id == "d"

    asyncio.run(scene())


def test_topics_and_groups(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(two_brokers[0], namespace=topic) as client:
            made = await client.put_topic("a", {"lease_ms": 5_000, "slots": 4})
            assert (made.settings.lease_ms, made.settings.slots) == (5_000, 4)
            with pytest.raises(Conflict):
                await client.put_topic("a", {"slots": 8})
            assert (await client.put_group("a", "g")).group == "g"
            assert [group.group for group in await client.groups("a")] == ["default", "g"]
            await client.send_columns("a", [b"1", b"2"], delay_ms=FAR_MS)
            assert [each.topic for each in await client.topics()] == ["a"]
            assert (await client.forecast("a", minutes=1, hours=3)).hours[1].count <= 2
            assert (await client.stats("a", group="g", delay_buckets=True)).delay_buckets
            with pytest.raises(Conflict):
                await client.drop_topic("a")
            assert await client.purge("a", force=True) >= 2
            await client.pause("a")
            assert (await client.get_topic("a")).paused
            await client.resume("a")
            await client.drop_group("a", "g")
            await client.drop_topic("a", force=True)
            with pytest.raises(NotFound):
                await client.get_topic("a")

    asyncio.run(scene())


def test_transactions(make: Any, two_brokers: Any, topic: str) -> None:
    """All of it, or nothing."""

    async def scene() -> None:
        async with make(two_brokers[0]) as client:
            async with client.transaction() as together:
                assert await together.stage(topic, [b"a", b"b"]) == 2
                assert await together.stage(topic, [b"c"], ids=["c"]) == 1
                assert await client.receive(topic) == []
            assert bodies(await drained(client, topic, 3)) == [b"a", b"b", b"c"]
            together = None

            async def fail() -> None:
                nonlocal together
                async with client.transaction("tx-" + topic) as together:
                    await together.stage(topic, [b"never"])
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            assert together is not None
            with pytest.raises(ClientError, match="not open"):
                await together.stage(topic, [b"never"])
            assert await client.receive(topic, wait_ms=50) == []
            async with client.transaction():
                pass

    asyncio.run(scene())


def test_what_can_be_judged_here_is_refused_here(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(two_brokers[0]) as client:
            with pytest.raises(TypeError, match="tags are a list of texts, not one text"):
                await client.receive(topic, tags="abc")
            with pytest.raises(TypeError, match="str"):
                await client.ack(["receipt"])
            with pytest.raises(ValueError, match="topic"):
                await client.receive("")
            with pytest.raises(BadRequest) as caught:
                await client.receive(topic, max=0)
            assert caught.value.field == "max"

    asyncio.run(scene())


def test_numbers_that_cannot_be_are_refused_in_the_same_way(
    make: Any, two_brokers: Any, topic: str
) -> None:
    """By the broker, which names its bound, or here where no body can hold them; shards or not."""

    async def scene(*urls: str) -> None:
        async with make(*urls) as client:
            await client.send_columns(topic, [b"x"])
            refused: list[tuple[dict[str, Any], str]] = [
                ({"max": 0}, "max must lie from 1 to 10000, not 0"),
                ({"max": -1, "wait_ms": 100}, "max must lie"),
                ({"max": 20_000}, "max must lie"),
                ({"wait_ms": -1}, "wait_ms must lie from 0 to 60000, not -1"),
                ({"wait_ms": 10**18}, "wait_ms must lie"),
                ({"lease_ms": 0}, "lease_ms must lie"),
                ({"lease_ms": 10**18}, "lease_ms must lie"),
            ]
            for wish, said in refused:
                with pytest.raises(BadRequest, match=said):
                    await client.receive(topic, **wish)
            for name in ("max", "wait_ms", "lease_ms"):
                with pytest.raises(ValueError, match=f"{name} lies from .* not {2**64}"):
                    await client.receive(topic, **{name: 2**64})
            with pytest.raises(TypeError, match="wait_ms is a whole number, not str"):
                await client.receive(topic, wait_ms="1")
            with pytest.raises(BadRequest, match="max must be"):
                await client.receive(topic, max="1")
            (message,) = await drained(client, topic, 1)
            with pytest.raises(TypeError, match="lease_ms is a whole number, not NoneType"):
                await client.extend(message, lease_ms=None)
            with pytest.raises(ValueError, match=f"lease_ms lies from .* not {2**64}"):
                await client.extend(message, lease_ms=2**64)
            with pytest.raises(ValueError, match=f"delay_ms lies from .* not {2**64}"):
                await client.nack(message, delay_ms=2**64)
            with pytest.raises(BadRequest, match="lease_ms must lie"):
                await client.extend(message, lease_ms=-1)
            assert await client.ack(message) == [DONE]

    asyncio.run(scene(two_brokers[0]))
    asyncio.run(scene(*two_brokers))


def test_closing_twice_and_calls_after_it(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        client = make(*two_brokers)
        await client.send_columns(topic, [b"x"])
        await client.close()
        await client.close()
        with pytest.raises(ClientError, match="closed"):
            await client.stats(topic)

    asyncio.run(scene())


# --------------------------------------------------------------------------- two shards


def test_receiving_from_all_shards(make: Any, two_brokers: Any, topic: str) -> None:
    """Equal ids that two brokers made are told apart, and each ack finds its broker."""

    async def scene() -> None:
        async with make(*two_brokers) as client:
            for shard in two_brokers:
                answer = await client.send_columns(topic, [b"1", b"2"], shard=shard)
                assert answer.shard == shard
            found = await drained(client, topic, 4)
            assert sorted(message.shard for message in found) == sorted(two_brokers * 2)
            assert await client.ack(found) == [DONE] * 4
            assert await client.receive(topic, wait_ms=30) == []
            stats = await client.stats(topic)
            assert (stats.counts.acked, stats.sent) == (4, 4)

    asyncio.run(scene())


def test_what_came_late_is_handed_out_next_and_nothing_twice(
    make: Any, two_brokers: Any, topic: str
) -> None:
    async def scene() -> None:
        async with make(*two_brokers) as client:
            for shard in two_brokers:
                await client.send_columns(topic, [b"%d" % n for n in range(50)], shard=shard)
            seen: list[Any] = []
            while found := await client.receive(topic, max=7, wait_ms=300):
                assert len(found) <= 7
                seen += found
            assert len({(message.shard, message.ref) for message in seen}) == len(seen) == 100
            assert {message.attempts for message in seen} == {1}
            assert await client.ack(seen) == [DONE] * 100

    asyncio.run(scene())


def test_close_gives_back_what_nobody_took(make: Any, two_brokers: Any, topic: str) -> None:
    """A lease of an hour would hide them else."""

    async def scene() -> None:
        async with make(*two_brokers) as client:
            for shard in two_brokers:
                await client.send_columns(topic, [b"1", b"2"], shard=shard)
            (taken,) = await client.receive(topic, max=1, wait_ms=5_000, lease_ms=3_600_000)
            # Whatever the other poll brings is there now, or comes and is ended by close.
            await leased(client, topic, 2)
        async with make(*two_brokers) as client:
            others = await drained(client, topic, 3)
            assert (taken.shard, taken.ref) not in {(each.shard, each.ref) for each in others}

    asyncio.run(scene())


def test_what_came_after_the_last_receive_is_given_back(
    make: Any, two_brokers: Any, topic: str
) -> None:
    """It was in nobody's hands, so it has not been tried: its only attempt is still to come."""

    async def scene() -> None:
        near, far = two_brokers
        async with make(*two_brokers) as client:
            await client.send_columns(topic, [b"1"], shard=near)
            first = await client.receive(topic, max=1, wait_ms=5_000, lease_ms=2_000)
            await client.ack(first)
            await client.send_columns(topic, [b"2"], max_retry=[0], shard=far)
            await leased(client, topic, 1)
            await leased(client, topic, 0, most=0)
            (left,) = [each async for each in client.messages(topic, shard=far)]
            assert (left.state, left.attempts) == ("ready", 0)

    asyncio.run(scene())


def test_what_was_held_too_long_is_given_back(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(*two_brokers) as client:
            for shard in two_brokers:
                await client.send_columns(topic, [b"x"], shard=shard)
            (one,) = await client.receive(topic, max=1, wait_ms=5_000, lease_ms=600)
            await leased(client, topic, 2)
            await asyncio.sleep(0.35)
            (two,) = await drained(client, topic, 1)
            assert two.shard != one.shard or two.attempts == 2

    asyncio.run(scene())


def test_a_dead_shard_holds_nobody_up(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        dead = Shard(await deaf_url(), name="dead")
        async with make(dead, two_brokers[0], retry_for_s=0.2) as client:
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
                await client.receive(topic, wait_ms=100)
            with pytest.raises(NotReached):
                await client.receive(topic)

    asyncio.run(scene())


def test_ids_are_found_at_any_shard(make: Any, two_brokers: Any, topic: str) -> None:
    """Also where a key led the message elsewhere; an id made by a broker needs its shard."""

    async def scene() -> None:
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
            assert (await client.cancel(topic, "own0")).state == "deleted"
            assert (await client.cancel(topic, "own1")).state == "deleted"
            with pytest.raises(NotFound):
                await client.get(topic, "nobody")
            with pytest.raises(TooLate):
                await client.reschedule(topic, "own1", delay_ms=0)
            due = [each.deliver_at_ms async for each in client.messages(topic)]
            assert len(due) == 4
            assert due == sorted(due)
            with pytest.raises(NotFound):
                _ = [each async for each in client.messages(topic + "x", shard=two_brokers[0])]

    asyncio.run(scene())


def test_a_topic_is_made_and_dropped_everywhere(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(*two_brokers, namespace=topic) as client:
            await client.put_topic("a", TopicSettings(lease_ms=5_000))
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

    asyncio.run(scene())


def test_what_is_asked_of_all_shards_names_the_one_that_is_away(
    make: Any, two_brokers: Any, topic: str
) -> None:
    """What the other one has answered, or done, is told with the error."""

    async def scene() -> None:
        here, away = two_brokers[0], await deaf_url()
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
                assert [each async for each in client.messages(topic)]
            assert isinstance(caught.value.errors[away], NotReached)
            assert [each.shard async for each in client.messages(topic, shard=here)] == [here] * 2
            with pytest.raises(ShardsFailed, match=r"answered by .* \(2\)") as caught:
                await client.purge(topic)
            assert caught.value.answers == {here: 2}

    asyncio.run(scene())


def test_what_is_about_one_broker_needs_its_name(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        async with make(*two_brokers) as client:
            with pytest.raises(ValueError, match="shard="):
                client.broker()
            with pytest.raises(ValueError, match="shard="):
                await client.send_columns(topic, [b"x"], ids=["a"])
            assert client.broker(two_brokers[0]) is not None
        async with make(*two_brokers, sharding=RoundRobin()) as client:
            shards = {(await client.send_columns(topic, [b"x"], ids=["a"])).shard for _ in "ab"}
            assert shards == set(two_brokers)

    asyncio.run(scene())


def test_sends_without_a_home_prefer_the_own_zone(make: Any, two_brokers: Any, topic: str) -> None:
    async def scene() -> None:
        far, near = Shard(two_brokers[0], zone="far"), Shard(two_brokers[1], "near", "here")
        async with make(far, near, zone="here", sharding=ByKey()) as client:
            assert {(await client.send_columns(topic, [b"x"])).shard for _ in range(4)} == {"near"}

    asyncio.run(scene())


def test_exact_tags_look_again(make: Any, two_brokers: Any, topic: str) -> None:
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

    async def scene(url: str) -> None:
        async with make(url) as client:
            found = await client.receive(topic, max=3, tags=["a", "b"], exact_tags=True)
            assert [message.ref for message in found] == [0, 2]
            assert client.mismatched == 1
            found = await client.receive(
                topic, max=3, tags=["c", "b"], tags_mode="all", exact_tags=True
            )
            assert [message.ref for message in found] == [2]

    play(handle, scene)
    assert [each["lease_ms"] for each in settled] == [0, 0]
    assert np.frombuffer(settled[0]["refs"], "<i8").tolist() == [1]


# --------------------------------------------------------------------------- faults


def play(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    scene: Callable[[str], Awaitable[None]],
) -> None:
    """A scene with a server that answers as the test says."""

    async def run() -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            await scene("http://{}:{}".format(*runner.addresses[0][:2]))
        finally:
            await runner.cleanup()

    asyncio.run(run())


def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def bulk(**fields: Any) -> web.Response:
    return web.Response(body=msgpack.packb(fields), content_type=BULK_TYPE)


def not_ready(status: int = 503, code: str = "not_ready", **headers: str) -> web.Response:
    return web.json_response({"code": code}, status=status, headers=headers)


def test_a_send_is_repeated_as_it_was_until_it_is_answered(make: Any, topic: str) -> None:
    """Lost answers, no leader, a quota: the same bytes each time, so the broker adds them once."""
    seen: list[bytes] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(await request.read())
        if len(seen) == 1:
            return hang_up(request)
        if len(seen) == 2:
            return not_ready(429, "quota", **{"Retry-After": "0"})
        return bulk(n=1, refs=bytes(8), deliver_at_ms=1, result=0)

    async def scene(url: str) -> None:
        async with make(url, producer="p") as client:
            await client.send_columns(topic, [b"x"])
            await client.send_columns(topic, [b"x"])

    play(handle, scene)
    assert len(seen) == 4
    assert seen[0] == seen[1] == seen[2] != seen[3]
    fields = [msgpack.unpackb(wire) for wire in seen[2:]]
    assert fields[0]["producer"] == fields[1]["producer"]
    assert fields[0]["producer"].startswith("p-")
    assert [each["sequence"] for each in fields] == [0, 1]


class Retries(Hooks):
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, str]] = []

    def on_send_retry(self, topic: str, n: int, error: Exception) -> None:
        self.heard.append((topic, n, type(error).__name__))


def test_repeats_inside_of_a_cluster_are_told(make: Any, topic: str) -> None:
    """There is no leader, then an answer is lost; every way to send one message or many."""
    faults: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        n = msgpack.unpackb(await request.read())["n"]
        fault = faults.pop(0) if faults else ""
        if fault == "lost":
            return hang_up(request)
        if fault:
            return not_ready()
        return bulk(n=n, refs=bytes(8 * n), deliver_at_ms=1, result=0)

    async def scene(url: str) -> None:
        hooks = Retries()
        cluster = f"{url},{url.replace('127.0.0.1', 'localhost')}"
        async with make(cluster, hooks=hooks) as client:
            faults.extend(("leader", "lost"))
            assert (await client.send(topic, "x")).result == "created"
            assert hooks.heard == [(topic, 1, "NotReady"), (topic, 1, "AnswerLost")]
            hooks.heard.clear()
            faults.append("leader")
            assert len(await client.send_many(topic, ["x", "y"])) == 2
            assert hooks.heard == [(topic, 2, "NotReady")]
            if make is ThreadedClient:
                hooks.heard.clear()
                faults.append("leader")
                sending = await client.send_soon(topic, "x")
                await asyncio.to_thread(sending.result, 20)
                assert hooks.heard == [(topic, 1, "NotReady")]

    play(handle, scene)


def test_a_send_whose_answer_was_lost_goes_to_no_other_shard(make: Any, topic: str) -> None:
    """There it would be added a second time."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        seen.append(request.host)
        return hang_up(request)

    async def scene(url: str) -> None:
        other = url.replace("127.0.0.1", "localhost")
        async with make(url, other, retry_for_s=0.4) as client:
            with pytest.raises(AnswerLost):
                await client.send_columns(topic, [b"x"])

    play(handle, scene)
    assert len(seen) > 1
    assert len(set(seen)) == 1


def test_a_refused_send_is_not_repeated(make: Any, topic: str) -> None:
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.path)
        return not_ready(400, "bad_request")

    async def scene(url: str) -> None:
        async with make(url) as client:
            with pytest.raises(BadRequest):
                await client.send_columns(topic, [b"x"])

    play(handle, scene)
    assert len(seen) == 1


def test_gone_after_a_lost_answer_is_unknown(make: Any, two_brokers: Any, topic: str) -> None:
    """The first ack may have done it: nobody knows, and it is not said to be lost."""
    acks = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal acks
        await request.read()
        if request.path.endswith("/receive"):
            plain = {"deliver_at_ms": 1, "attempts": 1, "body_size": 0, "bodies": b""}
            refs = np.arange(2, dtype="<i8").tobytes()
            return bulk(n=2, lease=4, lease_until_ms=10**15, now_ms=1, refs=refs, **plain)
        acks += 1
        if acks == 1:
            return not_ready()
        return bulk(n=2, done=1, gone=(1).to_bytes(8, "little"), unknown=b"")

    async def scene(url: str) -> None:
        async with make(url) as client:
            found = await client.receive(topic, max=2)
            assert await client.ack(found) == [DONE, UNKNOWN]
            assert await client.ack(found) == [DONE, GONE]

    play(handle, scene)


def test_a_lost_answer_to_an_ack_is_asked_for_once_more(make: Any, topic: str) -> None:
    """Of a single broker too; when that is lost as well, nobody knows."""
    acks = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal acks
        await request.read()
        if request.path.endswith("/receive"):
            plain = {"deliver_at_ms": 1, "attempts": 1, "body_size": 0, "bodies": b""}
            refs = np.arange(2, dtype="<i8").tobytes()
            return bulk(n=2, lease=4, lease_until_ms=10**15, now_ms=1, refs=refs, **plain)
        acks += 1
        if acks in (1, 3, 4, 5):
            return hang_up(request)
        if acks == 6:
            return not_ready(507, "disk_full")
        return bulk(n=2, done=1, gone=(1).to_bytes(8, "little"), unknown=b"")

    async def scene(url: str) -> None:
        async with make(url) as client:
            found = await client.receive(topic, max=2)
            assert await client.ack(found) == [DONE, UNKNOWN]
            for _ in range(2):
                with pytest.raises(AnswerLost):
                    await client.ack(found)

    play(handle, scene)
    assert acks == 6


def test_acks_of_two_shards_of_which_one_is_gone(make: Any, two_brokers: Any, topic: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        if not request.path.endswith("/receive"):
            return not_ready(507, "disk_full")
        plain = {"deliver_at_ms": 1, "attempts": 1, "body_size": 0, "bodies": b""}
        return bulk(n=1, lease=4, lease_until_ms=10**15, now_ms=1, refs=bytes(8), **plain)

    async def scene(url: str) -> None:
        async with make(two_brokers[0], url) as client:
            await client.send_columns(topic, [b"x"], shard=two_brokers[0])
            found: dict[str, Any] = {}
            while len(found) < 2:
                for message in await client.receive(topic, max=1, wait_ms=1_000):
                    found.setdefault(message.shard, message)
            with pytest.raises(SettleFailed) as caught:
                await client.ack([found[url], found[two_brokers[0]]])
            refused, done = caught.value.results
            assert isinstance(refused, ClientError)
            assert done is DONE

    play(handle, scene)


def test_cancelling_a_receive_loses_nothing(two_brokers: Any, topic: str) -> None:
    """What its polls bring goes to the next receive."""

    async def scene() -> None:
        from delaylog.client import AsyncClient

        async with AsyncClient(*two_brokers) as client:
            waiting = asyncio.ensure_future(client.receive(topic, max=9, wait_ms=5_000))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            for shard in two_brokers:
                await client.send_columns(topic, [b"x"], shard=shard)
            assert [message.attempts for message in await drained(client, topic, 2)] == [1, 1]

    asyncio.run(scene())
