"""A broker whose monitor period is two seconds, and camellia's calls on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.waiting import await_that

FORM = "application/x-www-form-urlencoded"


class Camellia:
    """camellia's HTTP API as its clients use it."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker

    def raw(self, name: str, method: str = "POST", **params: object) -> Any:
        """The HTTP answer of a call, parameters in the body (POST) or the query (GET)."""
        text = urlencode({key: value for key, value in params.items() if value is not None})
        if method == "GET":
            return self.broker.call("GET", f"/camellia/delayQueue/{name}?{text}")
        return self.broker.call(
            method, f"/camellia/delayQueue/{name}", text.encode(), {"Content-Type": FORM}
        )

    def call(self, name: str, method: str = "POST", **params: object) -> dict[str, Any]:
        """The members of an answer, which must have come with HTTP 200."""
        answer = self.raw(name, method, **params)
        assert answer.status == 200, answer
        assert answer.headers["Content-Type"].startswith("application/json")
        members: dict[str, Any] = json.loads(answer.body)
        return members

    def send(self, topic: str, msg: str = "m", delay: int = 0, **params: object) -> dict[str, Any]:
        """Send, which must succeed; returns the delayMsg."""
        answer = self.call("sendMsg", topic=topic, msg=msg, delayMillis=delay, **params)
        assert (answer["code"], answer["msg"]) == (200, "success"), answer
        found: dict[str, Any] = answer["delayMsg"]
        return found

    def pull(self, topic: str, **params: object) -> list[dict[str, Any]]:
        """Pull, which must succeed."""
        answer = self.call("pullMsg", topic=topic, **params)
        assert answer["code"] == 200, answer
        found: list[dict[str, Any]] = answer["delayMsgList"]
        return found

    def pull_one(self, topic: str, **params: object) -> dict[str, Any]:
        """Wait for one message."""
        answer = self.call("longPollingMsg", topic=topic, **params)
        assert answer["code"] == 200, answer
        (found,) = answer["delayMsgList"]
        return dict(found)

    def get(self, topic: str, msg_id: str) -> dict[str, Any] | None:
        """The message, None when the call says 404."""
        answer = self.call("getMsg", topic=topic, msgId=msg_id)
        assert answer["code"] == (200 if answer["delayMsg"] else 404), answer
        found: dict[str, Any] | None = answer["delayMsg"]
        return found

    def status(self, topic: str, msg_id: str) -> int | None:
        """Its state number, None when it is not known."""
        found = self.get(topic, msg_id)
        return None if found is None else int(found["status"])

    def ack(self, topic: str, msg_id: str, *, done: bool = True) -> None:
        """Settle, which is always answered by success."""
        answer = self.call("ackMsg", topic=topic, msgId=msg_id, ack=str(done).lower())
        assert answer == {"code": 200, "msg": "success"}

    def delete(self, topic: str, msg_id: str, **params: object) -> int:
        """Delete; returns the code."""
        return int(self.call("deleteMsg", topic=topic, msgId=msg_id, **params)["code"])

    def info(self, topic: str) -> dict[str, Any]:
        """Topic info."""
        answer = self.call("getTopicInfo", "GET", topic=topic)
        assert answer["code"] == 200, answer
        data: dict[str, Any] = answer["data"]
        return data

    def await_status(self, topic: str, msg_id: str, status: int) -> None:
        """Return once the message shows this state."""
        shown = partial(self.status, topic, msg_id)
        await_that(lambda: shown() == status, shown)


@pytest.fixture(scope="module")
def broker(sound_broker: Callable[..., Any]) -> Any:
    """The module's broker. It leaves cleanly and has logged no error.

    Who adds up periods has to see each of them: so a test's calls, and a look, may take one each.
    """
    return sound_broker(constants={"delaylog.broker.camellia.monitor.PERIOD_SECONDS": 6.0})


@pytest.fixture
def camellia(broker: Any) -> Camellia:
    return Camellia(broker)
