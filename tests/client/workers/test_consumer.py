"""What is wrong with a consumer is said when it is declared; what it is, is told by its handler."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client import Client, Message
from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.workers import Consumer, Retry


def handle(message: Message) -> None:
    """One message."""


async def handle_async(message: Message) -> None:
    """One message."""


def handle_list(messages: list[Message]) -> None:
    """Many."""


def handle_sequence(messages: Sequence[Message]) -> None:
    """Many."""


class Handler:
    async def __call__(self, messages: list[Message]) -> None:
        """Many."""


@pytest.mark.parametrize(
    ("members", "kind", "says"),
    [
        ({"topic": ""}, ValueError, "a topic is named"),
        ({"topic": "a b"}, ValueError, "a topic is named"),
        ({"topic": handle}, TypeError, "a topic is named by a str, not function"),
        ({"handler": 5}, TypeError, "5 cannot be"),
        ({"handler": lambda: None}, TypeError, "is called with a message alone"),
        ({"handler": lambda one, two: None}, TypeError, "is called with a message alone"),
        ({"backoff": 5}, TypeError, "backoff is a Backoff, not int"),
        ({"on_error": 5}, TypeError, "on_error is called with a message and an error"),
        ({"concurrency": 0}, ValueError, "concurrency is at least 1"),
        ({"concurrency": 10**9}, ValueError, "concurrency is at most 10,000, not 1000000000"),
        ({"concurrency": 1.5}, TypeError, "concurrency is a whole number, not float"),
        ({"prefetch": -1}, ValueError, "prefetch is at least 0"),
        ({"lease": timedelta(0)}, ValueError, "lease is at least 0:00:00.001000, not 0:00:00"),
        ({"wait": timedelta(-1)}, ValueError, "wait is at least 0:00:00, not -1 day"),
        ({"wait": True}, TypeError, "wait is a timedelta, not bool"),
        ({"concurrency": None}, TypeError, "concurrency is a whole number, not NoneType"),
        ({"lease": None}, TypeError, "lease is a timedelta, not NoneType"),
        ({"grace": timedelta(-1)}, ValueError, "grace is at least 0:00:00"),
        ({"grace": 5}, TypeError, "grace is a timedelta, not int; 5 seconds are timedelta"),
        ({"time_limit": timedelta(0)}, ValueError, "time_limit is more than 0"),
        ({"time_limit": "5"}, TypeError, "time_limit is a timedelta, not str"),
        ({"group": 5}, TypeError, "group is a text or None, not int"),
        ({"tags": "a"}, TypeError, "not one text"),
        ({"tags": 5}, TypeError, "tags are a list of texts, not int"),
        ({"tags": ["a", 5]}, TypeError, "tags are a list of texts, which 5 is not"),
        ({"tags_mode": "some"}, ValueError, "any or all"),
        ({"exact_tags": True}, ValueError, "goes with tags"),
        ({"batch": False, "batch_max": 5}, ValueError, "say batch=True too"),
        ({"batch_max": 0}, ValueError, "batch_max is at least 1"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    members: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        Consumer(**({"topic": "t", "handler": handle} | members))


def test_tags_of_an_iterator_are_those_of_every_shard() -> None:
    """Each shard's receives ask anew; with no tags left they would take all messages."""
    consumer = Consumer(topic="t", handler=handle, tags=iter(["a", "b"]))  # type: ignore[arg-type]
    assert [consumer.wanted.tags, consumer.wanted.tags] == [("a", "b"), ("a", "b")]


def test_a_decorator_without_its_parentheses_is_no_consumer() -> None:
    with pytest.raises(TypeError, match="a topic is named by a str, not function"):
        ThreadWorker(lambda _: []).consumer(handle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("handler", "members", "rows_max"),
    [
        (handle, {}, 1),
        (handle, {"batch": True}, 100),
        (handle, {"batch_max": 7}, 7),
        (handle_list, {}, 100),
        (handle_sequence, {}, 100),
        (handle_list, {"batch": False}, 1),
        (functools.partial(handle_list), {}, 100),
        (Handler(), {}, 100),
        (print, {}, 1),
    ],
)
def test_batches_are_wanted_by_a_flag_or_an_annotation(
    handler: Any, members: dict[str, Any], rows_max: int
) -> None:
    assert Consumer(topic="t", handler=handler, **members).rows_max == rows_max


def test_coroutine_functions_belong_to_the_loop_and_others_to_threads() -> None:
    in_loop, in_threads = AsyncWorker(lambda _: []), ThreadWorker(lambda _: [])
    for handler in (handle_async, functools.partial(handle_async), Handler()):
        in_loop.consumer("t")(handler)
        with pytest.raises(TypeError, match="use AsyncClient"):
            in_threads.consumer("t")(handler)
    in_threads.consumer("t")(handle)
    with pytest.raises(TypeError, match="write `async def`"):
        in_loop.consumer("t")(handle)


def test_the_decorated_function_stays_what_it_was() -> None:
    assert ThreadWorker(lambda _: []).consumer("t", concurrency=2)(handle) is handle


@pytest.mark.parametrize("delay", ["x", 5])
def test_a_retry_knows_when(delay: Any) -> None:
    with pytest.raises(TypeError, match=f"delay is a timedelta, not {type(delay).__name__}"):
        Retry(delay=delay)


def test_a_retry_is_never_early_however_long_it_waits() -> None:
    assert Retry(delay=timedelta(microseconds=1_001)).delay_ms == 2
    assert (
        Retry(delay=timedelta(-1)).delay_ms == Retry(delay=-timedelta(milliseconds=1)).delay_ms == 0
    )
    assert Retry(delay=timedelta.max).delay_ms == 86_400_000 * 1_000_000_000


@pytest.mark.parametrize("delay_ms", [None, 0, 1_500])
def test_a_retry_comes_back_from_another_process(delay_ms: int | None) -> None:
    delay = None if delay_ms is None else timedelta(milliseconds=delay_ms)
    retry = pickle.loads(pickle.dumps(Retry(delay=delay)))
    assert isinstance(retry, Retry)
    assert retry.delay_ms == delay_ms


def test_durations_of_a_consumer() -> None:
    minute = timedelta(minutes=1)
    made = Consumer(topic="t", handler=handle, lease=minute, wait=minute, grace=minute)
    assert (made.lease_ms, made.wait_ms, made.grace_s) == (60_000, 60_000, 60)
    assert made.time_limit_s is None
    assert replace(made, time_limit=minute).time_limit_s == 60


@pytest.mark.parametrize("name", ["lease_ms", "wait_ms", "grace_s", "time_limit_s"])
def test_a_number_is_no_duration_of_a_consumer(name: str) -> None:
    new = name.rpartition("_")[0]
    declare: Any
    for declare in (ThreadWorker(lambda _: []).consumer, Client().task):
        with pytest.raises(TypeError, match=f"has no argument '{name}': write {new}=timedelta"):
            declare("t", **{name: 5})
