"""Lists, dead letters, forecast and life lines over HTTP, on a live broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from delaylog.contract.calls import shapes

HOUR_MS = 3_600_000
LATER = {"body": "x", "delay_ms": HOUR_MS}
STATES = shapes.STATE.words


def get(broker: Any, path: str, **query: Any) -> Any:
    """A GET that must succeed."""
    text = f"?{urlencode(query)}" if query else ""
    answer = broker.call("GET", path + text)
    assert answer.status == 200, answer
    return answer.json


def ids(messages: list[Any]) -> list[str]:
    return [message["id"] for message in messages]


def test_everything_about_a_message(broker: Any, topic: str) -> None:
    """A listed message says what GET says of it; body and headers come when asked for."""
    path = f"/v1/topics/{topic}/messages"
    sent = broker.post(
        path,
        LATER
        | {
            "id": "a/é",
            "priority": 3,
            "ttl_ms": 5_000,
            "tags": ["x", "y"],
            "key": "k",
            "headers": {"h": "v"},
        },
    )
    broker.post(path, {"body_base64": "/w==", "delay_ms": 2 * HOUR_MS})
    assert get(broker, path)["now_ms"] > 0
    one, two = broker.all_pages(path)
    assert one == {
        "id": "a/é",
        "state": "waiting",
        "cause": None,
        "deliver_at_ms": sent["deliver_at_ms"],
        "sent_at_ms": one["sent_at_ms"],
        "expires_at_ms": sent["deliver_at_ms"] + 5_000,
        "attempts": 0,
        "max_retry": 10,
        "priority": 3,
        "key": "k",
        "tags": ["x", "y"],
    }
    shown = get(broker, f"{path}/{quote('a/é', safe='')}")
    assert one.items() <= shown.items()
    assert two["id"].startswith("~")
    one, two = broker.all_pages(path, bodies="true")
    assert (one["body"], one["headers"]) == ("x", {"h": "v"})
    assert (two["body_base64"], two["headers"]) == ("/w==", {})
    packed = broker.all_pages(path, packed=True, bodies="true")
    assert [message["body"] for message in packed] == [b"x", b"\xff"]


def test_filters_and_pages(broker: Any, topic: str) -> None:
    """By state, due time, tag and key; pages of any size are the same list."""
    path = f"/v1/topics/{topic}/messages"
    now = get(broker, "/v1/clock")["now_ms"]
    broker.post(
        path,
        [
            {
                "body": "x",
                "id": f"m{k:02}",
                "deliver_at_ms": now + HOUR_MS + (k * 7 % 20) * 400_000,
                "tags": ["even"] if k % 2 == 0 else ["odd", "third"] if k % 3 == 0 else [],
                "key": f"k{k % 4}",
            }
            for k in range(20)
        ],
    )
    broker.post(path, [{"body": "now", "id": f"n{k}"} for k in range(3)])
    broker.post(f"/v1/topics/{topic}/receive", {"max": 2, "wait_ms": 20_000})
    broker.call("DELETE", f"{path}/m00")
    everything = broker.all_pages(path)
    assert len(everything) == 23
    due = [message["deliver_at_ms"] for message in everything]
    assert due == sorted(due)
    for limit in (1, 2, 7, 1_000):
        assert ids(broker.all_pages(path, limit=limit)) == ids(everything)
    states = {state: len(broker.all_pages(path, state=state, limit=4)) for state in STATES}
    assert states == {
        **dict.fromkeys(STATES, 0),
        "waiting": 19,
        "ready": 1,
        "leased": 2,
        "cancelled": 1,
    }
    assert ids(broker.all_pages(path, state="leased,ready")) == ["n0", "n1", "n2"]
    waiting = [message for message in everything if message["state"] == "waiting"]
    for query, keep in (
        ({"tag": "even"}, lambda m: "even" in m["tags"]),
        ({"tag": "third", "key": "k1"}, lambda m: "third" in m["tags"] and m["key"] == "k1"),
        ({"key": "k3", "limit": 1}, lambda m: m["key"] == "k3"),
        (
            {"due_from": due[8], "due_to": due[14]},
            lambda m: due[8] <= m["deliver_at_ms"] < due[14],
        ),
        ({"tag": "none"}, lambda _: False),
    ):
        wanted = [message["id"] for message in waiting if keep(message)]
        assert ids(broker.all_pages(path, state="waiting", **query)) == wanted, query


def test_a_cursor_outlives_a_restart(start_broker: Any) -> None:
    """Killed or stopped between two pages, the list goes on."""
    broker = start_broker()
    path = "/v1/topics/t/messages"
    broker.post(path, [LATER | {"id": f"{k:03}", "delay_ms": HOUR_MS + k} for k in range(90)])
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for turn in range(9):
        page = get(broker, path, limit=10, **cursor)
        seen += ids(page["messages"])
        cursor = {"cursor": page["cursor"]}
        if turn == 2:
            assert broker.stop() == 0
            broker.start()
        elif turn == 5:
            broker.kill()
            broker.start()
    assert page["cursor"] is None
    assert seen == [f"{k:03}" for k in range(90)]


BAD_QUERIES = {
    "an unknown state": ("state=late", "state"),
    "an internal state": ("state=moved", "state"),
    "no state": ("state=", "state"),
    "a state and nothing": ("state=dead,", "state"),
    "due_from no number": ("due_from=soon", "due_from"),
    "due_from negative": ("due_from=-1", "due_from"),
    "due_from a float": ("due_from=1.5", "due_from"),
    "due_from with an underscore": ("due_from=1_0", "due_from"),
    "due_from in other digits": ("due_from=%D9%A1", "due_from"),
    "due_to over 64 bits": ("due_to=9223372036854775808", "due_to"),
    "due_to endless": ("due_to=" + "9" * 500, "due_to"),
    "due_to empty": ("due_to=", "due_to"),
    "an empty tag": ("tag=", "tag"),
    "a tag of two lines": ("tag=a%0Ab", "tag"),
    "a tag too long": ("tag=" + "x" * 65, "tag"),
    "a key too long": ("key=" + "x" * 256, "key"),
    "bodies maybe": ("bodies=maybe", "bodies"),
    "limit 0": ("limit=0", "limit"),
    "limit negative": ("limit=-5", "limit"),
    "limit too large": ("limit=1001", "limit"),
    "limit a word": ("limit=all", "limit"),
    "an empty cursor": ("cursor=", "cursor"),
    "a word for a cursor": ("cursor=next", "cursor"),
    "a cursor of zeros": ("cursor=" + "A" * 43, "cursor"),
    "a cursor not ASCII": ("cursor=" + quote("é" * 43), "cursor"),
    "an unknown parameter": ("states=dead", None),
}


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_bad_queries(broker: Any, topic: str, assert_problem: Any, name: str) -> None:
    """Each is refused by 400 that names the parameter."""
    query, field = BAD_QUERIES[name]
    broker.call("PUT", f"/v1/topics/{topic}", {})
    answer = broker.call("GET", f"/v1/topics/{topic}/messages?{query}")
    assert_problem(answer, 400, "bad_request", field)
    if not query.startswith("state="):
        answer = broker.call("GET", f"/v1/topics/{topic}/dead?{query}")
        assert_problem(answer, 400, "bad_request", field)


@pytest.mark.parametrize(
    ("call", "query", "field"),
    [
        ("dead", "state=dead", None),
        ("dead", "history=perhaps", "history"),
        ("forecast", "minutes=-1", "minutes"),
        ("forecast", "minutes=121", "minutes"),
        ("forecast", "hours=745", "hours"),
        ("forecast", "days=3", None),
        ("messages/x", "life=long", "life"),
        ("stats", "delay_buckets=maybe", "delay_buckets"),
        ("stats", "buckets=1", None),
    ],
)
def test_other_bad_queries(
    broker: Any, topic: str, assert_problem: Any, call: str, query: str, field: str | None
) -> None:
    broker.post(f"/v1/topics/{topic}/messages", LATER | {"id": "x"})
    answer = broker.call("GET", f"/v1/topics/{topic}/{call}?{query}")
    assert_problem(answer, 400, "bad_request", field)


def test_a_cursor_belongs_to_its_list(broker: Any, topic: str, assert_problem: Any) -> None:
    """Another topic's, another filter's, a changed one."""
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, [LATER] * 3)
    broker.post(f"/v1/topics/{topic}-2/messages", [LATER] * 3)
    cursor = get(broker, path, limit=1)["cursor"]
    changed = cursor[:5] + ("A" if cursor[5] != "A" else "B") + cursor[6:]
    for where, query in (
        (path, f"cursor={cursor}&state=waiting"),
        (path, f"cursor={cursor}&key=a"),
        (path, f"cursor={changed}"),
        (f"/v1/topics/{topic}-2/messages", f"cursor={cursor}"),
        (f"/v1/topics/{topic}/dead", f"cursor={cursor}"),
    ):
        assert_problem(broker.call("GET", f"{where}?{query}"), 400, "bad_request", "cursor")
    assert len(get(broker, path, cursor=cursor, limit=50)["messages"]) == 2


def test_a_topic_that_does_not_exist_is_empty(broker: Any, topic: str) -> None:
    """Each read answers in the shape that it has for an empty topic, and makes none."""
    broker.call("PUT", f"/v1/topics/{topic}-made")
    for call in ("messages", "dead", "forecast", "stats", "stats?delay_buckets=false"):
        blank, empty = (
            broker.call("GET", f"/v1/topics/{name}/{call}").json
            for name in (topic, f"{topic}-made")
        )
        for answer in (blank, empty):
            for changing in ("now_ms", "topic", "minutes", "hours", "firings_until_ms"):
                answer.pop(changing, None)
        assert blank == empty, call
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404


def test_dead_letters(broker: Any, topic: str) -> None:
    """Why each died, and what happened before."""
    broker.call("PUT", f"/v1/topics/{topic}", {"max_retry": 1, "backoff": {"first_ms": 0}})
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", [{"body": "x", "id": "a"}, LATER | {"id": "b"}])
    for reason in ("busy", "gone"):
        asked = {"wait_ms": 20_000, "consumer": "w"}
        (got,) = broker.post(f"{path}/receive", asked)["messages"]
        held = get(broker, f"{path}/messages/a")
        assert (held["consumer"], held["address"]) == ("w", "127.0.0.1")
        broker.post(f"{path}/nack", {"receipts": [got["receipt"]], "reason": reason})
    (dead,) = get(broker, f"{path}/dead")["messages"]
    assert (dead["id"], dead["state"], dead["cause"], dead["attempts"]) == (
        "a",
        "dead",
        "retries",
        2,
    )
    assert dead["history_complete"] is True
    assert [step["event"] for step in dead["history"]] == [
        *("sent", "ready", "leased", "nacked", "ready", "leased", "dead")
    ]
    assert dead["history"][-1]["at_ms"] == dead["ended_at_ms"]
    (dead,) = get(broker, f"{path}/dead", history="false", bodies="true")["messages"]
    assert "history" not in dead
    assert (dead["body"], dead["reason"]) == ("x", "gone")
    assert get(broker, f"{path}/messages/a")["reason"] == "gone"
    assert get(broker, f"{path}/messages/b")["reason"] is None
    failures = get(broker, f"{path}/messages/a")["failures"]
    assert failures == dead["failures"]
    assert [
        (each["attempt"], each["cause"], each["reason"], each["consumer"], each["address"])
        for each in failures
    ] == [(1, "nack", "busy", "w", "127.0.0.1"), (2, "nack", "gone", "w", "127.0.0.1")]
    counted = get(broker, f"{path}/dead/reasons")
    at_ms = failures[1]["at_ms"]
    assert counted["reasons"] == [
        {
            "cause": "nack",
            "reason": "gone",
            "reason_prefix": "gone",
            "texts": 1,
            "count": 1,
            "consumers": 1,
            "first_ms": at_ms,
            "last_ms": at_ms,
            "last_id": "a",
        }
    ]
    assert (counted["rest"], counted["other"]) == (0, 0)


def test_all_states_have_a_word(broker: Any, topic: str, assert_problem: Any) -> None:
    """That of the command, `all`; together with another one it means nothing."""
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, [LATER | {"id": "a"}, LATER | {"id": "b"}])
    broker.call("DELETE", f"{path}/a")
    every = get(broker, path, state="all")["messages"]
    assert every == get(broker, path)["messages"]
    assert {each["id"] for each in every} == {"a", "b"}
    for wrong in ("all,dead", "ALL", "any"):
        refused = broker.call("GET", f"{path}?state={wrong}")
        assert (
            "must be all, or one or more of"
            in assert_problem(refused, 400, "bad_request")["detail"]
        )


def refuse(broker: Any, topic: str, reasons: dict[str, str]) -> None:
    """Make dead letters, each for a reason."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    broker.post(f"{path}/messages", [{"body": "x", "id": name} for name in reasons])
    asked = {"wait_ms": 20_000, "max": len(reasons), "ids": [*reasons]}
    for got in broker.post(f"{path}/receive", asked)["messages"]:
        said = {"receipts": [got["receipt"]], "reason": reasons[got["id"]]}
        broker.post(f"{path}/nack", said)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"reason_prefix": "ValueError:"}, "abd"),
        ({"reason_prefix": "ValueError: bad row 1"}, "a"),
        ({"reason_prefix": "alueError"}, ""),
        ({"reason": "KeyError: 7"}, "c"),
        ({"reason": "KeyError: #"}, "c"),
        ({"reason": "KeyError: ##"}, ""),
        ({"reason": "KeyError: 7", "reason_prefix": "ValueError:"}, ""),
        ({"cause": "nack"}, "abcd"),
        ({"cause": "rejected"}, ""),
        ({"reason_prefix": "ValueError:", "tag": "odd"}, "b"),
        ({"reason_prefix": "ValueError:", "key": "none"}, ""),
    ],
    ids=str,
)
def test_dead_letters_by_failure(broker: Any, topic: str, query: dict[str, Any], ids: str) -> None:
    """Page by page and at once, in due order, also together with a tag."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    broker.post(f"{path}/messages", {"body": "x", "id": "b", "tags": ["odd"]})
    said = {"a": "bad row 1", "b": "bad row 2", "d": "bad row 44"}
    refuse(
        broker, topic, {k: f"ValueError: {why}" for k, why in said.items()} | {"c": "KeyError: 7"}
    )
    for limit in (1, 100):
        found = broker.all_pages(f"{path}/dead", limit=limit, history="false", **query)
        assert sorted(each["id"] for each in found) == sorted(ids), limit


def test_a_cursor_of_other_failures_is_refused(
    broker: Any, topic: str, assert_problem: Any
) -> None:
    refuse(broker, topic, {"a": "E: 1", "b": "E: 2", "c": "F: 3"})
    path = f"/v1/topics/{topic}/dead"
    cursor = get(broker, path, limit=1, reason_prefix="E:")["cursor"]
    for other in ("", "&reason_prefix=F:", "&cause=nack"):
        assert_problem(broker.call("GET", f"{path}?cursor={cursor}{other}"), 400, "bad_request")


def test_an_empty_prefix_is_refused(broker: Any, topic: str, assert_problem: Any) -> None:
    """An unset variable of a shell must not replay every dead letter."""
    refuse(broker, topic, {"a": "E: 1"})
    path = f"/v1/topics/{topic}"
    for call in ("dead", "dead/reasons", "messages:count"):
        refused = broker.call("GET", f"{path}/{call}?reason_prefix=")
        assert "must not be empty" in assert_problem(refused, 400, "bad_request")["detail"]
    body = {"filter": {"reason_prefix": ""}}
    assert_problem(broker.call("POST", f"{path}/messages:replay", body), 400, "bad_request")


def test_reasons_of_one_kind_count_together(broker: Any, topic: str) -> None:
    """Exceptions quote what they failed at: 240 texts of one class are one line, which can be
    selected by its beginning and expanded to its texts.
    """
    texts = {f"v{n}": f"ValueError: cannot parse {n}" for n in range(10_000, 10_240)}
    refuse(broker, topic, texts | {"k": "KeyError: 7", "n": "ValueError: no rows"})
    path = f"/v1/topics/{topic}/dead/reasons"
    told = [
        (each["reason"], each["reason_prefix"], each["texts"], each["count"])
        for each in get(broker, path)["reasons"]
    ]
    assert told == [
        ("ValueError: cannot parse #", "ValueError: cannot parse ", 240, 240),
        ("KeyError: 7", "KeyError: ", 1, 1),
        ("ValueError: no rows", "ValueError: no rows", 1, 1),
    ]
    exact = get(broker, path, exact="true", reason_prefix=told[0][1])
    assert {each["count"] for each in exact["reasons"]} == {1}
    assert {each["reason"] for each in exact["reasons"]} < {*texts.values()}
    assert (len(exact["reasons"]), exact["rest"], exact["other"]) == (100, 140, 0)
    first = get(broker, path, limit=1)
    assert (len(first["reasons"]), first["rest"]) == (1, 2)


def test_life_line(broker: Any, topic: str) -> None:
    """Who had it, until when, and on which node; not unless asked for."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", LATER | {"id": "a"})
    broker.call("PATCH", f"{path}/messages/a", {"delay_ms": 0})
    (got,) = broker.post(f"{path}/receive", {"wait_ms": 20_000})["messages"]
    broker.post(f"{path}/ack", {"receipts": [got["receipt"]]})
    plain = get(broker, f"{path}/messages/a")
    assert not {"life", "life_complete"} & plain.keys()
    shown = get(broker, f"{path}/messages/a", life="true")
    life = shown.pop("life")
    assert shown.pop("life_complete") is True
    assert all(wait["cause"] != "unknown" for wait in shown.pop("waits"))
    assert shown == plain
    assert [step["event"] for step in life] == ["sent", "rescheduled", "ready", "leased", "acked"]
    assert all(step["epoch"] == 1 for step in life if step["event"] != "ready")
    assert life[3]["lease_until_ms"] == got["lease_until_ms"]
    assert [step["at_ms"] for step in life] == sorted(step["at_ms"] for step in life)


def test_forecast(broker: Any, topic: str) -> None:
    """Messages to come by minute, by hour and later; what is due does not count."""
    path = f"/v1/topics/{topic}"
    now = get(broker, "/v1/clock")["now_ms"]
    hour_ms = now // HOUR_MS * HOUR_MS
    due = [now + 61_000, now + 62_000, now + 40 * 60_000, hour_ms + 5 * HOUR_MS, now + 50 * HOUR_MS]
    broker.post(f"{path}/messages", [{"body": "x", "deliver_at_ms": moment} for moment in due])
    broker.post(f"{path}/messages", {"body": "now"})
    answer = get(broker, f"{path}/forecast")
    assert (len(answer["minutes"]), len(answer["hours"])) == (60, 24)
    assert answer["later"] == 1
    for name, length, kept in (("minutes", 60_000, due[:3]), ("hours", HOUR_MS, due[:4])):
        slots = answer[name]
        assert slots[0]["from_ms"] <= answer["now_ms"] < slots[1]["from_ms"]
        assert all(b["from_ms"] - a["from_ms"] == length for a, b in itertools.pairwise(slots))
        for slot in slots:
            end = slot["from_ms"] + length
            assert slot["count"] == sum(slot["from_ms"] <= moment < end for moment in kept), slot
    short = get(broker, f"{path}/forecast", minutes=0, hours=1)
    assert short["minutes"] == []
    assert len(short["hours"]) == 1
    assert short["later"] + short["hours"][0]["count"] == 5


def test_a_forecast_counts_the_firings_of_schedules(broker: Any, topic: str) -> None:
    """They are beside the messages, with what is counted."""
    path = f"/v1/topics/{topic}"
    assert get(broker, f"{path}/forecast")["schedules"] == 0
    for name, members in {"a": {"cron": "0 * * * *"}, "b": {"interval_ms": HOUR_MS // 4}}.items():
        broker.call("PUT", f"{path}/schedules/{name}", {"body": "x", **members})
    answer = get(broker, f"{path}/forecast", minutes=0, hours=5)
    assert [hour["firings"] for hour in answer["hours"][1:]] == [5, 5, 5, 5]
    assert (answer["schedules"], answer["schedules_left"]) == (2, False)
    assert answer["firings_until_ms"] == answer["hours"][4]["from_ms"] + HOUR_MS


def test_groups_see_their_own(broker: Any, topic: str, assert_problem: Any) -> None:
    """`group` says whose states are listed; a group that is not there is unknown."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", LATER | {"id": "before"})
    broker.call("PUT", f"{path}/groups/g", {})
    broker.post(f"{path}/messages", {"body": "x", "id": "a"})
    (got,) = broker.post(f"{path}/receive", {"wait_ms": 20_000})["messages"]
    broker.post(f"{path}/ack", {"receipts": [got["receipt"]]})
    assert ids(get(broker, f"{path}/messages", state="acked")["messages"]) == ["a"]
    listed = get(broker, f"{path}/messages", group="g", limit=1)
    assert [(m["id"], m["state"]) for m in listed["messages"]] == [("a", "ready")]
    assert sum(h["count"] for h in get(broker, f"{path}/forecast")["hours"]) == 1
    assert sum(h["count"] for h in get(broker, f"{path}/forecast", group="g")["hours"]) == 0
    cursor = get(broker, f"{path}/messages", limit=1)["cursor"]
    answer = broker.call("GET", f"{path}/messages?group=g&cursor={cursor}")
    assert_problem(answer, 400, "bad_request", "cursor")
    for call in ("messages", "dead", "forecast"):
        answer = broker.call("GET", f"{path}/{call}?group=none")
        assert_problem(answer, 404, "unknown", "group")


def test_damaged_headers_are_damage(start_broker: Callable[..., Any]) -> None:
    """A list without bodies reads them without their checksum: the node ends, as for others."""
    broker = start_broker()
    path = "/v1/topics/t/messages"
    broker.post(path, LATER | {"headers": {"header": "value"}})
    assert broker.stop() == 0
    (file,) = broker.data_dir.glob("hours/*/delay.log")
    raw = file.read_bytes()
    assert raw.startswith(b"\x81\xa6header")
    file.write_bytes(b"\xc1" + raw[1:])
    broker.start()
    answer = broker.call("GET", path)
    assert (answer.status, answer.json["code"]) == (503, "not_ready"), answer
    assert broker.wait() == 65
    assert "damaged headers in" in broker.log_path.read_text().splitlines()[-1]
