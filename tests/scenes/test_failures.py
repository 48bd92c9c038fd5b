"""Failed attempts: their reasons, who made them, dead letters by reason; and jobs by filter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenes.faces.face import Face, Refused, needs

HOUR_MS = 3_600_000


@needs("failures")
def test_a_failure_has_its_reason_and_its_consumer(face: Face) -> None:
    """Of the first attempt, which a wait follows, and of the last one."""
    face.configure(max_retry=1, backoff={"first_ms": 0})
    face.send("x", id="a")
    taken = face.receive(consumer="left")
    assert reason(face) is None
    face.nack(taken, delay_ms=1, reason="no route")
    assert reason(face) == "no route"
    taken = [face.await_message(consumer="right")]
    assert reason(face) == "no route"
    face.nack(taken, delay_ms=0, reason="ünreachable")
    assert reason(face) == "ünreachable"
    assert face.life("a") == [
        ("leased", "left", None),
        ("nacked", None, "no route"),
        ("leased", "right", None),
        ("dead", None, "ünreachable"),
    ]
    assert [letter[:3] for letter in face.dead()] == [("a", "retries", "ünreachable")]


def reason(face: Face) -> str | None:
    seen = face.get("a")
    assert seen is not None
    return seen.reason


@needs("failures")
def test_the_reason_is_that_of_the_last_failure(face: Face) -> None:
    """An expired lease has none, whatever an earlier attempt said."""
    face.configure(max_retry=1, backoff={"first_ms": 0})
    face.send("x", id="a")
    face.nack(face.receive(), reason="busy")
    face.await_message(lease_ms=1)
    face.await_counts(dead=1)
    assert reason(face) is None
    assert [letter[:3] for letter in face.dead()] == [("a", "retries", None)]
    (counted,) = face.plain("dead_reasons")["reasons"]
    assert (counted["reason"], counted["cause"], counted["count"]) == (None, "lease_expired", 1)


@needs("failures", "reject")
def test_dead_letters_of_one_kind(face: Face) -> None:
    """Selected by what their last failures begin with, by the whole reason, and by the cause."""
    face.configure(max_retry=0)
    said = {"a": "ValueError: 1", "b": "KeyError: 1", "c": "ValueError: 2", "d": "ValueError: 3"}
    for name in said:
        face.send("x", id=name)
    for taken in face.receive(max=4):
        settle = face.reject if taken.id == "d" else face.nack
        settle([taken], reason=said[taken.id])
    for chosen, wanted in (
        ({"reason_prefix": "ValueError:"}, "acd"),
        ({"reason": "KeyError: 1"}, "b"),
        ({"cause": "rejected"}, "d"),
        ({"cause": "nack", "reason_prefix": "ValueError:"}, "ac"),
    ):
        assert "".join(letter[0] for letter in face.dead(**chosen)) == wanted


@needs("failures")
def test_names_and_reasons_have_a_limit(face: Face) -> None:
    face.send("x")
    (taken,) = face.receive(consumer="n" * 255)
    with pytest.raises(Refused, match="bad_request"):
        face.nack([taken], reason="x" * 1_025)
    with pytest.raises(Refused, match="bad_request"):
        face.receive(consumer="n" * 256)
    assert face.nack([taken], delay_ms=0, reason="x" * 1_024) == ["done"]


# --------------------------------------------------------------------------- jobs


def job(face: Face, action: str, filter: dict[str, Any], **how: Any) -> dict[str, Any]:
    """A job of messages that match the filter, once it has ended."""
    begun = face.plain("begin_job", action, filter=filter, **how)
    shown = [begun]

    def ended() -> bool:
        shown[0] = face.plain("job", begun["job"])
        return bool(shown[0]["state"] != "running")

    face.until(ended)
    assert (shown[0]["state"], shown[0]["action"], shown[0]["filter"]) == ("done", action, filter)
    return shown[0]


@needs("jobs")
def test_jobs_change_what_matches(face: Face) -> None:
    """Each says what it did, and stays to be looked at."""
    with pytest.raises(Refused, match="unknown"):
        face.plain("begin_job", "cancel", filter={})
    for key, tags in (("a", ["red"]), ("a", ["red", "blue"]), ("b", [])):
        face.send("x", key=key, tags=tags, delay_ms=HOUR_MS)
    moved = job(face, "reschedule", {"tag": "blue"}, delay_ms=2 * HOUR_MS)
    assert (moved["matched"], moved["done"], moved["too_late"]) == (1, 1, 0)
    assert (moved["topic"], moved["namespace"]) == (face.topic, "default")
    assert moved["ended_ms"] >= moved["begun_ms"]
    due = {"due_from": moved["deliver_at_ms"], "due_to": moved["deliver_at_ms"] + 1}
    ended = job(face, "cancel", {**due, "state": "waiting"})
    assert (ended["matched"], ended["done"]) == (1, 1)
    last = job(face, "reschedule", {}, deliver_at_ms=0)
    assert (last["matched"], last["done"]) == (2, 2)
    assert face.counts() == {"ready": 2, "cancelled": 1}
    assert face.plain("jobs")["jobs"][0] == last
    assert face.plain("stop_job", last["job"]) == last, "it has ended already"
    with pytest.raises(Refused, match="unknown"):
        face.plain("job", "j999999999")


@needs("jobs")
def test_jobs_take_dead_letters_only_if_they_are_told_to(face: Face) -> None:
    face.configure(max_retry=0)
    for name in "ab":
        face.send("x", id=name)
    face.nack(face.receive(max=2))
    with pytest.raises(Refused, match="bad_request"):
        face.plain("begin_job", "cancel", filter={"state": "dead"})
    assert job(face, "replay", {"state": "dead"}, delay_ms=HOUR_MS)["done"] == 2
    assert face.counts() == {"waiting": 2}
    job(face, "reschedule", {}, delay_ms=0)
    face.nack(face.receive(max=2))
    assert job(face, "cancel", {"state": "dead"}, force=True)["done"] == 2
    seen = face.get("b")
    assert seen is not None
    assert (seen.state, seen.cause, seen.attempts) == ("cancelled", "cancel", 1)
    assert face.replay("b") == ["too_late"]
