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


def test_a_forecast_goes_on_by_days(broker: Any, topic: str, run: Any) -> None:
    """Timers are often due after the next hours, which said only `later`."""
    path = f"/v1/topics/{topic}"
    hours = [1, 30, 31, 29 * 24, 40 * 24]
    broker.post(f"{path}/messages", [{"body": "x", "delay_ms": hour * HOUR_MS} for hour in hours])
    for asked, by_hour in (((), 1), (("--hours", 0), 0), (("--hours", 20), 1)):
        header, *rows, later = run("forecast", topic, *asked).stdout.splitlines()
        cells = [dict(zip(header.split(), row.split(), strict=True)) for row in rows]
        counts = [(each["length"], int(each["count"])) for each in cells]
        assert counts[:by_hour] == [("1h", 1)] * by_hour
        assert {length for length, _ in counts[by_hour:]} == {"1d"}
        assert sum(count for _, count in counts) == 4
        assert later == "later: 1"
    (line,) = run("forecast", topic, "--hours", 2, "--json").stdout.splitlines()
    assert (len(json.loads(line)["hours"]), json.loads(line)["later"]) == (2, 4)


def test_ids_of_the_broker_without_their_tilde(broker: Any, topic: str, run: Any) -> None:
    """zsh expands it, and a double click leaves it out; a client's own id wins."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    sent = [broker.post(f"{path}/messages", {"body": str(n)})["id"] for n in range(6)]
    bare = [each.removeprefix("~") for each in sent]
    for each in sent:
        broker.post(f"{path}/receive", {"wait_ms": 20_000, "ids": [each]})
    assert f"id              {sent[0]}" in run("show", topic, bare[0]).stdout
    assert run("extend", topic, "--by-id", bare[0], "--lease", "1h").stdout == f"{sent[0]}\tdone\n"
    done = run("ack", topic, "--by-id", bare[0], sent[1], "none").stdout
    assert done == f"{sent[0]}\tdone\n{sent[1]}\tdone\nnone\tunknown\n"
    assert run("nack", topic, "--by-id", bare[2]).stdout == f"{sent[2]}\tdone\n"
    assert run("reject", topic, "--by-id", bare[3]).stdout == f"{sent[3]}\tdone\n"
    for verb, more in (("replay", ("--delay", "1h")), ("reschedule", ("--delay", "2h"))):
        assert run(verb, topic, bare[2], *more).stdout.startswith(f"{sent[2]}\tdone")
    assert run("cancel", topic, bare[2]).stdout == f"{sent[2]}\tdone\tcancelled\n"
    (line,) = run("cancel", topic, bare[3], "--force", "--json").stdout.splitlines()
    assert json.loads(line)["id"] == sent[3]
    broker.post(f"{path}/messages", {"body": "own", "id": bare[4], "delay_ms": HOUR_MS})
    assert "body            own" in run("show", topic, bare[4]).stdout
    unknown = "0" * 16
    failed = run("show", topic, unknown)
    assert (failed.returncode, f"has no message '~{unknown}'" in failed.stderr) == (1, True)
    assert run("cancel", topic, unknown).stdout == f"~{unknown}\tunknown\n"
    problem = broker.call("GET", f"{path}/messages/{bare[5]}").json
    assert f"begins with '~', such as '{sent[5]}'" in problem["detail"]
    assert "~" not in broker.call("GET", f"{path}/messages/none").json["detail"]


def test_a_topic_that_does_not_exist_is_named_in_a_pipe_too(topic: str, run: Any) -> None:
    """Its name may be mistyped; the status stays that of an empty topic."""
    text = f"topic {topic} does not exist yet; nothing to show"
    calls = ["list", "dead", "stats", "forecast", "peek", "receive", "schedule list"]
    for words in (*calls, "dead --reasons"):
        verb, *rest = words.split()
        at = len(rest) if verb == "schedule" else 0
        done = run(verb, *rest[:at], topic, *rest[at:])
        assert done.stderr == f"{text}\n", words
        assert done.returncode == (3 if verb in ("peek", "receive") else 0)
        noted = run(verb, *rest[:at], topic, *rest[at:], "--json")
        assert json.loads(noted.stderr) == {"note": text}, words
        assert noted.returncode == done.returncode


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
    for option in ("--reason-prefix=no such", "--reason=no such mailbox", "--cause=nack"):
        assert [line.split()[0] for line in run("dead", topic, option).stdout.splitlines()] == ["a"]
    assert [
        json.loads(line)["id"]
        for line in run("list", topic, "--state", "dead", "--json").stdout.splitlines()
    ] == ["a", "b"]


def test_dead_letters_by_kind(broker: Any, topic: str, run: Any) -> None:
    """Reasons that differ in numbers are one line, and one option selects them."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    said = {f"v{n}": f"ValueError: cannot parse {n}" for n in range(3)} | {"k": "KeyError: 1"}
    broker.post(f"{path}/messages", [{"body": "x", "id": name} for name in said])
    for got in broker.post(f"{path}/receive", {"max": 4, "wait_ms": 5_000})["messages"]:
        body = {"receipts": [got["receipt"]], "reason": said[got["id"]]}
        broker.post(f"{path}/nack", body)

    def told(*words: object) -> list[tuple[str, str, str]]:
        lines = run("dead", topic, "--reasons", *words).stdout.splitlines()
        rows = [line.split("\t") for line in lines if "\t" in line]
        return [(row[0], row[1], row[-1]) for row in rows]

    assert told() == [("3", "3", "ValueError: cannot parse #"), ("1", "1", "KeyError: 1")]
    exact = told("--exact", "--reason-prefix", "ValueError:")
    assert exact == [("1", "1", said[f"v{n}"]) for n in range(3)]
    assert run("dead", topic, "--reasons", "--max", 1).stdout.endswith(
        "1 more have other reasons\n"
    )
    refused = run("replay", topic)
    for option in ("--cause", "--reason", "--reason-prefix"):
        assert option in refused.stderr
    assert (run("dead", topic, "--exact").returncode, refused.returncode) == (2, 2)
    done = run("replay", topic, "--reason-prefix", "ValueError:")
    assert "matched 3 done 3 too_late 0" in done.stdout
    empty = run("replay", topic, "--reason-prefix", "")
    assert (empty.returncode, "must not be empty" in empty.stderr) == (1, True)
