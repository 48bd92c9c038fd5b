"""The SDK and its workers against a broker that requires tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from delaylog.client import Client, Forbidden, SendFailed, Unauthorized
from tests.broker.conftest import Secured
from tests.waiting import await_that


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token of the environment counts."""
    for name in ("DELAYLOG_TOKEN", "DELAYLOG_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_errors_of_a_client_without_the_right(secured: Secured, topic: str) -> None:
    """No token, a wrong one, and one for receiving only; the text names the missing right."""
    with Client(secured.broker.url) as client, pytest.raises(Unauthorized):
        client.send(topic, "x")
    token = secured.token(f"receive:default/{topic}")
    with Client(secured.broker.url, token=token) as client:
        assert client.receive(topic) == []
        with pytest.raises(Forbidden, match="send"):
            client.send(topic, "x")
        sending = client.send_soon(topic, "x")
        with pytest.raises(Forbidden, match="send"):
            sending.result(timedelta(seconds=10))
        with pytest.raises(SendFailed) as caught:
            client.send_many(topic, ["x", "y"])
    assert {type(each) for each in caught.value.outcomes} == {Forbidden}
    assert token not in str(caught.value)


def test_a_worker_of_a_revoked_token_ends_with_that_error(secured: Secured, topic: str) -> None:
    """In the middle of a long poll; it does not wait for the poll."""
    name = f"worker-{topic}"
    token = secured.principal(name, "receive", "send")
    handled: list[str] = []
    with Client(secured.broker.url, token=token) as client:

        @client.consumer(topic)
        def handle(message: Any) -> None:
            handled.append(message.text)

        client.send(topic, "before")
        client.start()
        await_that(lambda: handled == ["before"])
        assert secured.call("DELETE", f"/v1/principals/{name}").status == 200
        await_that(client._end.is_set)
        with pytest.raises(Unauthorized) as caught:
            client.stop()
    assert caught.value.__notes__ == [f"the consumer of {topic} was refused"]
