"""Topics that camellia's clients name as they like can be managed by the rest of the API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

NAMES = ["a/b", "order:created", "two words", "ünïcode", "50%", "a?b#c", "~x", "a,b", "%2F"]


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_of_any_name_is_managed(
    camellia: Any, broker: Any, assert_problem: Any, name: str
) -> None:
    """Looked at, purged and deleted by its percent-encoded name; then the name is none again."""
    path = f"/v1/topics/{quote(name, safe='')}"
    assert_problem(broker.call("GET", f"{path}/stats"), 400, "bad_request", "topic")
    camellia.send(name, delay=3_600_000)
    for _ in range(2):
        assert broker.call("GET", f"{path}/stats").json["counts"]["waiting"] == 1
    assert broker.call("GET", path).status == 200
    assert broker.post(f"{path}/purge", {"force": True})["purged"] == 1
    assert broker.call("GET", f"{path}/stats").json["counts"]["waiting"] == 0
    assert broker.call("DELETE", f"{path}?force=true").status == 200
    assert_problem(broker.call("GET", f"{path}/stats"), 400, "bad_request", "topic")
    assert_problem(broker.call("PUT", path, {}), 400, "bad_request", "topic")
