"""Sends: what a message carries, what becomes of a repeated id, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenes.faces.face import Face, Refused, needs

YEAR_MS = 366 * 86_400_000


def test_a_message_is_there_for_the_next_receive(face: Face) -> None:
    for number in range(50):
        sent = face.send(f"body é {number}")
        (taken,) = face.receive(max=10)
        assert (taken.id, taken.text, taken.attempts) == (sent.id, f"body é {number}", 1)
        assert taken.due_ms <= face.now_ms()


@needs("fields")
def test_a_message_comes_with_all_that_was_sent_with_it(face: Face) -> None:
    fields: dict[str, Any] = {
        "key": "customer 5",
        "tags": ["red", "ünïcode"],
        "headers": {"traceparent": "00-abc", "é": "ü"},
        "priority": -7,
    }
    assert face.send("x", id="order 7/é?#%&+😀", **fields).id == "order 7/é?#%&+😀"
    (taken,) = face.receive()
    assert (taken.id, taken.fields) == ("order 7/é?#%&+😀", fields)
    face.send("bare")
    (taken,) = face.receive()
    assert taken.fields == {"key": None, "tags": [], "headers": {}, "priority": 0}


@needs("bytes")
@pytest.mark.parametrize("body", [b"\xff\x00\xfe", b"", bytes(range(256))])
def test_bodies_are_bytes(face: Face, body: bytes) -> None:
    face.send(body)
    (taken,) = face.receive()
    assert taken.body == body


@needs("array")
def test_an_array_is_answered_and_kept_in_its_order(face: Face) -> None:
    now_ms = face.now_ms()
    sent = face.send_many([{"body": str(k), "deliver_at_ms": now_ms - 50 + k} for k in range(50)])
    taken = face.receive(max=50)
    assert [each.id for each in taken] == [each.id for each in sent]
    assert [each.text for each in taken] == [str(k) for k in range(50)]


def test_a_repeated_id_keeps_the_first_message(face: Face) -> None:
    first = face.send("first", id="a")
    again = face.send("second", id="a")
    assert first.id == again.id == "a"
    assert (first.result, again.result) in [("created", "kept"), (None, None)]
    assert [each.text for each in face.receive(max=9)] == ["first"]
    assert face.send("under lease", id="a").result in ("kept", None)
    assert face.receive() == []


@needs("merge")
def test_a_repeated_id_replaces_or_is_rejected(face: Face) -> None:
    face.send("first", id="a", delay_ms=60_000)
    assert face.send("second", id="a", merge="replace").result in ("replaced", None)
    with pytest.raises(Refused, match="conflict"):
        face.send("third", id="a", merge="reject")
    assert [each.text for each in face.receive(max=9)] == ["second"]


def test_an_ended_message_s_id_is_free(face: Face) -> None:
    face.send("first", id="a")
    face.ack(face.receive())
    face.send("second", id="a")
    (taken,) = face.receive(max=9)
    assert (taken.text, taken.attempts) == ("second", 1)


@needs("array", "reasons")
def test_results_of_an_array_are_those_of_its_rows(face: Face) -> None:
    face.send("x", id="a", delay_ms=60_000)
    for merge, result in (("keep", "kept"), ("replace", "replaced"), ("reject", "rejected")):
        rows = [{"body": "y", "id": name, "merge": merge} for name in ("a", f"new {merge}")]
        assert [each.result for each in face.send_many(rows)] == [result, "created"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"id": "~0123456789abcdef"}, "bad_request"),
    ({"id": "x" * 256}, "bad_request"),
    ({"id": "a\nb"}, "bad_request"),
    ({"delay_ms": 2**62}, "bad_request"),
    ({"delay_ms": 11 * YEAR_MS}, "bad_request"),
]
BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"id": "é" * 128}, "bad_request"),
    ({"key": "k" * 256}, "bad_request"),
    ({"tags": ["a\nb"]}, "bad_request"),
    ({"tags": ["t" * 65]}, "bad_request"),
    ({"tags": [str(n) for n in range(17)]}, "bad_request"),
    ({"headers": {"a": "x" * 16_384}}, "bad_request"),
    ({"priority": 2**31}, "bad_request"),
    # Seconds, where milliseconds are expected.
    ({"deliver_at_ms": 1_795_600_000}, "bad_request"),
    ({"deliver_at_ms": -1}, "bad_request"),
    ({"ttl_ms": -2}, "bad_request"),
    ({"max_retry": 65_535}, "bad_request"),
    ({"backoff": {"factor": 0.5}}, "bad_request"),
    ({"body": b"x" * 1001}, "too_large"),
]


def refused(face: Face, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as caught:
        face.send(**{"body": "x", **fields})
    assert caught.value.code == code
    assert not face.exists()


@pytest.mark.parametrize(("fields", "code"), BAD, ids=str)
def test_a_send_beyond_a_limit_is_refused_and_makes_no_topic(
    face: Face, fields: dict[str, Any], code: str
) -> None:
    refused(face, fields, code)


@needs("fields")
@pytest.mark.parametrize(("fields", "code"), BAD_FIELDS, ids=lambda value: f"{value!s:.40}")
def test_a_field_beyond_its_limit_is_refused_and_makes_no_topic(
    face: Face, fields: dict[str, Any], code: str
) -> None:
    refused(face, fields, code)


@needs("array")
@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_bad_row_refuses_the_array(face: Face, at: int) -> None:
    rows: list[dict[str, Any]] = [{"body": str(k), "delay_ms": 60_000} for k in range(3)]
    rows[at] = {"body": str(at), "deliver_at_ms": 1_795_600_000}
    with pytest.raises(Refused, match="bad_request"):
        face.send_many(rows)
    assert not face.exists()


def test_a_quota_refuses_what_is_new_and_answers_repeats(face: Face) -> None:
    face.configure(quota={"pending": 1})
    face.send("x", id="a")
    with pytest.raises(Refused) as caught:
        face.send("y", id="b")
    assert caught.value.code == ("not done" if face.name == "camellia" else "quota")
    assert face.send("x", id="a").result in ("kept", None)
    assert face.counts() == {"ready": 1}


BACKOFF = {"first_ms": 3_600_000, "factor": 1.5}


@needs("delay")
def test_a_backoff_of_its_own_is_waited_for(face: Face) -> None:
    """The topic says that there is no jitter."""
    face.configure(backoff={"first_ms": 0, "jitter": 0})
    face.send("x", id="m", backoff=BACKOFF)
    before_ms = face.now_ms()
    face.nack(face.receive())
    seen = face.get("m")
    assert seen is not None
    assert before_ms + 3_600_000 <= seen.due_ms <= face.now_ms() + 3_600_000


@needs("backoff")
def test_a_backoff_of_its_own_is_shown(face: Face) -> None:
    face.send("x", id="m", backoff=BACKOFF)
    face.send_many([{"body": "y"}, {"body": "z", "id": "n", "backoff": BACKOFF}])
    for name in ("m", "n"):
        seen = face.get(name)
        assert seen is not None
        assert seen.backoff == BACKOFF
