"""Time: never early, in the order of due times, and gone after a ttl."""

from __future__ import annotations

import pytest

from tests.scenes.faces.face import Face, needs

DAY_MS = 86_400_000


@pytest.mark.parametrize("delay_ms", [1, 60, 150])
def test_a_message_comes_once_it_is_due(face: Face, delay_ms: int) -> None:
    before_ms = face.now_ms()
    sent = face.send("x", delay_ms=delay_ms)
    taken = face.await_message()
    assert taken.id == sent.id
    assert before_ms + delay_ms <= taken.due_ms <= face.now_ms()


@needs("clock")
@pytest.mark.parametrize("delay_ms", [1, 999, 1_000, 59_999, 3_600_000, 30 * DAY_MS])
def test_a_message_is_never_early(face: Face, delay_ms: int) -> None:
    face.send("x", delay_ms=delay_ms)
    face.advance(delay_ms - 1)
    assert face.receive() == []
    face.advance(1)
    (taken,) = face.receive()
    assert taken.due_ms == face.now_ms()


def test_messages_come_in_the_order_of_their_due_times(face: Face) -> None:
    """As far as `max` allows; the rest stays ready. A message has to be committed before it is due,
    or it is released behind others: a sync may take a while on a busy disk.
    """
    for delay_ms in (1_200, 300, 900, 600):
        face.send(str(delay_ms), delay_ms=delay_ms)
    face.await_counts(ready=4)
    taken = face.receive(max=3)
    assert face.counts() == {"ready": 1, "leased": 3}
    dues = [each.due_ms for each in taken + face.receive(max=9)]
    assert dues == sorted(dues)


@needs("clock")
def test_what_comes_due_in_one_long_move_comes_in_order(face: Face) -> None:
    for days in (9, 3, 6):
        face.send(str(days), delay_ms=days * DAY_MS)
    face.advance(30 * DAY_MS)
    assert [each.text for each in face.receive(max=9)] == ["3", "6", "9"]


@needs("fields")
def test_a_time_that_is_past_means_now(face: Face) -> None:
    before_ms = face.now_ms()
    for past in ({"deliver_at_ms": 10**12}, {"deliver_at_ms": 0}, {"delay_ms": -5}):
        face.send("x", **past)
        (taken,) = face.receive()
        assert before_ms <= taken.due_ms <= face.now_ms()


def test_a_message_that_is_not_received_in_time_expires(face: Face) -> None:
    face.send("other")
    face.pause(on=True)
    face.send("x", id="a", ttl_ms=1)
    until_ms = face.now_ms() + 1
    face.until(lambda: face.now_ms() > until_ms)
    face.pause(on=False)
    assert [each.text for each in face.receive(max=9)] == ["other"]
    assert face.counts() == {"leased": 1, "expired": 1}


@needs("clock")
def test_a_ttl_counts_from_the_due_time(face: Face) -> None:
    for name in ("taken", "late"):
        face.send(name, delay_ms=DAY_MS, ttl_ms=1_000)
    face.advance(DAY_MS + 999)
    assert len(face.receive(lease_ms=60_000)) == 1
    face.advance(1)
    assert face.receive() == []


@needs("reschedule")
def test_another_time(face: Face) -> None:
    face.send("later", id="a", delay_ms=60_000)
    face.send("sooner", id="b", delay_ms=90_000)
    before_ms = face.now_ms()
    assert face.reschedule("b", delay_ms=0) == "done"
    assert [each.id for each in face.receive(max=9)] == ["b"]
    assert face.reschedule("a", delay_ms=DAY_MS) == "done"
    seen = face.get("a")
    assert seen is not None
    assert before_ms + DAY_MS <= seen.due_ms <= face.now_ms() + DAY_MS
    for name in ("b", "nobody"):
        assert face.reschedule(name, delay_ms=5) != "done"


@needs("reschedule", "reasons")
def test_another_time_is_too_late_or_of_an_unknown_message(face: Face) -> None:
    face.send("x", id="a")
    face.receive()
    assert face.reschedule("a", delay_ms=5) == "leased"
    assert face.reschedule("nobody", delay_ms=5) == "unknown"


def test_an_expired_message_frees_its_id_and_its_place(face: Face) -> None:
    """No consumer receives meanwhile."""
    face.configure(quota={"pending": 1})
    face.send("old", id="a", ttl_ms=30)
    face.await_counts(expired=1)
    seen = face.get("a")
    assert seen is not None
    assert seen.state == "expired"
    assert face.send("new", id="a").result in ("created", None)
    assert face.await_message().text == "new"
    assert face.counts() == {"leased": 1, "expired": 1}


@needs("clock", "merge", "peek", "list")
@pytest.mark.parametrize("merge", ["keep", "replace", "reject"])
def test_an_expired_message_is_gone_to_the_millisecond(face: Face, merge: str) -> None:
    for group in ("one", "other"):
        face.put_group(group)
    face.send("old", id="a", ttl_ms=1_000)
    face.ack(face.receive(group="one"))
    face.advance(999)
    assert face.counts("other") == {"ready": 1}
    assert face.peek(group="other") == ["a"]
    face.pause(on=True)
    face.advance(1)
    assert face.counts("other") == face.counts() == {"expired": 1}
    assert face.peek(group="other") == []
    assert face.listed(state=["ready"]) == {}
    assert face.send("new", id="a", merge=merge).result in ("created", None)
    face.pause(on=False)
    for group in ("one", "other", "default"):
        assert [each.text for each in face.receive(max=9, group=group)] == ["new"]


@needs("clock")
def test_a_retry_beyond_the_ttl_is_a_dead_letter_when_the_ttl_is_over(face: Face) -> None:
    face.configure(backoff={"first_ms": 60_000, "jitter": 0})
    face.send("x", id="a", ttl_ms=1_000)
    face.nack(face.receive())
    face.advance(999)
    assert face.counts() == {"waiting": 1}
    face.advance(1)
    assert face.counts() == {"dead": 1}
