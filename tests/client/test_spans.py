"""Durations and times as timedelta and datetime, in each call that takes a number of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaylog.client import AsyncClient, Backoff, Client, TopicSettings
from delaylog.client.keywords import SettingsSpans
from delaylog.client.options import split_options
from delaylog.client.wire.bulk import encode_send, or_now
from tests.client.any_queue import Queue, got, on_a_queue

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1_000


async def listed(queue: Queue, **filter: Any) -> list[Any]:
    """The messages of the queue, in due order."""
    found = queue.client.browse(queue.topic, **filter)
    return [each async for each in found] if hasattr(found, "__aiter__") else list(found)


@on_a_queue
async def test_a_list_between_two_times(queue: Queue) -> None:
    for hours in (1, 2, 3):
        await queue.call("send", str(hours), at=NOON + timedelta(hours=hours))
    from_two: dict[str, Any] = {"due_from": NOON + timedelta(hours=2)}
    assert [each.text for each in await listed(queue, bodies=True, **from_two)] == ["2", "3"]
    from_two["due_to_ms"] = NOON_MS + 3 * 3_600_000
    assert [each.text for each in await listed(queue, bodies=True, **from_two)] == ["2"]


@on_a_queue
async def test_settings_of_a_topic(queue: Queue) -> None:
    settings = TopicSettings(lease=SECOND, ttl=DAY, max_retry=2)
    made = (await queue.call("put_topic", settings)).settings
    assert (made.lease_ms, made.ttl_ms, made.max_retry) == (1_000, 86_400_000, 2)
    changed = (await queue.call("update_topic", lease=DAY / 4, ttl=None)).settings
    assert (changed.lease_ms, changed.ttl_ms, changed.max_retry) == (21_600_000, -1, 2)


@on_a_queue
async def test_columns_of_times(queue: Queue) -> None:
    await queue.call("send_columns", ["a", "b"], at=[NOON, NOON + SECOND], ttl=DAY)
    a, b = await listed(queue)
    assert (a.deliver_at_ms, b.deliver_at_ms) == (NOON_MS, NOON_MS + 1_000)
    assert a.expires_at_ms == NOON_MS + 86_400_000


@on_a_queue
async def test_a_stop_takes_them_too(queue: Queue) -> None:
    """Without a running worker it does nothing, but checks what it gets."""
    await got(queue.client.stop(grace=SECOND))
    with pytest.raises(ValueError, match="give grace or grace_s, not both"):
        await got(queue.client.stop(grace=SECOND, grace_s=1))


def test_the_durations_of_settings_are_those_that_end_in_ms() -> None:
    spans = dict.fromkeys(SettingsSpans.__annotations__, SECOND)
    settings = TopicSettings(**spans)  # type: ignore[arg-type]
    assert settings.members() == {f"{name}_ms": 1_000 for name in spans}
    assert replace(settings, max_retry=1).lease_ms == 1_000
    with pytest.raises(ValueError, match="give ttl or ttl_ms, not both"):
        TopicSettings(ttl=SECOND, ttl_ms=5)


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


def test_a_backoff() -> None:
    assert Backoff(first=SECOND / 2, max=DAY) == Backoff(first_ms=500, max_ms=86_400_000)
    with pytest.raises(TypeError, match="max is a timedelta, not int; milliseconds are max_ms"):
        Backoff(max=5)  # type: ignore[arg-type]


def test_the_options_of_a_client() -> None:
    limits, _ = split_options({"linger": SECOND, "retry_for": DAY / 1_440})
    assert (limits.linger_ms, limits.retry_for_s) == (1_000, 60)
    with pytest.raises(ValueError, match="give retry_for or retry_for_s, not both"):
        Client(retry_for=SECOND, retry_for_s=1)


async def test_a_close_and_a_transaction_of_a_client() -> None:
    client = AsyncClient()
    with pytest.raises(TypeError, match="ttl is a timedelta, not int"):
        client.transaction(ttl=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give within or within_s, not both"):
        await client.close(within=SECOND, within_s=1)
    await client.close(within=SECOND)


async def test_settling_by_ids(make: Any, two_brokers: Any, topic: str) -> None:
    async with make(two_brokers[0]) as client:
        await client.send(topic, "x", id="own")
        assert len(await client.receive(topic, wait_ms=5_000)) == 1
        assert await client.settle_ids(topic, "nack", ["own"], delay=DAY) == ["done"]
        seen = await client.get(topic, "own")
        assert (seen.state, seen.deliver_at_ms > seen.sent_at_ms + 80_000_000) == ("waiting", True)
