"""`delaylog groups`, `purge`, `pause`, `resume`, and `--group` of other verbs, on a live broker."""

from __future__ import annotations

from typing import Any

from tests.broker.cli.conftest import error_of, rows


def test_groups(broker: Any, topic: str, run: Any) -> None:
    """Made, listed, dropped; each verb that looks can look as one of them."""
    (made,) = rows(run("groups", "make", topic, "mail", "--ephemeral", "--json"))
    assert (made["group"], made["ephemeral"]) == ("mail", True)
    made_lines = run("groups", "make", topic, "log").stdout.splitlines()
    assert ["group", "log"] in [line.split() for line in made_lines]
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "m"})
    (got,) = rows(run("receive", topic, "--group", "mail", "--wait", "5s", "--ack", "--json"))
    assert got["id"] == "m"
    listed = {
        each["group"]: each["counts"] for each in rows(run("groups", "list", topic, "--json"))
    }
    assert (listed["mail"]["acked"], listed["log"]["acked"]) == (1, 0)
    lines = run("groups", "list", topic).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["group", "default", "mail", "log"]
    assert [line.split()[-1] for line in lines] == ["ephemeral", "no", "yes", "no"]
    for group, state in (("mail", "acked"), ("log", "ready")):
        (shown,) = rows(run("show", topic, "m", "--group", group, "--json"))
        assert shown["state"] == state
        (line,) = rows(run("list", topic, "--state", "all", "--group", group, "--json"))
        assert line["state"] == state
        (stats,) = rows(run("stats", topic, "--group", group, "--json"))
        assert (stats["group"], stats["counts"][state]) == (group, 1)
    done = run("cancel", topic, "m")
    assert done.stdout == "m\tdone\ttoo late in mail\n"
    assert run("groups", "drop", topic, "log").stdout == "log dropped\n"
    (dropped,) = rows(run("groups", "drop", topic, "mail", "--json"))
    assert dropped == {"topic": topic, "group": "mail", "result": "done"}


def test_refusals(broker: Any, topic: str, run: Any) -> None:
    """The broker's reason, which names what is there; wrong words are usage."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "m"})
    for words in (
        ("groups", "drop", topic, "no"),
        ("purge", topic, "--group", "no"),
        ("show", topic, "m", "--group", "no"),
        ("list", topic, "--group", "no"),
        ("stats", topic, "--group", "no"),
        ("receive", topic, "--group", "no"),
    ):
        error = error_of(run(*words, "--json"))
        assert (error["code"], error["field"]) == ("unknown", "group"), words
        assert "its groups are default" in error["message"]
    assert error_of(run("groups", "make", topic, "default", "--json"))["code"] == "conflict"
    assert error_of(run("groups", "make", topic, "a b", "--json"))["code"] == "bad_request"
    for verb in ("purge", "pause", "resume"):
        assert error_of(run(verb, "not-there", "--json"))["code"] == "unknown"
    for words in (
        ("groups",),
        ("groups", "rename", topic, "a"),
        ("groups", "make", topic),
        ("stats", "--group", "a"),
        ("receive", topic, "--tags-mode", "all"),
        ("send", topic, "x", "--merge", "append"),
    ):
        assert run(*words).returncode == 2, words


def test_purge(broker: Any, topic: str, run: Any) -> None:
    """In one group or in all; what is under lease stays, but by force."""
    url = f"/v1/topics/{topic}"
    run("groups", "make", topic, "mail")
    broker.post(f"{url}/messages", [{"body": "x"}] * 3)
    broker.post(f"{url}/receive", {"wait_ms": 5_000})
    assert run("purge", topic, "--group", "mail").stdout == f"{topic} purged 3\n"
    (purged,) = rows(run("purge", topic, "--json"))
    assert purged == {"topic": topic, "result": "done", "purged": 2}
    assert run("purge", topic, "--force").stdout == f"{topic} purged 1\n"


def test_pause_and_resume(broker: Any, topic: str, run: Any) -> None:
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    assert run("pause", topic).stdout == f"{topic} paused\n"
    assert run("receive", topic).returncode == 3
    assert rows(run("resume", topic, "--json")) == [
        {"topic": topic, "result": "done", "paused": False}
    ]
    assert run("receive", topic, "--bodies-only").stdout == "x\n"


def test_options_of_a_send(broker: Any, topic: str, run: Any) -> None:
    """A send's further words, and a receive that filters by tags."""
    words = (
        "--max-retry",
        3,
        "--backoff",
        "700ms",
        "--merge",
        "reject",
        "--tag",
        "a",
        "--tag",
        "b",
    )
    assert run("send", topic, "x", "--id", "m", *words).returncode == 0
    again = run("send", topic, "x", "--id", "m", *words)
    assert (again.returncode, again.stdout.split()[-1]) == (1, "rejected")
    run("send", topic, "y", "--tag", "a")
    (shown,) = rows(run("show", topic, "m", "--json"))
    assert (shown["max_retry"], shown["backoff"]) == (3, {"first_ms": 700})
    tags, both = ("--tag", "a", "--tag", "b"), ("--tags-mode", "all")
    assert run("receive", topic, "--max", 5, *tags, *both, "--bodies-only").stdout == "x\n"
    assert run("receive", topic, "--max", 5, *tags, "--bodies-only").stdout == "y\n"


def test_a_purge_that_erases(broker: Any, topic: str, run: Any) -> None:
    """By force, of itself; the topic says that it goes on."""
    broker.post(f"/v1/topics/{topic}/messages", [{"body": "x", "delay_ms": 60_000}] * 3)
    done = run("purge", topic, "--erase")
    assert done.stdout == f"{topic} purged 3\n"
    assert "`delaylog topics` shows the state erasing" in done.stderr
    assert broker.call("GET", f"/v1/topics/{topic}").json["erasing"] is True


def test_push_targets(broker: Any, topic: str, run: Any) -> None:
    """Times that are none are no times of 1970; secrets are read from standard input only."""
    url = ("--to", "https://example.com/hook")
    (made,) = rows(run("target", "set", topic, "default", *url, "--per-second", "5", "--json"))
    shown = {
        line.split()[0]: line.split()[-1]
        for line in run("target", "show", topic, "default").stdout.splitlines()
    }
    assert {shown[name] for name in ("open_until", "throttled_until", "failing_since")} == {"-"}
    (rotated,) = rows(run("target", "change", topic, "default", "--rotate", "--json"))
    assert len(rotated["digests"]) == 2
    words = ("target", "change", topic, "default", "--secrets", "-", "--unset", "per-second")
    (ended,) = rows(run(*words, "--json", stdin=rotated["secret"].encode() + b"\n"))
    assert (ended["digests"], ended["per_second"]) == (rotated["digests"][:1], None)
    assert run(*words[:5], made["secret"]).returncode == 2
    assert "nothing to change" in run(*words[:4]).stderr
    run("target", "drop", topic, "default")
    hint = f"`delaylog target set {topic} default --to URL` makes one"
    assert hint in run("target", "show", topic, "default").stderr


def test_hold_and_resume(broker: Any, topic: str, run: Any) -> None:
    """Without a topic `resume` releases the broker, and says before and after what that does."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    assert run("resume").stdout == "the broker is not held\n"
    assert "held since" in run("hold", "--note", "a drill").stdout
    try:
        dry = run("resume", "--dry-run").stdout
        assert dry.startswith("held since ")
        assert "(a drill): " in dry
        refused = run("receive", topic)
        assert refused.returncode == 1
        assert "delaylog resume" in refused.stderr
        wrong = run("resume", topic, "--dry-run")
        assert (wrong.returncode, "leave out the topic" in wrong.stderr) == (2, True)
        assert run("resume", topic).stdout == f"{topic} resumed\n"
        (shown,) = rows(run("resume", "--dry-run", "--json"))
        assert (shown["held"], shown["note"]) == (True, "a drill")
        assert shown["due"] >= 1
    finally:
        (released,) = rows(run("resume", "--json"))
    assert (released["held"], released["result"]) == (False, "done")
    assert released["due"] == shown["due"]
