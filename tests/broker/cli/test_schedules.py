"""`delaylog schedule` on a live broker: each action, as text and as JSON, and refusals."""

from __future__ import annotations

import json
import subprocess
from typing import Any


def rows(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """Lines of JSON of a command that went well."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def error_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 1
    error: dict[str, Any] = json.loads(done.stderr)["error"]
    return error


def test_a_schedule_from_put_to_delete(broker: Any, topic: str, run: Any) -> None:
    words = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--body", "x", "--tag", "a")
    (put,) = rows(run("schedule", "put", topic, "s", *words, "--jitter", "1m", "--json"))
    assert (put["schedule"], put["state"], put["tags"]) == ("s", "running", ["a"])
    assert put["jitter_ms"] == 60_000
    shown = run("schedule", "show", topic, "s").stdout
    assert "Europe/Berlin" in shown
    assert any(line.split()[:2] == ["state", "running"] for line in shown.splitlines())
    (changed,) = rows(
        run("schedule", "change", topic, "s", "--interval", "1d", "--start", "2061-01-01", "--json")
    )
    assert (changed["cron"], changed["interval_ms"]) == (None, 86_400_000)
    assert changed["start_ms"] == 2_871_763_200_000
    assert rows(run("schedule", "list", topic, "--json")) == [changed]
    table = [line.split() for line in run("schedule", "list", topic).stdout.splitlines()]
    assert table[0] == ["schedule", "state", "cron", "interval", "rrule", "zone", "next", "n"]
    assert table[1][:4] == ["s", "running", "-", "1d"]
    assert run("schedule", "pause", topic, "s", "--note", "a move").stdout == "s is paused\n"
    (got,) = rows(run("schedule", "run", topic, "s", "--json"))
    assert (got["schedule"], got["n"]) == ("s", 1)
    assert run("schedule", "run", topic, "s").stdout.startswith("s@")
    words = ("--from", "2061-01-01", "--until", "2061-01-02")
    refused = run("schedule", "backfill", topic, "s", *words, "--json")
    assert error_of(refused)["field"] == "until_ms"
    assert run("schedule", "resume", topic, "s").stdout == "s is running\n"
    assert run("schedule", "delete", topic, "s").stdout == "s deleted\n"
    assert rows(run("schedule", "list", topic, "--json")) == []


def test_previews(broker: Any, topic: str, run: Any) -> None:
    words = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--start", "2061-03-26T12:00Z")
    tried = rows(run("schedule", "try", topic, "s", *words, "--n", "2", "--json"))
    assert [each["change"] for each in tried] == ["moved", None]
    assert rows(run("schedule", "put", topic, "s", *words, "--body", "x", "--json"))
    assert rows(run("schedule", "preview", topic, "s", "--n", "2", "--json")) == tried
    lines = run("schedule", "preview", topic, "s", "--n", "1").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["local", "2061-03-27T03:00:00+02:00"]
    assert lines[1].endswith("moved")


def test_refusals(broker: Any, topic: str, run: Any) -> None:
    """The broker's reason and its member; wrong words are usage."""
    wrong = run("schedule", "put", topic, "s", "--cron", "* *", "--body", "x", "--json")
    assert error_of(wrong)["field"] == "cron"
    assert error_of(run("schedule", "show", topic, "s", "--json"))["code"] == "unknown"
    assert run("schedule", "put", topic, "s", "--overlap", "queue").returncode == 2
    assert run("schedule", "put", topic).returncode == 2
