"""Paths from which a client has removed `.` and `..`, as browsers and curl do.

Such a path is another one: a call about what is named `..` must not reach what is above it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin

import pytest

BELOW = ["messages/..", "groups/..", "schedules/..", "groups/x/../.."]


@pytest.mark.parametrize("below", BELOW)
def test_dots_that_a_client_removes_do_not_reach_the_topic(
    broker: Any, assert_problem: Any, below: str
) -> None:
    """Browsers and curl ask for the folder above `..`, with a slash at the end: 404, no change."""
    topic = f"/v1/topics/dots-{BELOW.index(below)}"
    broker.call("PUT", topic, {})
    path = urljoin("http://a/", f"{topic}/{below}").removeprefix("http://a")
    assert path == f"{topic}/"
    for method in ("DELETE", "PUT", "PATCH", "GET"):
        assert_problem(broker.call(method, f"{path}?force=true", {}), 404, "unknown")
    assert broker.call("GET", topic).status == 200
