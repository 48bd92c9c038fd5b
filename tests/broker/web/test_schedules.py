"""Recurring schedules over HTTP: members, refusals that name them, previews, and firings."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import pytest

DAILY = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "body": "x"}


def url_of(topic: str, schedule: str = "daily", verb: str = "") -> str:
    return f"/v1/topics/{topic}/schedules/{quote(schedule, safe='')}{verb}"


def test_a_schedule_is_made_read_changed_and_deleted(broker: Any, topic: str) -> None:
    path = url_of(topic, "each day")
    said = {
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
    made = broker.call("PUT", path, said)
    assert made.status == 201
    shown = broker.call("GET", path).json
    assert shown == made.json
    assert shown == said | {
        "topic": topic,
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
    assert time.time() * 1_000 < shown["next_ms"] <= shown["due_ms"] < shown["next_ms"] + 60_001
    changed = broker.call("PATCH", path, {"interval_ms": 7_200_000, "start_ms": 0, "key": None})
    assert changed.status == 200
    assert (changed.json["cron"], changed.json["interval_ms"]) == (None, 7_200_000)
    assert changed.json["key"] is None
    assert changed.json["body"] == "x"
    assert broker.call("PATCH", path, {"body": None}).status == 400
    assert broker.call("PATCH", path, {"body_base64": "/w=="}).json["body_base64"] == "/w=="
    # An interval that replaces a cron expression is counted from now, as in a PUT.
    assert broker.call("PATCH", path, {"cron": "0 9 * * *", "start_ms": None}).status == 200
    begun = broker.call("PATCH", path, {"interval_ms": 7_200_000}).json["start_ms"]
    assert time.time() * 1_000 - 60_000 < begun <= time.time() * 1_000
    kept = broker.call("PATCH", path, {"interval_ms": 3_600_000}).json
    assert kept["start_ms"] == begun
    # PUT replaces all of it.
    again = broker.call("PUT", path, DAILY)
    assert again.status == 200
    assert (again.json["overlap"], again.json["tags"], again.json["body"]) == ("allow", None, "x")
    assert broker.call("DELETE", path).json == {"result": "done"}
    assert broker.call("GET", path).status == 404
    assert broker.call("DELETE", path).status == 404


@pytest.mark.parametrize(
    ("members", "field", "why"),
    [
        ({"body": "x"}, "rrule", "exactly one of cron, interval_ms, rrule"),
        ({"cron": "* * * * *"}, "body", "missing"),
        ({"cron": "* * * * *", "body": 5}, "body", "text"),
        ({"cron": "* * * *", "body": "x"}, "cron", "'* * * *' is not valid"),
        ({"cron": "* * * * *", "body": "x", "body_base64": ""}, "body", "not both"),
        ({"cron": "0 0 * 2 MON#5", "body": "x"}, "cron", "too rarely"),
        ({"rrule": "FREQ=DAILY;BYSETPOS=2", "body": "x"}, "rrule", "too rarely"),
        ({**DAILY, "zone": "Europe/Berln"}, "zone", "Europe/Berln"),
        ({**DAILY, "overlap": "queue"}, "overlap", "buffer_one"),
        ({**DAILY, "jitter_ms": -1}, "jitter_ms", "0"),
        ({**DAILY, "tags": ["a\nb"]}, "tags", "newlines"),
        ({**DAILY, "id": "mine"}, "id", "unknown member"),
        ({**DAILY, "deliver_at_ms": 0}, "deliver_at_ms", "unknown member"),
        ({**DAILY, "headers": {"x": "y" * 20_000}}, "headers", "16384"),
    ],
)
def test_what_is_refused(
    broker: Any, topic: str, assert_problem: Any, members: Any, field: str, why: str
) -> None:
    problem = assert_problem(broker.call("PUT", url_of(topic), members), 400, "bad_request", field)
    assert why in problem["detail"]
    # A refused schedule makes no topic.
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404


def test_refused_names_and_what_is_not_there(broker: Any, topic: str, assert_problem: Any) -> None:
    wrong = {"~own": "begin with ~", "a\x01": "begin with ~", "x" * 201: "200 bytes"}
    # Browsers and curl would take …/schedules/../pause for a pause of the topic.
    for name, why in (wrong | {".": "not be . or ..", "..": "not be . or .."}).items():
        answer = broker.call("PUT", url_of(topic, name), DAILY)
        problem = assert_problem(answer, 400, "bad_request", "schedule")
        assert why in problem["detail"]
    assert broker.call("GET", f"/v1/topics/{topic}/schedules").json["schedules"] == []
    broker.call("PUT", f"/v1/topics/{topic}")
    for method, verb, body in (
        ("GET", "", None),
        ("PATCH", "", {}),
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("POST", "/run", {}),
        ("GET", "/preview", None),
    ):
        answer = broker.call(method, url_of(topic, "none", verb), body)
        assert_problem(answer, 404, "unknown", "schedule")
    past = {"cron": "* * * * *", "end_ms": 10**12, "body": "x"}
    problem = assert_problem(broker.call("PUT", url_of(topic), past), 400, "bad_request", "cron")
    assert "never fires" in problem["detail"]


def test_a_schedule_that_never_fires_makes_no_topic(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    past = {"cron": "* * * * *", "end_ms": 10**12, "body": "x"}
    assert_problem(broker.call("PUT", url_of(topic), past), 400, "bad_request", "cron")
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404


def test_pages(broker: Any, topic: str, assert_problem: Any) -> None:
    for name in ("c", "a", "b", "a b"):
        assert broker.call("PUT", url_of(topic, name), DAILY).status == 201
    path, cursor, names = f"/v1/topics/{topic}/schedules?limit=2", "", []
    for _ in range(2):
        page = broker.call("GET", path + cursor).json
        names += [each["schedule"] for each in page["schedules"]]
        cursor = f"&cursor={quote(page['cursor'] or '')}"
    assert (sorted(names), page["cursor"]) == (["a", "a b", "b", "c"], None)
    for cursor in ("a", "-1", "9" * 30):
        answer = broker.call("GET", f"{path}&cursor={cursor}")
        assert_problem(answer, 400, "bad_request", "cursor")


def test_those_of_all_topics_by_their_next_firing(broker: Any, topic: str) -> None:
    ours = [f"{topic}.{k}" for k in range(3)]
    for k, minutes in enumerate((50, 10, 30)):
        every = {"interval_ms": minutes * 60_000, "body": "secret"}
        assert broker.call("PUT", url_of(ours[k], "s"), every).status == 201
    broker.call("POST", url_of(ours[1], "s", "/pause"), {})

    def listed(**query: int) -> list[str]:
        answer = broker.call("GET", f"/v1/schedules?limit={query.get('limit', 1_000)}").json
        assert answer["cursor"] is None
        return [each["topic"] for each in answer["schedules"]]

    firing = {
        each["topic"]: each["due_ms"]
        for each in broker.call("GET", "/v1/schedules?limit=1000").json["schedules"]
    }
    assert [name for name in listed() if name in ours][-1] == ours[1]
    running = [due for due in firing.values() if due is not None]
    assert running == sorted(running)
    assert listed(limit=2) == listed()[:2]


def test_pause_resume_and_run(broker: Any, topic: str) -> None:
    broker.call("PUT", url_of(topic), {**DAILY, "headers": {"what": "{schedule} {n}"}})
    paused = broker.call("POST", url_of(topic, verb="/pause"), {"note": "a move"}).json
    assert (paused["state"], paused["note"], paused["next_ms"]) == ("paused", "a move", None)
    ran = broker.call("POST", url_of(topic, verb="/run")).json
    assert ran["n"] == 1
    assert ran["id"].startswith("daily@")
    (got,) = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 9_000})["messages"]
    assert (got["id"], got["body"], got["headers"]["what"]) == (ran["id"], "x", "daily 1")
    assert got["headers"]["due"] == ran["id"].partition("@")[2]
    resumed = broker.call("POST", url_of(topic, verb="/resume")).json
    assert (resumed["state"], resumed["note"], resumed["n"]) == ("running", None, 1)
    assert broker.call("POST", url_of(topic, verb="/pause"), {"note": 5}).status == 400


def test_a_firing_over_a_restart(sound_broker: Any, topic: str) -> None:
    """An interval fires by itself, and goes on where it was."""
    own = sound_broker()
    path = url_of(topic, "tick")
    assert own.call("PUT", path, {"interval_ms": 200, "body": "x"}).status == 201
    receive = f"/v1/topics/{topic}/receive"
    (first,) = own.post(receive, {"wait_ms": 9_000})["messages"]
    assert own.stop() == 0
    own.start()
    shown = own.call("GET", path).json
    assert shown["state"] == "running"
    (later,) = own.post(receive, {"wait_ms": 9_000})["messages"]
    instants = [int(each["id"].partition("@")[2]) for each in (first, later)]
    assert instants[0] < instants[1]
    assert (instants[1] - instants[0]) % 200 == 0


def test_previews_show_clock_changes(broker: Any, topic: str, assert_problem: Any) -> None:
    """Of a schedule that is stored, and of one that is not: also in a topic that is not there."""
    members = {
        "cron": "30 2 * 3,10 0",
        "zone": "Europe/Berlin",
        "fold": "both",
        "start_ms": 2_878_600_000_000,
    }
    tried = broker.call("POST", url_of(topic, verb="/preview?n=2"), members)
    assert tried.status == 200
    assert [(each["local"], each["change"]) for each in tried.json["firings"]] == [
        ("2061-03-27T03:00:00+02:00", "moved"),
        ("2061-10-02T02:30:00+02:00", None),
    ]
    assert "second pass" in tried.json["explain"] or "both passes" in tried.json["explain"]
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404
    broker.call("PUT", url_of(topic), {**members, "body": "x"})
    stored = broker.call("GET", url_of(topic, verb="/preview?n=7")).json
    assert stored["firings"][:2] == tried.json["firings"]
    assert [each["change"] for each in stored["firings"]][-2:] == ["repeated", "repeated"]
    assert len(broker.call("GET", url_of(topic, verb="/preview")).json["firings"]) == 10
    for n in ("0", "1001", "x"):
        answer = broker.call("GET", url_of(topic, verb=f"/preview?n={n}"))
        assert_problem(answer, 400, "bad_request", "n")
    # What was put can be tried: members of the message are checked, no more.
    assert (
        broker.call("POST", url_of(topic, verb="/preview?n=2"), DAILY | {"key": "k"}).status == 200
    )
    answer = broker.call("POST", url_of(topic, verb="/preview"), DAILY | {"ttl_ms": -9})
    assert_problem(answer, 400, "bad_request", "ttl_ms")
    answer = broker.call("POST", url_of(topic, verb="/preview"), {"cron": "x"})
    assert_problem(answer, 400, "bad_request", "cron")
    answer = broker.call("POST", url_of(topic, verb="/preview"), {"cron": "0 0 * 2 MON#5"})
    assert_problem(answer, 400, "bad_request", "cron")
    answer = broker.call("POST", url_of(topic, verb="/preview"), {"interval_ms": 1_000})
    assert answer.status == 200


def test_who_may_not_read_bodies_sees_none(secured: Any) -> None:
    path = "/v1/topics/hidden/schedules/s"
    secret = {"cron": "0 0 29 2 *", "body": "secret-body", "headers": {"h": "secret-header"}}
    assert secured.call("PUT", path, secret).status == 201
    viewer, reader = secured.token("viewer:hidden"), secured.token("read,bodies:hidden")
    for place in (path, "/v1/topics/hidden/schedules"):
        assert b"secret" not in secured.call("GET", place, None, viewer).body
        assert b"secret-body" in secured.call("GET", place, None, reader).body
    lines = secured.broker.audit_lines()
    assert any(line["call"] == "putSchedule" for line in lines)
    assert "secret" not in str([line for line in lines if line["call"] == "putSchedule"])


def test_on_a_full_disk_nothing_is_stored_or_fired(
    sound_broker: Any, topic: str, assert_problem: Any
) -> None:
    """What waits for its instant is kept; a pause is accepted."""
    own = sound_broker(limits="disk_reserve_bytes = 0")
    assert own.call("PUT", url_of(topic), DAILY).status == 201
    assert own.stop() == 0
    config = own.data_dir.parent / "delaylog.toml"
    config.write_text(f"[limits]\ndisk_reserve_bytes = {2**53}\n")
    own.start()
    for method, verb, body in (("PUT", "", DAILY), ("PATCH", "", {}), ("POST", "/run", {})):
        assert_problem(own.call(method, url_of(topic, verb=verb), body), 507, "disk_full")
    assert own.call("POST", url_of(topic, verb="/pause")).status == 200


def test_backfill(broker: Any, topic: str, assert_problem: Any) -> None:
    """Instants of a past range become messages, spread by the rate; living ones are kept."""
    hour, start = 3_600_000, 1_798_761_600_000 - 40 * 365 * 86_400_000
    path = url_of(topic)
    timing = {"interval_ms": hour, "start_ms": start}
    assert broker.call("PUT", path, {**timing, "body": "x"}).status == 201
    fill = url_of(topic, verb="/backfill")
    said = {"from_ms": start + 1, "until_ms": start + 3 * hour + 1, "rate": 20}
    for _ in range(2):
        done = broker.call("POST", fill, said)
        assert (done.status, done.json["instants"], done.json["next_from_ms"]) == (200, 3, None)
        found = broker.call("GET", f"/v1/topics/{topic}/messages").json["messages"]
        ids = [f"daily@{start + k * hour}" for k in (1, 2, 3)]
        assert [each["id"] for each in found] == ids
    due = [each["deliver_at_ms"] for each in found]
    assert [due[1] - due[0], due[2] - due[1]] == [50, 50]
    assert broker.call("GET", path).json["n"] == 0
    first = broker.call("POST", fill, {"from_ms": start, "until_ms": start + 1_200 * hour}).json
    assert (first["instants"], first["next_from_ms"]) == (1_000, start + 1_000 * hour)
    rest = {"from_ms": first["next_from_ms"], "until_ms": start + 1_200 * hour}
    assert broker.call("POST", fill, rest).json["instants"] == 200
    counts = broker.call("GET", f"/v1/topics/{topic}/stats").json["counts"]
    assert counts["waiting"] + counts["ready"] == 1_200
    none = broker.call("POST", fill, {"from_ms": 0, "until_ms": 10**11}).json
    assert (none["instants"], none["last_due_ms"]) == (0, None)
    for members, field in (
        ({}, "from_ms"),
        ({"from_ms": 10**12, "until_ms": 10**12}, "from_ms"),
        ({"from_ms": 10**12, "until_ms": 9_000_000_000_000}, "until_ms"),
        ({"from_ms": 10**12, "rate": 0}, "rate"),
    ):
        assert_problem(broker.call("POST", fill, members), 400, "bad_request", field)


def test_the_limit_of_messages_of_a_principal(
    secured: Any, topic: str, assert_problem: Any
) -> None:
    """It holds for the interval of a schedule, for runs and for backfills."""
    token = secured.token(f"admin:{topic}", messages_per_s=3)

    def call(method: str, verb: str = "", body: Any = None) -> Any:
        return secured.call(method, url_of(topic, verb=verb), body, token)

    fast = {"interval_ms": 333, "body": "x"}
    refused = assert_problem(call("PUT", "", fast), 429, "quota", "interval_ms")
    assert "it may be 334 and above" in refused["detail"]
    assert secured.call("GET", f"/v1/topics/{topic}").status == 404
    assert call("PUT", "", {**fast, "interval_ms": 334, "start_ms": 0}).status == 201
    assert_problem(call("PATCH", "", {"interval_ms": 1}), 429, "quota", "interval_ms")
    assert call("PUT", "", {"interval_ms": 3_600_000, "start_ms": 0, "body": "x"}).status == 200
    first_ms = 300_000 * 3_600_000
    fill = {"from_ms": first_ms, "until_ms": first_ms + 36_000_000}
    filled = call("POST", "/backfill", fill).json
    assert (filled["instants"], filled["next_from_ms"]) == (3, first_ms + 3 * 3_600_000)
    assert {200, 429} >= {call("POST", "/run").status for _ in range(20)} >= {429}
    assert secured.call("POST", url_of(topic, verb="/run")).status == 200
    assert secured.call("PUT", url_of(topic), fast).status == 200


def test_a_refused_run_takes_nothing_from_the_limit(
    secured: Any, topic: str, assert_problem: Any
) -> None:
    token = secured.token(f"admin:{topic}", messages_per_s=1)
    assert secured.call("PUT", url_of(topic), {**DAILY, "count": 1}).status == 201
    assert secured.call("PUT", url_of(topic, "other"), DAILY).status == 201
    run = url_of(topic, verb="/run")
    assert secured.call("POST", run).status == 200
    for _ in range(3):
        assert_problem(secured.call("POST", run, None, token), 409, "conflict")
    assert secured.call("POST", url_of(topic, "other", "/run"), None, token).status == 200


def test_a_page_of_large_schedules_ends_early(broker: Any, topic: str) -> None:
    """At 4 MiB of messages, whatever the limit: five of a megabyte take two pages."""
    for number in range(5):
        answer = broker.call("PUT", url_of(topic, f"s{number}"), DAILY | {"body": "x" * 1_000_000})
        assert answer.status == 201
    path = f"/v1/topics/{topic}/schedules"
    page = broker.call("GET", path).json
    rest = broker.call("GET", f"{path}?cursor={page['cursor']}").json
    assert (len(page["schedules"]), len(rest["schedules"]), rest["cursor"]) == (4, 1, None)
    names = [each["schedule"] for each in page["schedules"] + rest["schedules"]]
    assert sorted(names) == [f"s{number}" for number in range(5)]
