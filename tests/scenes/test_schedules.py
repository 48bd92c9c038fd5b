"""Recurring schedules: their life, previews, backfills, and what they send."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenes.faces.face import Face, Refused, needs

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
DAILY = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "body": "x"}


def previewed(face: Face, name: str, **asked: int) -> list[dict[str, Any]]:
    firings: list[dict[str, Any]] = face.plain("preview_schedule", name, **asked)["firings"]
    return firings


@needs("schedules")
def test_a_schedule_is_made_read_changed_and_deleted(face: Face) -> None:
    members = {
        **DAILY,
        "headers": {"n": "{n}"},
        "tags": ["a"],
        "key": "k",
        "priority": 3,
        "ttl_ms": 5_000,
        "max_retry": 2,
        "backoff": {"first_ms": 10},
        "jitter_ms": 60_000,
        "overlap": "skip",
        "catch_up": "all",
        "catch_up_window_ms": 7_000,
        "gap": "skip",
        "fold": "both",
        "count": 9,
        "end_ms": 100_000_000_000_000,
    }
    made = face.plain("put_schedule", "each day", **members)
    shown = face.plain("schedule", "each day")
    assert shown == made
    assert shown == members | {
        "topic": face.topic,
        "namespace": "default",
        "schedule": "each day",
        "state": "running",
        "note": None,
        "interval_ms": None,
        "rrule": None,
        "start_ms": None,
        "explain": shown["explain"],
        "next_ms": shown["next_ms"],
        "due_ms": shown["due_ms"],
        "n": 0,
        "fired_ms": None,
        "buffered_ms": None,
        "skipped": 0,
    }
    assert "02:30" in shown["explain"]
    assert face.now_ms() < shown["next_ms"] <= shown["due_ms"] < shown["next_ms"] + 60_001
    assert face.plain("schedules", limit=5) == {"schedules": [shown], "cursor": None}
    change = {"interval_ms": 2 * HOUR_MS, "start_ms": 0, "key": None}
    changed = face.plain("update_schedule", "each day", **change)
    assert (changed["cron"], changed["interval_ms"]) == (None, 2 * HOUR_MS)
    assert (changed["key"], changed["body"]) == (None, "x")
    with pytest.raises(Refused, match="bad_request"):
        face.plain("update_schedule", "each day", cron="61 * * * *")
    changed = face.plain("update_schedule", "each day", body=b"\xff")
    assert changed["body_base64"] == "/w=="
    # A put replaces all of it.
    again = face.plain("put_schedule", "each day", **DAILY)
    assert (again["overlap"], again["tags"], again["body"]) == ("allow", None, "x")
    assert face.plain("drop_schedule", "each day") == {"result": "done"}
    for name in ("schedule", "drop_schedule", "run_schedule", "preview_schedule"):
        with pytest.raises(Refused, match="unknown"):
            face.plain(name, "each day")


@needs("schedules")
def test_an_interval_that_replaces_a_cron_expression_counts_from_now(face: Face) -> None:
    """As in a put."""
    face.plain("put_schedule", "s", **DAILY)
    before_ms = face.now_ms()
    begun = face.plain("update_schedule", "s", interval_ms=2 * HOUR_MS)
    assert before_ms <= begun["start_ms"] <= face.now_ms()
    kept = face.plain("update_schedule", "s", interval_ms=HOUR_MS)
    assert kept["start_ms"] == begun["start_ms"]


@needs("schedules")
def test_a_paused_schedule_may_be_run(face: Face) -> None:
    face.plain("put_schedule", "daily", **DAILY, headers={"what": "{schedule} {n}"})
    paused = face.plain("pause_schedule", "daily", note="a move")
    assert (paused["state"], paused["note"], paused["next_ms"]) == ("paused", "a move", None)
    ran = face.plain("run_schedule", "daily")
    assert ran["n"] == 1
    taken = face.await_message()
    assert (taken.id, taken.text, taken.fields["headers"]["what"]) == (ran["id"], "x", "daily 1")
    assert taken.id == f"daily@{taken.fields['headers']['due']}"
    resumed = face.plain("resume_schedule", "daily")
    assert (resumed["state"], resumed["note"], resumed["n"]) == ("running", None, 1)


@needs("schedules")
def test_a_schedule_fires_at_each_instant(face: Face) -> None:
    face.plain("put_schedule", "tick", interval_ms=200, body="x")
    instants = [int(face.await_message().id.removeprefix("tick@")) for _ in range(3)]
    assert instants == sorted(set(instants))
    assert {(each - instants[0]) % 200 for each in instants} == {0}
    face.plain("drop_schedule", "tick")


@needs("schedules")
def test_schedules_of_all_topics_are_listed_by_their_next_firing(face: Face) -> None:
    for name, hours in (("late", 5), ("soon", 1), ("paused", 3)):
        face.plain("put_schedule", name, interval_ms=hours * HOUR_MS, body="x")
    face.plain("pause_schedule", "paused")
    listed = face.plain("all_schedules", limit=1_000)["schedules"]
    mine = [each["schedule"] for each in listed if each["topic"] == face.topic]
    assert mine == ["soon", "late", "paused"]
    firings = [each["due_ms"] for each in listed if each["due_ms"] is not None]
    assert firings == sorted(firings)
    assert face.plain("all_schedules", limit=2)["schedules"] == listed[:2]


@needs("schedules")
def test_previews_show_clock_changes(face: Face) -> None:
    """Of a schedule that is stored and of one that is not, also in a topic that does not exist."""
    members = {
        "cron": "30 2 * 3,10 0",
        "zone": "Europe/Berlin",
        "fold": "both",
        "start_ms": 2_878_600_000_000,
    }
    tried = face.plain("try_schedule", "s", 2, **members)
    assert [(each["local"], each["change"]) for each in tried["firings"]] == [
        ("2061-03-27T03:00:00+02:00", "moved"),
        ("2061-10-02T02:30:00+02:00", None),
    ]
    assert "both passes" in tried["explain"]
    assert not face.exists()
    face.plain("put_schedule", "s", body="x", **members)
    stored = previewed(face, "s", n=7)
    assert stored[:2] == tried["firings"]
    assert [each["change"] for each in stored][-2:] == ["repeated", "repeated"]
    assert len(previewed(face, "s")) == 10


@needs("schedules")
def test_a_preview_has_the_instants_of_a_range(face: Face) -> None:
    """Of the future and the past; the firings before the range use up the count."""
    face.plain("put_schedule", "r", cron="0 0 * * *", body="x", count=5)
    first_ms = previewed(face, "r", n=1)[0]["instant_ms"]

    def instants(**asked: int) -> list[int]:
        return [(each["instant_ms"] - first_ms) // DAY_MS for each in previewed(face, "r", **asked)]

    assert instants(from_ms=first_ms + 3 * DAY_MS - 5) == [3, 4]
    assert instants(from_ms=first_ms + DAY_MS, until_ms=first_ms + 2 * DAY_MS) == [1]
    assert instants(from_ms=first_ms + 9 * DAY_MS) == []
    assert instants(from_ms=first_ms - 3 * DAY_MS, n=2) == [-3, -2]


@needs("schedules", "list")
def test_a_backfill_sends_the_instants_of_a_past_range(face: Face) -> None:
    """The rate spreads them; living messages are kept."""
    start_ms = 1_798_761_600_000 - 40 * 365 * DAY_MS
    face.plain("put_schedule", "s", interval_ms=HOUR_MS, start_ms=start_ms, body="x")
    range_ = {"from_ms": start_ms + 1, "until_ms": start_ms + 3 * HOUR_MS + 1, "rate": 20}
    ids = [f"s@{start_ms + hour * HOUR_MS}" for hour in (1, 2, 3)]
    for _ in range(2):
        done = face.plain("backfill_schedule", "s", **range_)
        assert (done["instants"], done["next_from_ms"]) == (3, None)
        assert list(face.listed()) == ids
    due = [seen.due_ms for seen in map(face.get, ids) if seen is not None]
    assert [due[1] - due[0], due[2] - due[1]] == [50, 50]
    assert face.plain("schedule", "s")["n"] == 0
    until_ms = start_ms + 1_200 * HOUR_MS
    first = face.plain("backfill_schedule", "s", from_ms=start_ms, until_ms=until_ms)
    assert (first["instants"], first["next_from_ms"]) == (1_000, start_ms + 1_000 * HOUR_MS)
    rest = face.plain("backfill_schedule", "s", from_ms=first["next_from_ms"], until_ms=until_ms)
    assert rest["instants"] == 200
    counts = face.counts() or {}
    assert counts.get("waiting", 0) + counts["ready"] == 1_200
    none = face.plain("backfill_schedule", "s", from_ms=0, until_ms=10**11)
    assert (none["instants"], none["last_due_ms"]) == (0, None)


@needs("schedules")
def test_lines_of_icalendar_are_stored_as_a_rule(face: Face) -> None:
    """DTSTART becomes members. A put of the same lines changes nothing. A change may have another
    DTSTART, or another form with its own rule for gaps.
    """
    text = "DTSTART;TZID=America/Denver:20610103T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO;COUNT=3"
    made = face.plain("put_schedule", "ics", rrule=text, body="x")
    assert made["rrule"] == "FREQ=WEEKLY;BYDAY=MO;COUNT=3"
    assert (made["zone"], made["gap"]) == ("America/Denver", "shift")
    assert face.plain("put_schedule", "ics", rrule=text, body="x") == made
    assert [each["local"][:16] for each in previewed(face, "ics")] == [
        f"2061-01-{day}T09:00" for day in ("03", "10", "17")
    ]
    later = text.replace("0103T09", "0104T10").replace("Denver", "New_York")
    changed = face.plain("update_schedule", "ics", rrule=later)
    assert (changed["zone"], changed["start_ms"]) == ("America/New_York", 2_872_076_400_000)
    changed = face.plain("update_schedule", "ics", cron="0 9 * * *")
    assert (changed["gap"], changed["zone"]) == ("next", "America/New_York")
