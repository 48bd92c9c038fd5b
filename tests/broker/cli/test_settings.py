"""`delaylog topic`: the settings of a topic."""

from __future__ import annotations

import json
from typing import Any


def test_settings_of_a_topic(broker: Any, topic: str, run: Any) -> None:
    """What is not named stays; a limit can be removed."""
    assert run("topic", "set", topic).returncode == 2
    assert run("topic", "show", topic).returncode == 1
    words = ("--max-retry", 5, "--backoff", "first=2s,max=1h", "--ttl", "1h", "--dead-expired")
    assert run("topic", "set", topic, *words, "--rate-limit", 100).returncode == 0
    done = run("topic", "set", topic, "--backoff", "factor=3", "--quota", "pending=9", "--json")
    settings = json.loads(done.stdout)["settings"]
    assert (settings["max_retry"], settings["ttl_ms"], settings["dead_expired"]) == (
        *(5, 3_600_000, True),
    )
    backoff = settings["backoff"]
    assert [backoff[name] for name in ("first_ms", "max_ms", "factor")] == [2_000, 3_600_000, 3]
    assert settings["rate_limit"]["per_second"] == 100
    assert settings["quota"]["pending"] == 9
    changed = ("--no-rate-limit", "--no-dead-expired", "--ttl", "never")
    lines = run("topic", "set", topic, *changed).stdout.splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert (shown["ttl"], shown["max_retry"], shown["dead_expired"]) == ("never", "5", "no")
    assert "rate_limit" not in shown
    assert run("topic", "show", topic).stdout.splitlines() == lines
    assert run("topic", "drop", topic).stdout == f"{topic} dropped\n"
    assert run("topic", "show", topic).returncode == 1
