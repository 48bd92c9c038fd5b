"""What is done to messages from outside: cancel, replay, purge, pause, and the end of a topic."""

from __future__ import annotations

import pytest

from tests.scenes.faces.face import LEASED, Face, Refused, needs


@needs("cancel")
def test_a_cancelled_message_never_comes(face: Face) -> None:
    face.send("x", id="a", delay_ms=20)
    face.send("y", id="b", delay_ms=20)
    assert face.cancel("a") == "done"
    assert face.cancel("a") != "done"
    assert face.await_message().id == "b"
    assert face.cancel("b") != "done"
    assert face.cancel("nobody") != "done"
    assert face.counts() == {"cancelled": 1, **LEASED}


@needs("cancel", "reasons")
def test_a_cancel_that_is_not_done_says_why(face: Face) -> None:
    face.send("x", id="a")
    face.receive()
    assert face.cancel("a") == "leased"
    face.send("x", id="b", delay_ms=60_000)
    face.cancel("b")
    assert (face.cancel("b"), face.cancel("nobody")) == ("cancelled", "unknown")


@needs("cancel", "merge", "list")
def test_replaced_messages_are_not_cancelled_ones(face: Face) -> None:
    """A debounced message is sent again and again, which is no cancel."""
    for body in ("one", "two", "three"):
        face.send(body, id="cart", merge="replace", delay_ms=60_000)
    face.send("other", id="other", delay_ms=60_000)
    face.cancel("other")
    assert face.counts() == {"waiting": 1, "cancelled": 1, "replaced": 2}
    assert face.listed(state=["cancelled"]) == {"other": "cancelled"}
    assert face.listed(state=["replaced"]) == {"cart": "replaced"}
    assert face.listed(state=["waiting"]) == {"cart": "waiting"}


@needs("cancel", "force", "results")
def test_force_ends_a_lease(face: Face) -> None:
    face.send("x", id="a")
    taken = face.receive()
    assert face.cancel("a", force=True) == "done"
    assert face.ack(taken) == ["gone"]
    assert face.counts() == {"cancelled": 1}


def kill(face: Face, *ids: str) -> None:
    """Bring messages among the dead."""
    face.configure(max_retry=0)
    for name in ids:
        face.send("x", id=name)
    face.nack(face.receive(max=len(ids)))
    assert face.counts() == {"dead": len(ids)}


@needs("replay")
def test_a_dead_message_lives_again(face: Face) -> None:
    kill(face, "a", "b")
    assert face.replay("a", "nobody", "a") == ["done", "unknown", "done"]
    assert face.replay("a") == ["too_late"]
    (taken,) = face.receive(max=9)
    assert (taken.id, taken.attempts) == ("a", 1)
    assert face.counts() == {"dead": 1, **LEASED}


@needs("force", "list")
def test_dead_letters_say_why_and_are_deleted_by_force(face: Face) -> None:
    kill(face, "a", "b")
    steps = ["sent", "ready", "leased", "dead"]
    assert face.dead() == [("a", "retries", None, steps), ("b", "retries", None, steps)]
    assert face.cancel("a") == "dead"
    assert face.cancel("a", force=True) == "done"
    assert [name for name, *_ in face.dead()] == ["b"]


@needs("results")
def test_a_purge_takes_leased_messages_by_force_only(face: Face) -> None:
    for delay_ms in (0, 0, 60_000):
        face.send("x", delay_ms=delay_ms)
    held = face.receive()
    assert face.purge() == 2
    assert face.counts() == {"cancelled": 2, **LEASED}
    assert face.ack(held) == ["done"]
    face.send("x")
    held = face.receive()
    assert face.purge(force=True) == 1
    assert face.ack(held) == ["gone"]
    assert face.counts() == {"cancelled": 3, "acked": 1}


def test_a_paused_topic_hands_out_nothing(face: Face) -> None:
    face.send("x")
    face.pause(on=True)
    assert face.receive() == []
    face.send("y")
    face.pause(on=False)
    assert len(face.receive(max=9)) == 2


def test_a_topic_with_messages_is_dropped_by_force(face: Face) -> None:
    face.send("x", delay_ms=60_000)
    with pytest.raises(Refused, match="conflict"):
        face.drop()
    face.drop(force=True)
    assert not face.exists()
    face.send("again", id="a")
    assert [each.id for each in face.receive(max=9)] == ["a"]
