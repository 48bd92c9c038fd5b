"""Topics that camellia's clients name as they like can be managed by the rest of the API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NAMES = ["a/b", "order:created", "two words", "ünïcode", "50%", "a?b#c", "~x", "a,b", "%2F"]


def _send(broker: Any, name: str) -> None:
    form = urlencode({"topic": name, "msg": "x", "delayMillis": 3_600_000})
    answer = broker.call("POST", "/camellia/delayQueue/sendMsg", form.encode(), FORM)
    assert answer.json["code"] == 200


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_of_any_name_is_managed(broker: Any, assert_problem: Any, name: str) -> None:
    """Looked at, purged and deleted by its percent-encoded name; then the name is none again."""
    path = f"/v1/topics/{quote(name, safe='')}"
    assert_problem(broker.call("GET", f"{path}/stats"), 400, "bad_request", "topic")
    _send(broker, name)
    for _ in range(2):
        assert broker.call("GET", f"{path}/stats").json["counts"]["waiting"] == 1
    assert broker.call("GET", path).status == 200
    assert broker.post(f"{path}/purge", {"force": True})["purged"] == 1
    assert broker.call("GET", f"{path}/stats").json["counts"]["waiting"] == 0
    assert broker.call("DELETE", f"{path}?force=true").status == 200
    assert_problem(broker.call("GET", f"{path}/stats"), 400, "bad_request", "topic")
    assert_problem(broker.call("PUT", path, {}), 400, "bad_request", "topic")
