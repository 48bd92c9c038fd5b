"""The settings of a topic, and reads of a topic that does not exist."""

from __future__ import annotations

import pytest

from tests.scenes.faces.face import Face, Refused, needs


@needs("fields")
def test_an_update_changes_only_what_is_named(face: Face) -> None:
    face.configure(max_retry=3, backoff={"first_ms": 7, "factor": 3}, rate_limit={"burst": 5})
    changed = face.update(ttl_ms=9_000, backoff={"factor": 4}, rate_limit=None)
    assert (changed["max_retry"], changed["ttl_ms"], changed["rate_limit"]) == (3, 9_000, None)
    assert (changed["backoff"]["first_ms"], changed["backoff"]["factor"]) == (7, 4)
    assert changed == face.update()
    assert face.update(max_retry=None)["max_retry"] == 10


@needs("fields")
def test_a_wrong_update_is_refused_and_changes_nothing(face: Face) -> None:
    with pytest.raises(Refused, match="unknown"):
        face.update(max_retry=3)
    assert not face.exists()
    face.configure(max_retry=3, slots=2)
    for wrong, code in (
        ({"max_retry": -1}, "bad_request"),
        ({"backoff": {"factor": 0.5}}, "bad_request"),
        ({"slots": 4}, "conflict"),
    ):
        with pytest.raises(Refused, match=code):
            face.update(ttl_ms=5, **wrong)
    assert (face.update()["max_retry"], face.update()["ttl_ms"]) == (3, -1)


@needs("list")
def test_a_topic_that_does_not_exist_reads_as_empty(face: Face) -> None:
    assert face.counts() == {}
    assert face.listed() == {}
    assert face.dead() == []
    assert face.peek() == []
    assert face.receive() == []
    assert face.get("a") is None
    assert not face.exists()


@needs("groups", "list")
def test_a_group_that_does_not_exist_is_unknown(face: Face) -> None:
    """Also in a topic that does not exist, by each call that can name one."""
    for call in (
        lambda: face.receive(group="g"),
        lambda: face.listed(group="g"),
        lambda: face.peek(group="g"),
    ):
        with pytest.raises(Refused, match="unknown"):
            call()
    assert face.counts(group="g") is None
