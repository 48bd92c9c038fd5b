"""A call over shards of which some fail: nothing that others have answered is lost behind it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from delaylog.client import AnswerLost, ClientError, NotFound, NotReached, ShardsFailed
from delaylog.client.errors import api_error
from delaylog.client.shards.answers import OverShards, Shape, list_failed

AWAY = NotReached("http://b:1: refused")
LOST = AnswerLost("http://b:1: broken")
LACKS = api_error(404, {"code": "unknown"})
CONFLICT = api_error(409, {"code": "conflict"})
NAMES = ("a", "b", "c")


def total(shapes: Sequence[Shape]) -> int:
    return sum(each["n"] for each in shapes)


def said(*heard: int | ClientError, go_on: bool = True, may_lack: bool = True) -> int:
    """The call at shards that say this in turn."""
    over = OverShards("purge of 't'", NAMES[: len(heard)], go_on=go_on, may_lack=may_lack)
    for name, one in zip(NAMES, heard, strict=False):
        if isinstance(one, int):
            over.answered(name, {"n": one})
        elif not over.failed(name, one):
            break
    return over.joined(total)


def test_answers_are_summed_and_shards_that_lack_it_count_as_nothing() -> None:
    assert said(1, 2, 4) == 7
    assert said(1, LACKS, 4) == 5
    with pytest.raises(NotFound):
        said(LACKS, LACKS)


@pytest.mark.parametrize("error", [AWAY, LOST, CONFLICT])
def test_where_all_fail_alike_it_is_their_own_error(error: ClientError) -> None:
    with pytest.raises(type(error)):
        said(error, error)
    with pytest.raises(type(error)):
        said(error, 3, go_on=False)


def test_the_error_names_what_was_done_and_what_was_not() -> None:
    with pytest.raises(ShardsFailed) as caught:
        said(3, AWAY, LACKS)
    error = caught.value
    assert (error.answers, error.errors) == ({"a": 3}, {"b": AWAY, "c": LACKS})
    assert str(error) == (
        "purge of 't': b failed: http://b:1: refused; c failed: 404 unknown: ; answered by a (3)"
    )
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.answers, str(copied)) == ({"a": 3}, str(error))


def test_shards_that_were_left_alone_are_named() -> None:
    with pytest.raises(ShardsFailed, match=r"not asked: c$") as caught:
        said(3, CONFLICT, 5, go_on=False)
    assert (caught.value.answers, caught.value.not_asked) == ({"a": 3}, ("c",))
    with pytest.raises(ShardsFailed) as caught:
        said(3, LACKS, may_lack=False)
    assert caught.value.errors == {"b": LACKS}


def test_different_failures_are_all_told() -> None:
    with pytest.raises(ShardsFailed) as caught:
        said(AWAY, LOST)
    assert caught.value.errors == {"a": AWAY, "b": LOST}


def test_a_list_names_the_shard_and_the_way_out() -> None:
    error = list_failed("messages", "t", "b", AWAY)
    assert error.errors == {"b": AWAY}
    assert "the list of messages of 't' (shard= lists one shard alone): b failed" in str(error)
