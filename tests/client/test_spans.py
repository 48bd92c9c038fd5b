"""Durations as timedelta and times as datetime, in each call that takes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaylog.client import AsyncClient, Client, TopicSettings
from delaylog.client.keywords import SettingsSpans
from delaylog.client.options import split_options
from delaylog.client.sending.outbox import LAST_ANSWER_S
from delaylog.client.wire.bulk import encode_send, or_now
from tests.client.any_queue import Queue, got, listed, on_a_queue

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1_000


async def browsed(queue: Queue, **filter: Any) -> list[Any]:
    """The messages of the queue, in due order."""
    return await listed(queue.client.browse(queue.topic, **filter))


@on_a_queue
async def test_a_list_between_two_times(queue: Queue) -> None:
    for hours in (1, 2, 3):
        await queue.call("send", str(hours), at=NOON + timedelta(hours=hours))
    from_two: dict[str, Any] = {"due_from": NOON + timedelta(hours=2)}
    assert [each.text for each in await browsed(queue, bodies=True, **from_two)] == ["2", "3"]
    from_two["due_to_ms"] = NOON_MS + 3 * 3_600_000
    assert [each.text for each in await browsed(queue, bodies=True, **from_two)] == ["2"]


@on_a_queue
async def test_settings_of_a_topic(queue: Queue) -> None:
    settings = TopicSettings(lease=SECOND, ttl=DAY, max_retry=2)
    made = (await queue.call("put_topic", settings)).settings
    assert (made.lease, made.ttl, made.max_retry) == (SECOND, DAY, 2)
    changed = (await queue.call("update_topic", lease=DAY / 4, ttl=None)).settings
    assert (changed.lease, changed.ttl, changed.max_retry) == (DAY / 4, timedelta.max, 2)
    assert (await queue.call("put_topic", replace(changed, max_retry=3))).settings.lease == DAY / 4


@on_a_queue
async def test_a_message_may_live_longer_than_its_topic_says(queue: Queue) -> None:
    await queue.call("put_topic", {"ttl_ms": 1})
    await queue.call("send", "x", id="a", delay=DAY, ttl=timedelta.max)
    await queue.call("send", "x", id="b", delay=DAY)
    a, b = await browsed(queue)
    assert (a.expires_at_ms, b.expires_at_ms) == (None, b.deliver_at_ms + 1)


@on_a_queue
async def test_columns_of_times(queue: Queue) -> None:
    await queue.call("send_columns", ["a", "b"], at=[NOON, NOON + SECOND], ttl=DAY)
    a, b = await browsed(queue)
    assert (a.deliver_at_ms, b.deliver_at_ms) == (NOON_MS, NOON_MS + 1_000)
    assert a.expires_at_ms == NOON_MS + 86_400_000


@on_a_queue
async def test_a_stop_takes_them_too(queue: Queue) -> None:
    """Without a running worker it does nothing, but checks what it gets."""
    await got(queue.client.stop(grace=SECOND))
    with pytest.raises(TypeError, match="grace is a timedelta, not int; 1 seconds are timedelta"):
        await got(queue.client.stop(grace=1))


def test_the_durations_of_settings_are_those_that_end_in_ms() -> None:
    spans = dict.fromkeys(SettingsSpans.__annotations__, SECOND)
    settings = TopicSettings(**spans)  # type: ignore[arg-type]
    assert settings.members() == {f"{name}_ms": 1_000 for name in spans}
    assert TopicSettings.of(settings.members()) == settings
    with pytest.raises(TypeError, match="ttl is a timedelta, not int"):
        TopicSettings(ttl=5)  # type: ignore[arg-type]


def test_columns_as_numbers_and_as_times_are_one_body() -> None:
    in_numbers = encode_send(["a", "b"], delay_ms=[0, 1_000], ttl_ms=1_000)
    assert encode_send(["a", "b"], delay=[-SECOND, SECOND], ttl=SECOND) == in_numbers
    assert encode_send(["a"], at=NOON) == encode_send(["a"], deliver_at_ms=NOON_MS)
    assert or_now({"ids": ["a"]}) == {"ids": ["a"], "delay_ms": 0}
    assert or_now({"at": NOON}) == {"at": NOON}
    with pytest.raises(ValueError, match="give delay or delay_ms, not both"):
        encode_send(["a"], delay=SECOND, delay_ms=5)
    with pytest.raises(ValueError, match="give either deliver_at_ms or delay_ms, or at or delay"):
        encode_send(["a"], delay=SECOND, at=NOON)


def test_the_options_of_a_client() -> None:
    limits, _ = split_options({"linger": SECOND, "retry_for": DAY / 1_440})
    assert (limits.linger, limits.close_for_s) == (SECOND, 60 + LAST_ANSWER_S)
    with pytest.raises(TypeError, match="no argument 'retry_for_s': write retry_for=timedelta"):
        Client(retry_for_s=1)  # type: ignore[call-arg]


async def test_a_close_and_a_transaction_of_a_client() -> None:
    client = AsyncClient()
    with pytest.raises(TypeError, match="ttl is a timedelta, not int"):
        client.transaction(ttl=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="within is a timedelta, not float"):
        await client.close(within=0.5)  # type: ignore[arg-type]
    await client.close(within=SECOND)


async def test_settling_by_ids(make: Any, two_brokers: Any, topic: str) -> None:
    async with make(two_brokers[0]) as client:
        await client.send(topic, "x", id="own")
        assert len(await client.receive(topic, wait=timedelta(seconds=5))) == 1
        assert await client.settle_ids(topic, "nack", ["own"], delay=DAY) == ["done"]
        seen = await client.get(topic, "own")
        assert (seen.state, seen.deliver_at_ms > seen.sent_at_ms + 80_000_000) == ("waiting", True)
