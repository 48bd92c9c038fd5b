"""Which messages a receive gets: keys in order, tags, ids, priorities, groups; and looks."""

from __future__ import annotations

import pytest

from tests.scenes.faces.face import LEASED, Face, Refused, needs


@needs("fields")
def test_messages_of_a_key_come_one_at_a_time_and_in_order(face: Face) -> None:
    """Through a retry, and what has no key, or another, never waits."""
    face.configure(backoff={"first_ms": 0})
    for number in range(3):
        face.send(str(number), key="k")
    for key in ("other", None):
        face.send("free", **({"key": key} if key else {}))
    taken = face.receive(max=9)
    assert sorted(each.text for each in taken) == ["0", "free", "free"]
    assert face.receive(max=9) == []
    first = [each for each in taken if each.text == "0"]
    face.nack(first)
    order = []
    while taken := face.receive(max=9):
        order += [(each.text, each.attempts) for each in taken]
        face.ack(taken)
    assert order == [("0", 2), ("1", 1), ("2", 1)]


@needs("fields")
def test_priorities_go_before_due_times(face: Face) -> None:
    face.configure(order="priority")
    for priority in (1, 3, -2):
        face.send(str(priority), priority=priority)
    assert [each.text for each in face.receive(max=9)] == ["3", "1", "-2"]


@needs("tags")
def test_a_receive_by_tags(face: Face) -> None:
    for tags in (["red"], ["green"], ["red", "blue"], []):
        face.send("+".join(tags), **({"tags": tags} if tags else {}))
    taken = face.receive(max=9, tags=["red", "black"])
    assert sorted(each.text for each in taken) == ["red", "red+blue"]
    assert face.counts() == {"ready": 2, "leased": 2}


@needs("choose")
def test_a_receive_by_all_tags_or_by_ids(face: Face) -> None:
    for name in ("red", "green", "both"):
        face.send(name, id=name, tags=["red", "green"] if name == "both" else [name])
    tags = ["red", "green"]
    assert [each.id for each in face.receive(max=9, tags=tags, tags_mode="all")] == ["both"]
    assert [each.id for each in face.receive(max=9, ids=["green", "nobody", "both"])] == ["green"]
    assert face.counts() == {"ready": 1, "leased": 2}


@needs("peek")
def test_a_peek_takes_nothing(face: Face) -> None:
    assert face.peek() == []
    for name in "abcd":
        face.send(name, id=name, tags=[name])
    face.send("later", id="later", delay_ms=60_000)
    assert face.cancel("a") == "done"
    assert face.peek(max=1) == ["b"], "one that has ended hides none behind it"
    assert face.peek(max=9) == ["b", "c", "d"]
    assert face.peek(max=9, ids=["c", "b", "later", "nobody"]) == ["b", "c"]
    assert face.peek(max=9, tags=["c"]) == ["c"]
    assert face.counts() == {"waiting": 1, "ready": 3, "cancelled": 1}
    face.receive(max=9)
    assert face.peek() == []


@needs("list")
def test_a_list_by_state_tag_and_key(face: Face) -> None:
    for number, name in enumerate("abcd"):
        tags = ["even"] if number % 2 == 0 else ["odd"]
        face.send(name, id=name, tags=tags, key=f"k{number // 2}", delay_ms=60_000 + number)
    face.send("now", id="now")
    face.receive()
    face.cancel("d")
    states = {"now": "leased", "a": "waiting", "b": "waiting", "c": "waiting", "d": "cancelled"}
    assert list(face.listed().items()) == list(states.items())
    assert list(face.listed(state=["waiting", "leased"])) == ["now", "a", "b", "c"]
    assert list(face.listed(tag="even")) == ["a", "c"]
    assert list(face.listed(tag="odd", key="k1")) == ["d"]
    assert face.listed(key="none") == {}


# --------------------------------------------------------------------------- groups


@needs("groups")
def test_a_group_sees_what_is_sent_after_it(face: Face) -> None:
    face.send("before")
    face.put_group("late")
    face.send("after")
    assert sorted(each.text for each in face.receive(max=9)) == ["after", "before"]
    (taken,) = face.receive(max=9, group="late")
    assert taken.text == "after"
    face.ack([taken])
    assert face.counts() == {"leased": 2}
    assert face.counts("late") == {"acked": 1}
    face.drop_group("late")
    with pytest.raises(Refused, match="unknown"):
        face.receive(group="late")


@needs("groups", "results", "delay")
def test_what_one_group_does_is_nothing_to_another(face: Face) -> None:
    face.put_group("g")
    face.send("x", id="a")
    (mine,) = face.receive(group="g")
    assert face.nack([mine], delay_ms=60_000) == ["done"]
    (other,) = face.receive()
    assert (other.id, other.attempts) == ("a", 1)
    assert face.counts("g") == {"waiting": 1}
    assert face.ack([other]) == ["done"]
    assert face.counts() == {"acked": 1}


@needs("groups")
def test_a_topic_may_have_no_default_group(face: Face) -> None:
    face.configure(default_group=False)
    face.put_group("g")
    face.send("x")
    with pytest.raises(Refused, match="unknown"):
        face.receive()
    face.ack(face.receive(group="g"))
    assert face.counts("g") == {"acked": 1}


@needs("groups", "cancel")
def test_a_cancel_is_about_every_group(face: Face) -> None:
    face.put_group("g")
    face.send("x", id="a", delay_ms=60_000)
    assert face.cancel("a") == "done"
    assert face.counts() == face.counts("g") == {"cancelled": 1}
    face.send("x", id="b")
    face.receive(group="g")
    assert face.cancel("b") == "done", "it waits in one of them"
    assert face.counts("g") == {"cancelled": 1, **LEASED}
