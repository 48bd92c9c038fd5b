"""Leases: one consumer at a time, settled once, extended, given back, and ended by time."""

from __future__ import annotations

import pytest

from tests.scenes.faces.face import LEASED, Face, Refused, needs


def test_a_leased_message_is_delivered_once(face: Face) -> None:
    face.send("x")
    assert len(face.receive(max=9)) == 1
    assert face.receive(max=9) == []
    assert face.counts() == LEASED


def test_an_acked_message_has_ended(face: Face) -> None:
    face.send("x", id="a")
    assert face.get("nobody") is None
    face.ack(face.receive())
    assert face.counts() == {"acked": 1}
    seen = face.get("a")
    assert seen is not None
    assert (seen.state, seen.attempts) == ("acked", 1)


@needs("results")
def test_a_second_settlement_is_gone(face: Face) -> None:
    face.configure(backoff={"first_ms": 0})
    for _ in range(2):
        face.send("x")
    first, second = face.receive(max=2)
    assert face.ack([first]) == ["done"]
    assert face.ack([first, second, first]) == ["gone", "done", "gone"]
    assert face.nack([first]) == ["gone"]
    assert face.ack([]) == []
    assert face.counts() == {"acked": 2}


@needs("results", "array", "delay", "extend")
def test_messages_of_several_leases_are_settled_in_any_mixture(face: Face) -> None:
    face.send_many([{"body": str(k)} for k in range(6)])
    one, other = face.receive(max=3), face.receive(max=3)
    face.ack(one[1:2])
    assert face.ack([other[2], one[1], one[0], other[0]]) == ["done", "gone", "done", "done"]
    assert face.nack([one[2], other[1]], delay_ms=0) == ["done", "done"]
    back = face.receive(max=9)
    assert sorted(each.text for each in back) == ["2", "4"]
    assert face.extend([*back, one[0]], lease_ms=60_000) == ["done", "done", "gone"]


def test_a_nacked_message_comes_again(face: Face) -> None:
    face.configure(backoff={"first_ms": 0})
    face.send("x", id="a")
    for attempt in (1, 2, 3):
        (taken,) = face.receive()
        assert (taken.id, taken.attempts) == ("a", attempt)
        face.nack([taken])


@needs("delay")
def test_a_nack_says_when(face: Face) -> None:
    face.configure(backoff={"first_ms": 0})
    face.send("x", id="a")
    before_ms = face.now_ms()
    face.nack(face.receive(), delay_ms=60_000)
    assert face.receive() == []
    seen = face.get("a")
    assert seen is not None
    assert (seen.state, seen.attempts) == ("waiting", 1)
    assert before_ms + 60_000 <= seen.due_ms <= face.now_ms() + 60_000


def test_a_lease_that_ends_gives_the_message_to_the_next(face: Face) -> None:
    face.configure(backoff={"first_ms": 0})
    face.send("x", id="a")
    (first,) = face.receive(lease_ms=100)
    second = face.await_message(lease_ms=60_000)
    assert (second.id, second.attempts) == ("a", 2)
    if "results" not in face.cannot:
        assert face.ack([first]) == ["gone"]
        assert face.counts() == LEASED


@needs("clock", "extend")
def test_an_extended_lease_holds_as_long_as_it_says(face: Face) -> None:
    """Ends of leases are looked at every 50 ms."""
    face.configure(backoff={"first_ms": 0})
    face.send("x")
    taken = face.receive(lease_ms=1_000)
    assert face.extend(taken, lease_ms=60_000) == ["done"]
    face.advance(59_999)
    assert face.receive() == []
    face.advance(51)
    assert face.receive()[0].attempts == 2


@needs("extend")
def test_an_extension_by_nothing_gives_back_as_if_it_had_never_been_taken(face: Face) -> None:
    """However often; one that failed before keeps the retries that it has left."""
    face.configure(backoff={"first_ms": 0})
    face.send("x", max_retry=1)
    for attempts in (1, 2):
        for _ in range(5):
            face.extend(face.receive(), lease_ms=0)
        (taken,) = face.receive()
        assert taken.attempts == attempts
        face.nack([taken])
    assert face.receive() == []


@needs("clock")
def test_the_wait_before_a_retry_grows(face: Face) -> None:
    face.configure(backoff={"first_ms": 1_000, "factor": 3, "max_ms": 5_000, "jitter": 0})
    face.send("x", id="a")
    for wait_ms in (1_000, 3_000, 5_000, 5_000):
        face.nack(face.receive())
        face.advance(wait_ms - 1)
        assert face.receive() == []
        face.advance(1)


@needs("fields")
def test_a_topic_says_how_many_retries_there_are(face: Face) -> None:
    face.configure(backoff={"first_ms": 0}, max_retry=0)
    face.send("x")
    face.nack(face.receive())
    assert face.counts() == {"dead": 1}


def test_retries_end_among_the_dead(face: Face) -> None:
    face.configure(backoff={"first_ms": 0})
    face.send("x", id="a", max_retry=1)
    for _ in range(2):
        face.nack(face.receive())
    assert face.receive() == []
    assert face.counts() == {"dead": 1}
    seen = face.get("a")
    assert seen is not None
    assert (seen.state, seen.attempts) == ("dead", 2)
    # camellia has no member for it.
    assert seen.cause == (None if face.name == "camellia" else "retries")


@needs("list", "reject", "replay", "results")
def test_a_rejected_message_is_dead_at_once_and_may_live_again(face: Face) -> None:
    face.send("x", id="a", max_retry=9)
    taken = face.receive()
    assert face.reject(taken) == ["done"]
    assert face.reject(taken) == ["gone"]
    assert face.counts() == {"dead": 1}
    ((name, cause, _, steps),) = face.dead()
    assert (name, cause, steps[-2:]) == ("a", "rejected", ["leased", "dead"])
    seen = face.get("a")
    assert seen is not None
    assert (seen.state, seen.attempts, seen.cause) == ("dead", 1, "rejected")
    assert face.replay("a") == ["done"]
    (again,) = face.receive()
    assert again.attempts == 1


@needs("fields", "reject", "results")
def test_a_rejected_message_frees_its_key(face: Face) -> None:
    for name in ("a", "b"):
        face.send(name, id=name, key="k")
    first = face.receive(max=2)
    assert [each.id for each in first] == ["a"]
    assert face.reject(first) == ["done"]
    assert [each.id for each in face.receive(max=2)] == ["b"]


@needs("begin", "clock")
def test_an_attempt_counts_when_it_begins(face: Face) -> None:
    """Of three messages one begins with the receive, one by a call, and one not at all."""
    face.configure(backoff={"first_ms": 60_000, "jitter": 0})
    for name in ("a", "b", "c"):
        face.send("x", id=name)
    taken = face.receive(max=3, begin=1, lease_ms=1_000)
    assert [(each.id, each.attempts) for each in taken] == [("a", 1), ("b", 1), ("c", 1)]
    assert face.begin(taken[1:2], lease_ms=1_000) == ["done"]
    face.advance(1_051)
    (again,) = face.receive(max=3)
    assert (again.id, again.attempts) == ("c", 1)
    for name in ("a", "b"):
        seen = face.get(name)
        assert seen is not None
        assert (seen.state, seen.attempts) == ("waiting", 1)


@needs("begin", "results", "extend")
def test_a_message_that_has_not_begun_is_settled_like_any_other(face: Face) -> None:
    face.configure(backoff={"first_ms": 0})
    for _ in range(4):
        face.send("x", max_retry=0)
    acked, nacked, released, begun = face.receive(max=4, begin=0)
    assert face.ack([acked]) == ["done"]
    assert face.nack([nacked]) == ["done"]
    assert face.extend([released], lease_ms=0) == ["done"]
    assert face.begin([begun, acked]) == ["done", "gone"]
    assert face.counts() == {"acked": 1, "dead": 1, "ready": 1, "leased": 1}


@needs("begin")
def test_the_number_of_attempts_that_begin_is_not_negative(face: Face) -> None:
    with pytest.raises(Refused, match="bad_request"):
        face.receive(begin=-1)
