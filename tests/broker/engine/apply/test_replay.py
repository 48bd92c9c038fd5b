"""Replay: dead messages live again, once, with a whole life before them."""

from __future__ import annotations

import shutil

import pytest

from delaylog.broker.engine import changes
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.storage.layout import MessageState as S

DONE, TOO_LATE, UNKNOWN = 0, 1, 2
HOUR = 3_600_000


@pytest.fixture
def mortal(host):
    """A topic whose messages die at their first nack, and stay for a day."""
    host.configure(max_retry=0, backoff=Backoff(first_ms=0), dead_keep_ms=48 * HOUR)
    return host


def kill(host, name: str) -> None:
    """Have the one ready message of this id die."""
    (got,) = host.receive()
    assert got.any_id == name
    host.nack([got])
    assert host.state_of(name) is S.DEAD


@pytest.mark.parametrize("delay", [0, 2 * HOUR])
def test_a_rebuilt_id_index_leads_to_the_one_that_lives(mortal, delay: int) -> None:
    """Not to the one that had its id last, and has ended."""
    dead = mortal.ids_of(mortal.send([b"first"], ids=["m"]))
    kill(mortal, "m")
    mortal.send([b"second"], ids=["m"], delay=1_000)
    assert mortal.cancel(["m"]) == [DONE]
    assert mortal.replay(dead, mortal.now_ms + delay) == [DONE]
    mortal.checkpoint()
    mortal.close()
    shutil.rmtree(mortal.folder / "ids")
    mortal.open()
    assert mortal.send([b"third"], ids=["m"]).results == [1], "kept: the replayed one lives"
    mortal.advance(delay)
    assert mortal.bodies() == [b"first"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_deleted_dead_letter_goes_with_its_hour(mortal, restarted: bool) -> None:
    """It is no dead letter any more, over restarts; without being asked for it stays one."""
    mortal.send([b"x"], ids=["m"])
    kill(mortal, "m")
    state, topic = mortal.engine.state, mortal.topic
    found = find_ids(state, topic, ["m"], mortal.now_ms)
    assert changes.cancel(state, topic, found, mortal.now_ms, force=True).codes == [TOO_LATE]
    result = changes.cancel(state, topic, found, mortal.now_ms, dead=True)
    assert result.codes == [DONE]
    mortal.turn()
    if restarted:
        mortal.restart()
    assert mortal.state_of("m") is S.CANCELLED
    counts = mortal.topic.default.counts
    assert (counts.dead, counts.cancelled, counts.living) == (0, 1, 0)
    assert mortal.replay(["m"]) == [TOO_LATE]
    assert mortal.cancel(["m"], force=True) == [TOO_LATE]
    mortal.check_counts()
    mortal.recount()
