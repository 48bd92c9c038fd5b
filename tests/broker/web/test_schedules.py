"""Recurring schedules over HTTP: refusals that name members, pages, rights and limits of callers.

Their life is told by the scenes of tests/scenes.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

DAILY = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "body": "x"}


def url_of(topic: str, schedule: str = "daily", verb: str = "") -> str:
    return f"/v1/topics/{topic}/schedules/{quote(schedule, safe='')}{verb}"


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
        ({"cron": "* * * * *", "end_ms": 10**12, "body": "x"}, "cron", "never fires"),
    ],
)
def test_refused_members(
    broker: Any, topic: str, assert_problem: Any, members: Any, field: str, why: str
) -> None:
    problem = assert_problem(broker.call("PUT", url_of(topic), members), 400, "bad_request", field)
    assert why in problem["detail"]
    # A refused schedule makes no topic.
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404


def test_refused_names_and_unknown_schedules(broker: Any, topic: str, assert_problem: Any) -> None:
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


def test_statuses_and_refusals_of_the_other_calls(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    """What was put can be tried: a try checks the members of the message."""
    assert [broker.call("PUT", url_of(topic), DAILY).status for _ in range(2)] == [201, 200]
    for method, verb, members, field in (
        ("PATCH", "", {"body": None}, None),
        ("POST", "/pause", {"note": 5}, "note"),
        *(("GET", f"/preview?n={n}", None, "n") for n in ("0", "1001", "x")),
        ("POST", "/preview", DAILY | {"ttl_ms": -9}, "ttl_ms"),
        ("POST", "/preview", {"cron": "x"}, "cron"),
        ("POST", "/preview", {"cron": "0 0 * 2 MON#5"}, "cron"),
        ("POST", "/backfill", {}, "from_ms"),
        ("POST", "/backfill", {"from_ms": 10**12, "until_ms": 10**12}, "from_ms"),
        ("POST", "/backfill", {"from_ms": 10**12, "until_ms": 9_000_000_000_000}, "until_ms"),
        ("POST", "/backfill", {"from_ms": 10**12, "rate": 0}, "rate"),
    ):
        answer = broker.call(method, url_of(topic, verb=verb), members)
        assert_problem(answer, 400, "bad_request", field)
    for members in (DAILY | {"key": "k"}, {"interval_ms": 1_000}):
        assert broker.call("POST", url_of(topic, verb="/preview?n=2"), members).status == 200


def test_bodies_are_hidden_from_callers_without_the_right(secured: Any) -> None:
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


def test_the_limit_of_messages_of_a_principal(
    secured: Any, topic: str, assert_problem: Any
) -> None:
    """It holds for the interval of a schedule, for runs and for backfills."""
    token = secured.token(f"admin:{topic}", messages_per_s=3)

    def call(method: str, verb: str = "", body: Any = None) -> Any:
        return secured.call(method, url_of(topic, verb=verb), body, token)

    fast = {"interval_ms": 333, "body": "x"}
    refused = assert_problem(call("PUT", "", fast), 400, "bad_request", "interval_ms")
    assert "it may be 334 and above" in refused["detail"]
    assert secured.call("GET", f"/v1/topics/{topic}").status == 404
    assert call("PUT", "", {**fast, "interval_ms": 334, "start_ms": 0}).status == 201
    assert_problem(call("PATCH", "", {"interval_ms": 1}), 400, "bad_request", "interval_ms")
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


def test_a_try_from_another_scheduler_says_our_form(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    """`from` converts; it is no member of a schedule that is put."""
    path = url_of(topic, verb="/preview?n=1")
    answer = broker.call("POST", path, {"cron": "rate(1 hour)", "from": "aws"}).json
    assert answer["converted"] == {"interval_ms": 3_600_000}
    assert broker.call("POST", path, DAILY).json["converted"] is None
    refused = broker.call("POST", path, {"cron": "R 9 * * *", "from": "croniter"})
    assert "random times" in assert_problem(refused, 400, "bad_request")["detail"]
    assert broker.call("POST", path, {"interval_ms": 5, "from": "aws"}).json["field"] == "from"
    assert broker.call("POST", path, {"cron": "x", "from": "unix"}).json["field"] == "from"
    assert broker.call("PUT", url_of(topic), DAILY | {"from": "aws"}).json["field"] == "from"
