"""Arguments are judged where they were given: failures name them and say what is wanted."""

from __future__ import annotations

import inspect
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delaylog.client import (
    AsyncClient,
    AsyncPlainClient,
    Client,
    NewMessage,
    TopicSettings,
)
from delaylog.client.queues import DynoMessage, DynoQueue
from delaylog.client.wire.bulk import encode_send
from delaylog.client.wire.checks import answer_wait_s

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("kind", [Client, AsyncClient, AsyncPlainClient])
@pytest.mark.parametrize("namespace", ["a b", "a/b", ""])
def test_a_namespace_has_a_name(kind: Any, namespace: str) -> None:
    with pytest.raises(ValueError, match=f"a namespace is named .*, not {namespace!r}"):
        kind(NOBODY, namespace=namespace)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"namespace": None}, TypeError, "a namespace is named by a str, not NoneType"),
        ({"connections_max": 0}, ValueError, "connections_max lies from 1 to .*, not 0"),
        ({"connections_max": "4"}, TypeError, "connections_max is a whole number, not str"),
        ({"zone": 5}, TypeError, "zone is a text or None, not int"),
        ({"token": 5}, TypeError, "token is a text or None, not int"),
        ({"linger": "5"}, TypeError, "linger is a timedelta, not str"),
        ({"batch_max": 1.5}, TypeError, "batch_max is a whole number, not float"),
        ({"retry_for": "5"}, TypeError, "retry_for is a timedelta, not str"),
        ({"timeout": timedelta(0)}, ValueError, "timeout lies above 0 s .*, not 0"),
        ({"timeout": timedelta(-1)}, ValueError, "timeout lies .*, not -86400"),
        ({"timeout": timedelta.max}, ValueError, "timeout lies above 0 s and up to 86400 s"),
        ({"timeout": 5}, TypeError, r"timeout is a timedelta, not int; 5 seconds are timedelta\("),
        ({"timeout_s": 5}, TypeError, r"no argument 'timeout_s': write timeout=timedelta\(sec"),
        ({"linger_ms": 5}, TypeError, r"no argument 'linger_ms': write linger=timedelta\(mill"),
        ({"tls": False}, TypeError, "tls is an ssl.SSLContext or None, not bool"),
    ],
)
def test_how_a_client_cannot_be_made(
    kind: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        kind(NOBODY, **options)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"bodies": "abc"}, "bodies are a list, not one str"),
        ({"bodies": b"abc"}, "bodies are a list, not one bytes"),
        ({"bodies": ["a"], "ids": "a"}, "ids are a list"),
        ({"bodies": ["a"], "keys": "a"}, "keys are a list"),
        ({"bodies": ["a"], "tags": "a"}, "tags are a list"),
        ({"bodies": ["a"], "tags": ["ab"]}, "the tags of a row are a list, not one str"),
    ],
)
def test_one_text_is_no_column(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        encode_send(delay_ms=0, **columns)


@pytest.mark.parametrize("bodies", [(), ("a", "b"), ("a", "b", "c"), 5])
def test_a_tuple_of_texts_is_no_column(bodies: Any) -> None:
    """It would be read as sizes and a block."""
    with pytest.raises(TypeError, match="bodies are a list"):
        encode_send(bodies, delay_ms=0)


@pytest.mark.parametrize("name", ["delay_ms", "priority", "max_retry"])
def test_what_no_column_holds_is_said_with_its_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} lies from .*, not {10**30}"):
        encode_send(["a"], **{"delay_ms": 0, name: 10**30})


async def test_what_is_not_sent_nor_asked_for() -> None:
    client = AsyncClient(NOBODY)
    with pytest.raises(TypeError, match="tags must be a list of texts, not an integer"):
        await client.send("t", "x", tags=cast(Any, 5))
    with pytest.raises(TypeError, match="a topic is named by a str, not bytes"):
        await client.receive(cast(Any, b"t"))
    with pytest.raises(ValueError, match=r"a topic is named .*, not 'a b'"):
        await client.receive("a b")
    with pytest.raises(ValueError, match="a topic is named"):
        await client.receive("")
    with pytest.raises(TypeError, match="tags are a list of texts, not one text"):
        await client.receive("t", tags="abc")
    with pytest.raises(TypeError, match="tags are a list of texts, which 5 is not"):
        await client.receive("t", tags=cast(Any, [5]))
    with pytest.raises(TypeError, match="messages are settled, not str; settle_ids takes ids"):
        await client.ack(cast(Any, ["receipt"]))
    await client.close()
    with pytest.raises(TypeError, match="group is a text or None, not int"):
        Client(NOBODY).receive("t", group=cast(Any, 5))


class NoTopics:
    """As much of a client as making a queue needs."""

    def get_topic(self, topic: str) -> SimpleNamespace:
        settings = TopicSettings(
            order="time",
            merge="replace",
            ttl=timedelta.max,
            max_retry=65_534,
            backoff={"first_ms": 0},
        )
        return SimpleNamespace(settings=settings)


@pytest.mark.parametrize(
    "pushed", [DynoMessage("a", "x"), "abc", [NewMessage("x")], ["a"], [("a", "x")]]
)
def test_a_push_takes_messages_in_a_list(pushed: Any) -> None:
    queue = DynoQueue(cast(Any, NoTopics()), "orders")
    with pytest.raises(TypeError, match=r"push takes .*Messages, not "):
        queue.push(pushed)


def test_an_answer_is_waited_for_as_long_as_sockets_can() -> None:
    assert answer_wait_s(1_500) == 1.5
    assert answer_wait_s(10**18) == 86_400.0


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda c: c.stats(None), TypeError, "topic is a text, not NoneType"),
        (lambda c: c.get("q", 5), TypeError, "id is a text, not int"),
        (lambda c: c.put_group("q", 5), TypeError, "group is a text, not int"),
        (lambda c: c.broker().job(None), TypeError, "job is a text, not NoneType"),
        (lambda c: list(c.browse(None)), TypeError, "topic is a text"),
        (lambda c: c.settle_ids("q", "foo", ["a"]), ValueError, "verb is one of ack, nack, reject"),
        (lambda c: c.settle_ids("q", "ack", ["a"], force=True), TypeError, "settle_ids has no"),
        (lambda c: c.broker().begin_job("q", "foo", {}), ValueError, "action is one of cancel"),
        (
            lambda c: c.peek("q", lease=timedelta(milliseconds=5)),
            TypeError,
            "peek has no argument 'lease'",
        ),
        (lambda c: c.reschedule("q", "x", bogus=1), TypeError, "reschedule has no argument"),
        (lambda c: c.replay("q", ["x"], bogus=1), TypeError, "replay has no argument 'bogus'"),
        (lambda c: c.get("q", "x", bogus=1), TypeError, "a call has no argument 'bogus'"),
        (lambda c: c.get_topic(), TypeError, "get_topic"),
    ],
)
def test_what_calls_cannot_take(call: Any, error: type[Exception], said: str) -> None:
    """Whatever is wrong is said before anything is sent, and by no name of the inside."""
    with Client(NOBODY) as client, pytest.raises(error, match=said):
        call(client)


def test_methods_say_what_they_take_and_return() -> None:
    said = str(inspect.signature(Client.purge))
    assert said.startswith("(self, /, topic: 'str', *, group:")
    assert said.endswith("-> 'int'")
