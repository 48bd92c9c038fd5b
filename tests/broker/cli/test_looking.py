"""`delaylog list` and `delaylog show` against a live broker."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

HOUR_MS = 3_600_000
TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def fill(broker: Any, topic: str, count: int) -> None:
    broker.post(
        f"/v1/topics/{topic}/messages",
        [
            {
                "body": f"body {k}",
                "id": f"m{k:04}",
                "delay_ms": HOUR_MS + k,
                "key": "k",
                "tags": ["even"] if k % 2 == 0 else [],
            }
            for k in range(count)
        ],
    )


def test_list(broker: Any, topic: str, run: Any) -> None:
    """A line a message, pages followed as far as asked; --json prints the members."""
    fill(broker, topic, 1_200)
    broker.call("DELETE", f"/v1/topics/{topic}/messages/m0001")
    living = run("list", topic, "--max", 2).stdout.splitlines()
    assert [line.split()[0] for line in living] == ["m0000", "m0002"], "what has ended is left out"
    lines = run("list", topic, "--state", "all").stdout.splitlines()
    assert len(lines) == 100
    assert lines[0].split()[:2] == ["m0000", "waiting"]
    assert re.fullmatch(TIME, lines[0].split()[2])
    assert lines[0].split("\t")[3:] == ["0", "-", "k", "even"]
    assert lines[1].split("\t")[1:5:3] == ["cancelled", "cancel"]
    assert run("list", topic, "--state", "cancelled").stdout.splitlines() == [lines[1]]
    header, counts = run("stats", topic).stdout.splitlines()
    assert dict(zip(header.split(), counts.split(), strict=True))["bounded_by"] == "-"
    assert dict(zip(header.split(), counts.split(), strict=True))["cancelled"] == "1"
    assert len(run("list", topic, "--state", "all", "--max", 0).stdout.splitlines()) == 1_200
    assert len(run("list", topic, "--state", "all", "--max", 1_100).stdout.splitlines()) == 1_100
    done = run(
        "list", topic, "--state", "waiting", "--tag", "even", "--max", 3, "--json", "--bodies"
    )
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["m0000", "m0002", "m0004"]
    assert [row["body"] for row in rows] == ["body 0", "body 2", "body 4"]
    due = rows[1]["deliver_at_ms"]
    near = run("list", topic, "--due-from", iso(due), "--due-to", iso(due + 1), "--key", "k")
    assert [line.split()[0] for line in near.stdout.splitlines()] == ["m0002"]
    none = run("list", topic, "--state", "dead")
    assert (none.returncode, none.stdout) == (0, "")


def test_show(broker: Any, topic: str, run: Any) -> None:
    """All members, and with --life every step."""
    fill(broker, topic, 1)
    broker.call("DELETE", f"/v1/topics/{topic}/messages/m0000")
    done = run("show", topic, "m0000")
    assert done.returncode == 0
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (shown["state"], shown["cause"], shown["body"]) == ("cancelled", "cancel", "body 0")
    assert re.fullmatch(TIME, shown["deliver_at"])
    steps = run("show", topic, "m0000", "--life").stdout.splitlines()[-2:]
    assert all(re.fullmatch(TIME, line.split()[0]) for line in steps)
    assert [line.split()[1] for line in steps] == ["sent", "cancelled"]
    assert "cause=cancel" in steps[1]
    (line,) = run("show", topic, "m0000", "--life", "--json").stdout.splitlines()
    assert [step["event"] for step in json.loads(line)["life"]] == ["sent", "cancelled"]


def test_bodies_in_lines(broker: Any, topic: str, run: Any) -> None:
    """A body stays on its line, whatever is in it."""
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, {"body": "two\nlines", "id": "a", "delay_ms": HOUR_MS})
    broker.post(path, {"body_base64": "/w==", "id": "b", "delay_ms": 2 * HOUR_MS})
    lines = run("list", topic, "--bodies").stdout.splitlines()
    assert [line.rpartition("\t")[2] for line in lines] == ["two\\nlines", "\\xff"]


def test_dead(broker: Any, topic: str, run: Any) -> None:
    """Dead letters with their causes, and with --life what happened to each."""
    broker.call("PUT", f"/v1/topics/{topic}", {"max_retry": 0})
    broker.post(f"/v1/topics/{topic}/messages", [{"body": "x", "id": name} for name in "ab"])
    got = broker.post(f"/v1/topics/{topic}/receive", {"max": 2, "wait_ms": 5_000})["messages"]
    nacked, rejected = (each["receipt"] for each in got)
    why = ("--reason", "no such mailbox")
    assert run("nack", topic, nacked, *why).stdout == f"{nacked}\tdone\n"
    assert run("reject", topic, rejected).stdout == f"{rejected}\tdone\n"
    lines = run("dead", topic).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["a", "dead"], ["b", "dead"]]
    assert [line.split("\t")[4] for line in lines] == ["retries", "rejected"]
    assert [line.split("\t")[7] for line in lines] == ["no such mailbox", "-"]
    shown = dict(line.split(maxsplit=1) for line in run("show", topic, "a").stdout.splitlines())
    assert shown["reason"] == "no such mailbox"
    with_bodies, _ = run("dead", topic, "--bodies").stdout.splitlines()
    assert with_bodies.split("\t")[7:] == ["no such mailbox", "x"]
    message, *steps = run("dead", topic, "--max", 1, "--life").stdout.splitlines()
    assert message.endswith("\tno such mailbox")
    assert [line.split()[1] for line in steps] == ["sent", "ready", "leased", "dead"]
    (row, _) = (json.loads(line) for line in run("dead", topic, "--json").stdout.splitlines())
    assert "history" not in row
    assert [
        json.loads(line)["id"]
        for line in run("list", topic, "--state", "dead", "--json").stdout.splitlines()
    ] == ["a", "b"]
