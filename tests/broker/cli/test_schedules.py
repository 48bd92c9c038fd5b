"""`delaylog schedule` on a live broker: each action, as text and as JSON, and refusals."""

from __future__ import annotations

from typing import Any

from tests.broker.cli.conftest import error_of, rows


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
    assert " ".join(table[0]) == "schedule state cron interval rrule zone next n note"
    assert table[1][:4] == ["s", "running", "-", "1d"]
    assert run("schedule", "pause", topic, "s", "--note", "a move").stdout == "s is paused\n"
    assert run("schedule", "list", topic).stdout.splitlines()[1].endswith("a move")
    (got,) = rows(run("schedule", "run", topic, "s", "--json"))
    assert (got["schedule"], got["n"]) == ("s", 1)
    assert run("schedule", "run", topic, "s").stdout.startswith("s@")
    words = ("--from", "2061-01-01", "--until", "2061-01-02")
    refused = run("schedule", "backfill", topic, "s", *words, "--json")
    assert error_of(refused)["field"] == "until_ms"
    assert run("schedule", "resume", topic, "s").stdout == "s is running\n"
    assert run("schedule", "drop", topic, "s").stdout == "s dropped\n"
    assert rows(run("schedule", "list", topic, "--json")) == []


def test_previews(broker: Any, topic: str, run: Any) -> None:
    words = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--start", "2061-03-26T12:00Z")
    tried = rows(run("schedule", "try", topic, "s", *words, "--n", "2", "--json"))
    assert [each["change"] for each in tried] == ["moved", None]
    assert rows(run("schedule", "put", topic, "s", *words, "--body", "x", "--json"))
    assert rows(run("schedule", "preview", topic, "s", "--n", "2", "--json")) == tried
    done = run("schedule", "preview", topic, "s", "--n", "1")
    assert done.stderr.startswith("At 02:30 every day, Europe/Berlin time.")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["local", "2061-03-27T03:00:00+02:00"]
    assert lines[1].endswith("moved")


def test_refusals(broker: Any, topic: str, run: Any) -> None:
    """The broker's reason and its member; wrong words are usage."""
    wrong = run("schedule", "put", topic, "s", "--cron", "* *", "--body", "x", "--json")
    assert error_of(wrong)["field"] == "cron"
    assert error_of(run("schedule", "show", topic, "s", "--json"))["code"] == "unknown"
    assert run("schedule", "put", topic, "s", "--overlap", "queue").returncode == 2
    assert run("schedule", "put", topic).returncode == 2


def test_times_without_an_offset_are_of_the_zone(broker: Any, topic: str, run: Any) -> None:
    """In --zone, if it is given; an offset always wins."""
    words = ("--interval", "1d", "--end", "2061-01-04", "--n", "1", "--json")
    for start, zone, hour in (
        ("2061-01-01T09:00", "Asia/Tokyo", 0),
        ("2061-01-01T09:00", "Europe/Berlin", 8),
        ("2061-01-01T09:00Z", "Asia/Tokyo", 9),
    ):
        (tried,) = rows(
            run("schedule", "try", topic, "s", *words, "--start", start, "--zone", zone)
        )
        assert tried["instant_ms"] % 86_400_000 == hour * 3_600_000
    wrong = run("schedule", "try", topic, "s", *words, "--start", "2061-01-01", "--zone", "Moon")
    assert wrong.returncode == 2
    assert "no zone of this machine" in wrong.stderr


def test_a_change_takes_members_back(broker: Any, topic: str, run: Any) -> None:
    """`--unset` is a null; a change of nothing is no call."""
    words = ("--cron", "0 9 * * *", "--end", "2061-01-01", "--count", "3", "--body", "x")
    assert run("schedule", "put", topic, "s", *words).returncode == 0
    (changed,) = rows(
        run("schedule", "change", topic, "s", "--unset", "end", "--unset", "count", "--json")
    )
    assert (changed["end_ms"], changed["count"]) == (None, None)
    nothing = run("schedule", "change", topic, "s")
    assert nothing.returncode == 2
    assert "nothing to change" in nothing.stderr


def test_refusals_name_options(broker: Any, topic: str, run: Any) -> None:
    """A person who has written options reads of options, with durations in their units."""
    wrong = run("schedule", "put", topic, "s", "--cron", "*/90 * * * *", "--body", "x")
    assert "--cron '*/90 * * * *' is not valid" in wrong.stderr
    assert "90 minutes of elapsed time are --interval 1h30m" in wrong.stderr
    assert (
        "one of --cron, --interval, --rrule"
        in run("schedule", "put", topic, "s", "--body", "x").stderr
    )
    assert run("schedule", "list", topic).stdout == ""
    run("send", topic, "x")
    assert f"`delaylog schedule list {topic}`" in run("schedule", "show", topic, "s").stderr


def test_lists_without_a_topic_have_all_topics(broker: Any, topic: str, run: Any) -> None:
    """Schedules and push targets, with the topic of each; --limit holds."""
    run("schedule", "put", topic, "all-a", "--cron", "0 9 * * *", "--body", "x")
    run("groups", "make", topic, "g")
    made = run("target", "set", topic, "g", "--to", "https://example.com/hook")
    assert made.returncode == 0, made.stderr
    listed = rows(run("schedule", "list", "--json", "--limit", "1000"))
    assert (topic, "all-a") in [(each["topic"], each["schedule"]) for each in listed]
    header, *lines = [line.split() for line in run("schedule", "list").stdout.splitlines()]
    assert header[:3] == ["namespace", "topic", "schedule"]
    assert ["default", topic, "all-a"] in [line[:3] for line in lines]
    header, *lines = [line.split() for line in run("target", "list").stdout.splitlines()]
    assert header[:3] == ["namespace", "topic", "group"]
    assert ["default", topic, "g"] in [line[:3] for line in lines]
    run("target", "drop", topic, "g")


def test_a_list_is_whole(broker: Any, topic: str, run: Any) -> None:
    """Longer than a page of the broker; --limit shortens it."""
    for each in range(103):
        broker.call(
            "PUT",
            f"/v1/topics/{topic}/schedules/s{each}",
            {"cron": "0 9 1 1 *", "start_ms": 2_871_763_200_000, "body": "x"},
        )
    listed = rows(run("schedule", "list", topic, "--json"))
    assert {each["schedule"] for each in listed} == {f"s{each}" for each in range(103)}
    assert len(run("schedule", "list", topic).stdout.splitlines()) == 104
    assert len(rows(run("schedule", "list", "--json"))) > 102
    assert len(rows(run("schedule", "list", topic, "--json", "--limit", "101"))) == 101
    assert error_of(run("schedule", "list", topic, "--json", "--limit", "0"))["field"] == "limit"


def test_a_preview_may_begin_and_end_at_a_time(broker: Any, topic: str, run: Any) -> None:
    """The clock change of March without the firings before it."""
    run("schedule", "put", topic, "p", "--cron", "30 2 * * *", "--zone", "Europe/Berlin",
        "--body", "x")  # fmt: skip
    words = ("--from", "2061-03-26T00:00Z", "--until", "2061-03-28T00:00Z")
    found = rows(run("schedule", "preview", topic, "p", *words, "--json"))
    assert [each["local"] for each in found] == [
        "2061-03-26T02:30:00+01:00",
        "2061-03-27T03:00:00+02:00",
    ]
    refused = run("schedule", "preview", topic, "p", "--from", "2061-03-26", "--until",
                  "2061-03-25", "--json")  # fmt: skip
    assert error_of(refused)["field"] == "until_ms"


def test_a_try_converts_the_line_of_another_scheduler(topic: str, run: Any) -> None:
    """Our form to paste is printed beside the firings; a refusal names options."""
    words = ("--from", "quartz", "--cron", "0 0 9 ? * 2-6 2061", "--zone", "Europe/Berlin")
    done = run("schedule", "try", topic, "s", *words, "--n", "1")
    assert "--cron '0 9 * * MON-FRI' --start 2060-12-31T23:00:00" in done.stderr
    assert "2061-01-03T09:00:00+01:00" in done.stdout
    pasted = ("--interval", "300000ms")
    done = run("schedule", "try", topic, "s", "--from", "aws", "--cron", "rate(5 minutes)")
    assert " ".join(pasted) in done.stderr
    assert run("schedule", "try", topic, "s", *pasted).returncode == 0
    done = run("schedule", "try", topic, "s", "--from", "vixie", "--cron", "@reboot")
    assert "@reboot has no times" in done.stderr
    done = run("schedule", "try", topic, "s", "--cron", "cron(0 9 ? * 2-6 *)")
    assert "write --cron '0 9 * * MON-FRI'" in done.stderr
    assert "cron 'cron(0 9 ? * 2-6 *)'" in done.stderr
