"""`delaylog send` from standard input: what is a message, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--bodies"),
        ("list",),
        ("list", "--state", "dead"),
        ("dead",),
        ("dead", "--life"),
        ("show", "m"),
        ("peek",),
        ("receive",),
    ],
)
def test_a_listing_is_not_sent_as_bodies(
    broker: Any, topic: str, run: Any, words: tuple[str, ...]
) -> None:
    """It would be the texts of the listing, due now, and not the messages."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    broker.post(f"{path}/messages", {"body": "x", "id": "m", "delay_ms": HOUR_MS})
    broker.post(f"{path}/messages", [{"body": "x", "id": name} for name in ("d", "r")])
    asked = {"ids": ["d"], "wait_ms": 20_000}
    (got,) = broker.post(f"{path}/receive", asked)["messages"]
    broker.post(f"{path}/nack", {"receipts": [got["receipt"]]})
    verb, *rest = words
    listed = run(verb, topic, *rest, "--json").stdout
    assert listed
    refused = run("send", f"{topic}-copy", stdin=listed.encode())
    assert refused.returncode == 2
    assert "`jq -r .body`" in refused.stderr
    assert "nothing was sent" in refused.stderr
    assert broker.counts(f"{topic}-copy") is None


def test_results_of_a_send_are_not_sent(topic: str, run: Any) -> None:
    results = run("send", topic, "x", "--json").stdout
    assert run("send", topic, stdin=results.encode()).returncode == 2


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"id": "m", "state": "waiting"},
        {"id": "m", "deliver_at_ms": 1, "body": "x"},
        {"attempts": 1, "deliver_at_ms": 1},
        {"text": '"id" "deliver_at_ms" "attempts"'},
        ["id", "deliver_at_ms", "attempts"],
    ],
    ids=str,
)
def test_other_json_is_a_body(broker: Any, topic: str, run: Any, members: Any) -> None:
    line = json.dumps(members)
    assert run("send", topic, stdin=f"{line}\n".encode()).returncode == 0
    assert run("peek", topic, "--bodies-only").stdout == f"{line}\n"


def test_a_listing_as_an_argument_is_a_body(topic: str, run: Any) -> None:
    """Whoever writes it there means it."""
    line = json.dumps({"id": "m", "deliver_at_ms": 1, "attempts": 0})
    assert run("send", topic, line).returncode == 0
