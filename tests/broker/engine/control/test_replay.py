"""Replay: dead messages live again, once, with a whole life before them."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from delaylog.broker.engine.control import changes as control
from delaylog.broker.engine.lookup.find_messages import find_ids, find_origins
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


@pytest.mark.parametrize("restarted", [False, True])
def test_a_dead_message_is_delivered_again(mortal, restarted: bool) -> None:
    """At once, with its attempts at 0; the counts follow, and again after it died once more."""
    mortal.send([b"x"], ids=["m"])
    for _ in range(3):
        kill(mortal, "m")
        assert mortal.topic.default.counts.dead == 1
        if restarted:
            mortal.restart()
            mortal.checkpoint()
        assert mortal.replay(["m", "m", "n"]) == [DONE, DONE, UNKNOWN]
        assert mortal.topic.default.counts.dead == 0
        if restarted:
            mortal.restart()
        assert mortal.state_of("m") is S.READY
        assert mortal.replay(["m"]) == [TOO_LATE]
    (got,) = mortal.receive()
    assert got.attempts == 1
    mortal.ack([got])
    assert mortal.replay(["m"]) == [TOO_LATE]
    mortal.check_counts()


@pytest.mark.parametrize("restarted", [False, True])
def test_an_id_is_one_message_s_at_a_time(mortal, restarted: bool) -> None:
    """A dead message whose id lives in another one stays dead; after that one, it may come back."""
    refs = []
    for body in (b"first", b"second", b"third"):
        refs.append(int(mortal.send([body], ids=["m"]).refs[0]))
        if body != b"third":
            kill(mortal, "m")
    state, topic = mortal.engine.state, mortal.topic
    both = np.array(refs[:2], np.int64)

    def replay() -> list[int]:
        found = find_origins(mortal.engine.state, both, mortal.topic, mortal.now_ms)
        result = control.replay(mortal.engine.state, mortal.topic, found, mortal.now_ms)
        mortal.turn()
        return result.codes.tolist()

    assert (state.leases.leased(topic.number, 1), topic.default.counts.dead) == (0, 2)
    assert replay() == [TOO_LATE, TOO_LATE]
    assert mortal.cancel(["m"]) == [DONE]
    assert replay() == [DONE, TOO_LATE], "one of them has the id now"
    if restarted:
        mortal.restart()
    found = mortal.find(["m"])[0]
    assert found.origin == refs[0], "and is found by it"
    result = mortal.send([b"fourth"], ids=["m"])
    assert result.results.tolist() == [1], "kept: the replayed one lives"
    assert mortal.bodies() == [b"first"]
    mortal.check_counts()


def test_an_id_is_taken_while_it_is_leased_behind_a_cancelled_successor(mortal) -> None:
    mortal.configure(max_retry=0, backoff=Backoff(first_ms=0), merge="replace")
    dead = mortal.ids_of(mortal.send([b"first"], ids=["m"]))
    kill(mortal, "m")
    mortal.send([b"second"], ids=["m"])
    held = mortal.receive()
    mortal.send([b"third"], ids=["m"])
    assert mortal.cancel(["m"]) == [DONE]
    assert mortal.replay(dead) == [TOO_LATE]
    mortal.checkpoint()
    mortal.restart()
    mortal.ack(held)
    assert mortal.replay(dead) == [DONE]


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
    assert control.cancel(state, topic, found, mortal.now_ms, force=True).codes == [TOO_LATE]
    result = control.cancel(state, topic, found, mortal.now_ms, dead=True)
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
