"""Tasks on clients and embedded brokers of both kinds: what is sent, and what is called."""

from __future__ import annotations

import inspect
import json
from asyncio import sleep
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaylog.client import AsyncClient, Backoff, Client, Reject, current_message
from delaylog.client.workers.tasks import TaskCall
from tests.client.any_queue import Queue, got, on_a_queue
from tests.waiting import until

NOBODY = "http://127.0.0.1:9"


def of_kind(queue: Queue, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as a coroutine function where the client wants one."""
    if not hasattr(queue.client, "__aenter__"):
        return function

    async def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    called.__name__ = function.__name__
    called.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return called


async def reached(queue: Queue, id: str, attempts: int) -> None:
    """Wait until a message has failed this many times."""
    for _ in range(400):
        found = await queue.call("get", id)
        if found.attempts >= attempts and found.state != "leased":
            return
        await sleep(0.05)
    raise AssertionError(found)


async def worked(queue: Queue, done: Callable[[], bool]) -> None:
    """Run the worker until something is done."""
    await got(queue.client.start())
    try:
        await until(done)
    finally:
        await got(queue.client.stop())


@on_a_queue
async def test_a_call_is_sent_and_made_by_a_worker(queue: Queue) -> None:
    called: list[Any] = []

    def add(first: int, second: int = 2, *, note: str = "") -> None:
        called.append((first, second, note, current_message().attempts))

    task = queue.client.task(queue.topic, wait=timedelta(milliseconds=500))(of_kind(queue, add))
    assert task.__name__ == "add"
    await got(task.send(1))
    await got(task.send_in(timedelta(milliseconds=50), 3, note="in"))
    await got(task.send_at(datetime(2020, 1, 1, tzinfo=UTC), 4, second=5))
    await worked(queue, lambda: len(called) == 3)
    assert sorted(called) == [(1, 2, "", 1), (3, 2, "in", 1), (4, 5, "", 1)]
    assert (await queue.call("stats")).counts.acked == 3


@on_a_queue
async def test_tasks_of_a_topic_are_told_apart_by_their_names(queue: Queue) -> None:
    called: list[str] = []

    def one(text: str) -> None:
        called.append(f"one {text}")

    def two(text: str) -> None:
        called.append(f"two {text}")

    first = queue.client.task(queue.topic, wait=timedelta(milliseconds=500))(of_kind(queue, one))
    second = queue.client.task(queue.topic, name="other")(of_kind(queue, two))
    await got(first.send("a"))
    await got(second.send("b"))
    (peeked, *_) = await queue.call("peek")
    assert json.loads(peeked.body) == {"task": "one", "args": ["a"], "kwargs": {}}
    await worked(queue, lambda: len(called) == 2)
    assert sorted(called) == ["one a", "two b"]
    with pytest.raises(ValueError, match="has a task 'other' already"):
        queue.client.task(queue.topic, name="other")(of_kind(queue, one))
    with pytest.raises(ValueError, match="share a consumer: give its options \\(concurrency\\)"):
        queue.client.task(queue.topic, concurrency=3)(of_kind(queue, two))


@on_a_queue
async def test_a_call_has_the_fields_and_retries_of_its_task(queue: Queue) -> None:
    tried: list[int] = []

    def fail() -> None:
        tried.append(current_message().attempts)
        raise RuntimeError("boom")

    make = queue.client.task(
        queue.topic,
        retries=1,
        backoff=Backoff(first=timedelta(0)),
        wait=timedelta(milliseconds=500),
    )
    task = make(of_kind(queue, fail))
    sent = await got(task.having(id="mine", tags=["x"]).having(key="k").send())
    info = await queue.call("get", sent.id)
    assert (sent.id, info.key, info.tags, info.max_retry) == ("mine", "k", ("x",), 1)
    with pytest.raises(TypeError, match="no argument 'delay'"):
        task.having(delay=timedelta(1))
    await worked(queue, lambda: len(tried) == 2)
    assert (await queue.call("stats")).counts.dead == 1


@on_a_queue
async def test_what_is_no_call_is_dead_and_an_unknown_task_is_tried_again(queue: Queue) -> None:
    def known() -> None:
        """Nothing."""

    queue.client.task(queue.topic, wait=timedelta(milliseconds=500))(of_kind(queue, known))
    await queue.call("send", "text", id="text")
    await queue.call("send", TaskCall("newer", (), {}).body, id="newer", max_retry=3)
    await got(queue.client.start())
    try:
        await reached(queue, "text", 1)
        await reached(queue, "newer", 1)
    finally:
        await got(queue.client.stop())
    steps = (await queue.call("get", "newer", life=True)).life
    reason = f"LookupError: this program has no task 'newer' of topic '{queue.topic}'"
    assert reason in [step.get("reason") for step in steps]
    assert (await queue.call("get", "text")).cause == "rejected"


def test_arguments_are_checked_before_anything_is_sent() -> None:
    with Client(NOBODY) as client:

        @client.task("t")
        def add(first: int, second: int) -> int:
            """Add."""
            return first + second

        assert add(1, 2) == 3
        assert add.__doc__ == "Add."
        assert repr(add) == "<task add of topic t>"
        with pytest.raises(TypeError, match="task add: missing a required argument: 'second'"):
            add.send(1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="task add are stored as JSON, which cannot express"):
            add.send(1, object())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="stored as JSON"):
            add.send(1, float("nan"))  # type: ignore[arg-type]


async def test_a_task_has_the_kind_of_its_client() -> None:
    async with AsyncClient(NOBODY) as client:
        with pytest.raises(TypeError, match="task print is not a coroutine function"):
            client.task("t")(print)  # type: ignore[arg-type]

        @client.task("t")
        async def double(number: int) -> int:
            return 2 * number

        assert await double(4) == 8

    async def nothing() -> None:
        """Nothing."""

    with Client(NOBODY) as threaded:
        with pytest.raises(TypeError, match="task nothing is a coroutine function"):
            threaded.task("t")(nothing)
        with pytest.raises(ValueError, match="has no name"):
            threaded.task("t")(type("Callable", (), {"__call__": lambda self: None})())
        for wrong in (-1, "2"):
            with pytest.raises((TypeError, ValueError), match="retries"):
                threaded.task("t", retries=wrong)  # type: ignore[arg-type]


def test_a_function_may_be_a_task_of_two_topics() -> None:
    """A task copies the attributes of its function. Those of another task are not its own."""

    def add(first: int, second: int) -> int:
        return first + second

    with Client(NOBODY) as client:
        slow = client.task("slow", retries=1)(add)
        fast = client.task("fast", name="plus")(slow)
        assert (slow.topic, slow.name) == ("slow", "add")
        assert (fast.topic, fast.name) == ("fast", "plus")
        assert fast.__name__ == "add"
        assert fast(1, 2) == 3


@pytest.mark.parametrize(
    "body",
    [
        *(b"\xff", b"x", b"[]", b'"x"', b"{}", b"[" * 200_000),
        *(b'{"task":"a","args":3}', b'{"task":"a","args":"abc"}', b'{"task":"a","kwargs":[]}'),
        *(b'{"task":["a"]}', b'{"task":null}'),
    ],
)
def test_other_bodies_are_rejected(body: bytes) -> None:
    with pytest.raises(Reject, match="not the call of a task"):
        TaskCall.of(_Body(body))  # type: ignore[arg-type]


class _Body:
    """What a received message has."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)


def test_no_message_is_handled_here() -> None:
    with pytest.raises(LookupError, match="no message is being handled"):
        current_message()
