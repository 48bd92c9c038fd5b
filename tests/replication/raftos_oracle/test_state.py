"""Terms, votes and what comes before an election, message by message.

Then the leader: its heartbeats, whose answers count, and what it repeats for a transfer.

Method: one node without a network (`one_node.py`); the published raftos fails most of these.
Timers of the leader are called by hand.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from delaylog.replication.epochs import EpochTick
from delaylog.replication.raftos_oracle.settings import ElectionTiming, LogState
from delaylog.replication.raftos_oracle.state import (
    RESPONSES_PENDING_MAX,
    EmptyLog,
    Leader,
    SteadyTimer,
)
from tests.replication.raftos_oracle.one_node import OneNode

GRANTED = {"type": "request_vote_response", "vote_granted": True}
REFUSED = {"type": "request_vote_response", "vote_granted": False}


async def test_one_vote_a_term_also_across_a_restart() -> None:
    node = OneNode()
    assert node.asks(1, 3) == [{**GRANTED, "term": 3}]
    assert node.asks(2, 3) == [{**REFUSED, "term": 3}]
    assert node.asks(1, 3) == [{**GRANTED, "term": 3}], "the answer may have been lost"
    node.disk.sync_all()
    again = OneNode(disk=node.disk.restart("nothing"))
    assert again.asks(2, 3) == [{**REFUSED, "term": 3}]
    assert again.asks(2, 4) == [{**GRANTED, "term": 4}]
    assert again.refused(1, "request_vote", 3) == [{**REFUSED, "term": 4}]


async def test_a_higher_term_clears_the_vote_in_one_write() -> None:
    node = OneNode()
    node.asks(1, 3)
    before = node.disk.count
    node.hears(2, 5)
    operations = node.disk.count - before
    assert (node.storage.term, node.storage.voted_for) == (5, None)
    before = node.disk.count
    node.asks(1, 5)
    assert node.disk.count - before == operations, "a vote alone costs as much"


@pytest.mark.parametrize("role", ["Candidate", "Leader"])
async def test_a_request_of_a_newer_term_is_answered_by_the_follower_it_makes(role: str) -> None:
    node = OneNode()
    node.stand()
    if role == "Leader":
        node.votes(1, 1)
    assert node.role == role
    assert node.asks(2, 1) == [{**REFUSED, "term": 1}]
    assert node.asks(2, 2) == [{**GRANTED, "term": 2}]
    assert node.role == "Follower"


@pytest.mark.parametrize(("count", "needed"), [(3, 2), (4, 3), (5, 3), (7, 4)])
async def test_true_majorities_of_different_voters(count: int, needed: int) -> None:
    node = OneNode(count)
    assert [node.state.is_majority(number) for number in (needed - 1, needed)] == [False, True]
    node.stand()
    for voter in range(1, needed):
        assert node.role == "Candidate"
        node.votes(count - 1, 1, granted=False)
        for _ in range(count):
            node.votes(voter, 1)
    assert node.role == "Leader"
    assert node.state.get_leader() == node.id_of(0)


async def test_late_votes_of_an_old_term_elect_nobody() -> None:
    node = OneNode()
    node.stand()
    node.state.to_follower()
    node.stand()
    assert node.storage.term == 2
    assert node.refused(1, "request_vote_response", 1, vote_granted=True) == []
    assert node.role == "Candidate"
    node.votes(1, 2)
    assert node.role == "Leader"
    node.votes(2, 2)


async def test_a_vote_that_comes_to_a_follower_means_nothing() -> None:
    node = OneNode()
    node.stand()
    node.state.to_follower()
    node.votes(1, 1)
    node.votes(2, 1)
    assert node.role == "Follower"


async def test_a_candidate_follows_the_leader_of_its_term() -> None:
    node = OneNode()
    node.stand()
    (answer,) = node.hears(2, 1)
    assert answer == {
        "type": "append_entries_response",
        "term": 1,
        "success": True,
        "last_log_index": 0,
        "request_id": 1,
    }
    assert node.role == "Follower"
    assert node.state.get_leader() == node.id_of(2)
    assert node.storage.voted_for == node.id_of(0), "it voted for itself and still has"


async def test_a_leader_of_an_old_term_is_told() -> None:
    taken: list[EpochTick] = []
    node = OneNode(accept_tick=taken.append)
    node.hears(1, 4, [1, 2, 3, 4, 5])
    old = node.heartbeat(2, 3, [9, 9, 9, 9, 9])
    (answer,) = node.refused(2, "append_entries", 3, **old)
    assert (answer["term"], answer["success"]) == (4, False)
    assert node.state.get_leader() == node.id_of(1)
    node.refused(2, "append_entries_response", 3)
    await asyncio.sleep(0)
    assert taken == [EpochTick(1, 2, 3, 4, 5)]


# ---------------------------------------------------------------------- before an election


async def test_asking_first_changes_no_term() -> None:
    node = OneNode(5, log_state=lambda: LogState(7, 8))
    node.state.state.start_election()
    question = {"type": "pre_vote", "term": 0, "round": 1, "standing": [7, 8]}
    assert [message for _, message in node.sent] == [question] * 4
    answers: list[dict[str, Any]] = [
        {"round": 1, "vote_granted": False},
        {"round": 9, "vote_granted": True},
        {"round": 1, "vote_granted": True},
        {"round": 1, "vote_granted": True},
    ]
    for answer in answers:
        node.take(1, "pre_vote_response", 0, **answer)
        assert (node.role, node.storage.term) == ("Follower", 0)
    sent = node.take(2, "pre_vote_response", 0, round=1, vote_granted=True)
    assert (node.role, node.storage.term) == ("Candidate", 1)
    assert [message["standing"] for message in sent] == [[7, 8]] * 4
    node.take(3, "pre_vote_response", 0, round=1, vote_granted=True)
    assert (node.role, node.storage.term) == ("Candidate", 1)


async def test_who_hears_a_leader_helps_nobody_to_replace_it() -> None:
    node = OneNode()

    def agrees(term: int) -> bool:
        (answer,) = node.take(2, "pre_vote", term, round=4, standing=[0, 0])
        assert (answer["type"], answer["round"]) == ("pre_vote_response", 4)
        assert answer["term"] == node.storage.term
        return bool(answer["vote_granted"])

    node.state.start()
    assert agrees(0)
    node.hears(1, 3)
    assert not agrees(9)
    assert node.storage.term == 3
    node.state.begin_pre_vote()
    node.take(2, "pre_vote_response", 3, round=1, vote_granted=True)
    assert node.role == "Follower", "the leader came back meanwhile"
    node.stand()
    node.votes(1, 4)
    assert not agrees(9), "nor does the leader itself"
    again = OneNode(disk=node.disk)
    (answer,) = again.take(2, "pre_vote", 3, round=4, standing=[0, 0])
    assert answer["vote_granted"] is False, "of an old term"


async def test_split_votes_are_asked_for_anew_at_once() -> None:
    node = OneNode()
    node.stand()
    del node.sent[:]
    node.state.stand_again()
    assert node.role == "Follower"
    assert [message["type"] for _, message in node.sent] == ["pre_vote"] * 2
    assert node.storage.term == 1


async def test_who_agrees_to_another_waits_itself() -> None:
    node = OneNode(log_state=lambda: LogState(5, 5))
    node.state.start()
    timer = node.state.state.election_timer
    before = timer.handler
    node.take(1, "pre_vote", 0, round=1, standing=[5, 4])
    assert timer.handler is before
    node.take(1, "pre_vote", 0, round=1, standing=[5, 5])
    assert timer.handler is not before
    node.state.stop()


async def test_only_a_follower_learns_a_term_that_way() -> None:
    for role in ("Follower", "Candidate", "Leader"):
        node = OneNode()
        if role != "Follower":
            node.stand()
        if role == "Leader":
            node.votes(1, 1)
        before = node.storage.term
        node.take(1, "pre_vote_response", 7, round=1, vote_granted=False)
        assert node.role == role
        assert node.storage.term == (7 if role == "Follower" else before)


# ---------------------------------------------------------------------- preference, out, transfer


async def test_less_complete_logs_are_not_helped() -> None:
    mine: list[LogState | None] = [LogState(5, 100)]
    node = OneNode(log_state=lambda: mine[0])
    for standing, granted in [((5, 99), False), ((4, 200), False), ((5, 100), True)]:
        (answer,) = node.take(1, "pre_vote", 0, round=1, standing=list(standing))
        assert answer["vote_granted"] is granted
    assert node.asks(1, 1, (5, 99)) == [{**REFUSED, "term": 1}]
    assert node.storage.voted_for is None
    assert node.asks(1, 1, (5, 99), transfer=True) == [{**GRANTED, "term": 1}]
    node = OneNode(log_state=lambda: mine[0])
    node.state.resign(60)
    assert node.asks(1, 1, (5, 99)) == [{**GRANTED, "term": 1}], "who is out has no say"

    mine[0] = None
    node = OneNode(log_state=lambda: mine[0])
    assert node.asks(1, 1) == [{**GRANTED, "term": 1}], "a learner has none either"
    node.state.begin_pre_vote()
    node.hears(1, 1)
    node.take(1, "timeout_now", 1)
    assert node.role == "Follower"


async def test_who_is_out_does_not_stand() -> None:
    node = OneNode()
    node.stand()
    node.votes(1, 1)
    assert node.state.leads
    changes = node.changes
    node.state.resign(60)
    assert (node.role, node.state.leads, node.state.get_leader()) == ("Follower", False, None)
    assert node.changes > changes
    del node.sent[:]
    node.state.begin_pre_vote()
    assert node.sent == []
    node.hears(1, 2)
    node.take(1, "timeout_now", 2)
    assert node.role == "Follower"


async def test_a_transfer_is_the_leaders_word_in_its_term() -> None:
    node = OneNode()
    node.state.transfer(node.id_of(1))
    assert node.sent == [], "only a leader can"
    node.hears(1, 3)
    node.take(2, "timeout_now", 3)
    assert node.role == "Follower", "not the leader's word"
    node.refused(1, "timeout_now", 2)
    sent = node.take(1, "timeout_now", 3)
    assert (node.role, node.storage.term) == ("Candidate", 4)
    assert [message["by_transfer"] for message in sent] == [True, True]
    node.state.to_follower()
    node.stand()
    assert node.sent[-1][1]["by_transfer"] is False
    node.refused(1, "timeout_now", 3)
    assert node.storage.term == 5


async def test_the_host_is_told_of_what_is_new() -> None:
    node = OneNode()
    for change in (lambda: node.hears(1, 1), lambda: node.hears(2, 2), node.stand):
        before = node.changes
        change()
        assert node.changes > before
    node.hears(1, 4)
    before = node.changes
    node.hears(1, 4)
    assert node.changes == before


async def test_several_nodes_in_one_process_have_a_leader_each() -> None:
    first, second = OneNode(), OneNode()
    first.hears(1, 1)
    assert (first.state.leader, second.state.leader) == (first.id_of(1), None)


# ---------------------------------------------------------------------- what the host knows


async def test_a_node_whose_host_hears_a_leader_does_not_stand() -> None:
    """Not by silence: a transfer makes it a candidate all the same."""
    leader: list[int | None] = [2]
    node = OneNode(hears=lambda: leader[0])
    node.state.begin_pre_vote()
    assert node.sent == []
    node.hears(1, 1)
    node.take(1, "timeout_now", 1)
    assert node.role == "Candidate"


async def test_only_the_leader_that_the_host_hears_is_supported() -> None:
    leader: list[int | None] = [2]
    node = OneNode(hears=lambda: leader[0])
    for candidate, granted in [(1, False), (2, True)]:
        (answer,) = node.take(candidate, "pre_vote", 0, round=1, standing=[0, 0])
        assert answer["vote_granted"] is granted
    leader[0] = None
    (answer,) = node.take(1, "pre_vote", 0, round=2, standing=[0, 0])
    assert answer["vote_granted"]


async def test_a_busy_machine_stretches_all_times() -> None:
    factor = 1.0
    node = OneNode(stretch=lambda: factor)
    timing = node.state.timing
    assert node.state.step_down_s() == timing.step_down_ms / 1000
    factor = 4.0
    assert node.state.step_down_s() == 4 * timing.step_down_ms / 1000
    least, most = 4 * timing.election_min_ms / 1000, 4 * timing.election_max_ms / 1000
    assert all(least <= node.state.election_interval_s() <= most for _ in range(50))


# ---------------------------------------------------------------------- the leader


def elected(count: int = 3, **own: Any) -> tuple[OneNode, Leader]:
    node = OneNode(count, **own)
    node.stand()
    for voter in range(1, count):
        node.votes(voter, 1)
    assert isinstance(node.state.state, Leader)
    return node, node.state.state


async def test_a_heartbeat_carries_the_tick_and_an_empty_log() -> None:
    tick: list[EpochTick | None] = [None]
    node, leader = elected(tick=lambda: tick[0])
    for sent in (None, EpochTick(1, 2, 3, 4, 5)):
        tick[0] = sent
        del node.sent[:]
        leader.heartbeat()
        assert {destination for destination, _ in node.sent} == {node.id_of(1), node.id_of(2)}
        for _, message in node.sent:
            assert message["tick"] == (None if sent is None else [1, 2, 3, 4, 5])
            assert (message["entries"], message["term"]) == ([], 1)
    del node.sent[:]
    leader.append_entries(node.id_of(2))
    assert [destination for destination, _ in node.sent] == [node.id_of(2)]


async def test_a_heartbeat_is_of_the_term_that_its_sender_led() -> None:
    """raftos sends it one turn of the loop later, by when it may have voted for another one."""
    node, leader = elected()
    del node.sent[:]
    leader.heartbeat()
    node.state.request_handler(
        {
            "type": "request_vote",
            "term": 2,
            "candidate_id": node.id_of(1),
            "standing": [0, 0],
            "by_transfer": False,
            "sender": node.roster.addresses[1],
        }
    )
    await asyncio.sleep(0)
    terms = [message["term"] for _, message in node.sent if "leader_id" in message]
    assert terms == [1, 1]


async def test_answers_of_a_majority_confirm_the_time_of_sending() -> None:
    node, leader = elected(5)
    answered = leader.request_id
    leader.heartbeat()
    time.sleep(0.27)  # noqa: ASYNC251 (no timer may run meanwhile)
    assert not leader.confirmed, "nobody has answered"

    def answers(source: int, request_id: int) -> None:
        more = {"success": True, "last_log_index": 0, "request_id": request_id}
        node.take(source, "append_entries_response", 1, **more)

    answers(1, answered)
    answers(2, answered)
    assert not leader.confirmed, "what was sent before the pause proves nothing now"
    leader.heartbeat()
    for _ in range(3):
        answers(1, leader.request_id)
    assert not leader.confirmed, "one of five, three times"
    answers(2, leader.request_id)
    assert leader.confirmed
    answers(3, leader.request_id)
    answers(3, 10**6)
    assert leader.confirmed


async def test_an_answer_of_a_newer_term_ends_it() -> None:
    node, leader = elected()
    more = {"success": False, "last_log_index": 0, "request_id": leader.request_id}
    node.take(1, "append_entries_response", 2, **more)
    assert (node.role, node.storage.term) == ("Follower", 2)


async def test_unanswered_heartbeats_are_forgotten() -> None:
    _, leader = elected()
    for _ in range(3 * RESPONSES_PENDING_MAX):
        leader.heartbeat()
    assert len(leader.response_map) == RESPONSES_PENDING_MAX
    assert leader.request_id in leader.response_map


async def test_a_transfer_is_repeated_until_its_deadline() -> None:
    node, leader = elected(timing=ElectionTiming(transfer_deadline_ms=400))

    def asked() -> list[str]:
        del node.sent[:]
        leader.heartbeat()
        return [target for target, message in node.sent if message["type"] == "timeout_now"]

    assert asked() == []
    node.state.transfer(node.id_of(2))
    assert node.sent[-1] == (node.id_of(2), {"type": "timeout_now", "term": 1})
    assert asked() == [node.id_of(2)]
    time.sleep(0.41)  # noqa: ASYNC251 (no timer may run meanwhile)
    assert asked() == []
    assert asked() == []


async def test_a_vote_given_sets_the_election_timer_anew() -> None:
    node = OneNode()
    node.state.start()
    before = node.state.state.election_timer.handler
    node.asks(1, 0)
    assert node.state.state.election_timer.handler is not before
    node.state.stop()


# ---------------------------------------------------------------------- timers, the empty log


async def test_errors_and_resets() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: errors.append(what))
    calls: list[int] = []
    enough = asyncio.Event()

    def callback() -> None:
        calls.append(1)
        if len(calls) == 5:
            enough.set()
        timer.reset()
        if len(calls) == 2:
            raise ValueError

    waits: list[int] = []

    def interval_s() -> float:
        waits.append(1)
        return 0.001

    timer = SteadyTimer(interval_s, callback)
    timer.stop()  # before it was started
    timer.start()
    await asyncio.wait_for(enough.wait(), 10)
    timer.stop()
    count = len(calls)
    await asyncio.sleep(0.02)
    assert len(calls) == count
    assert len(waits) == 2 * count + 1, "set again once by itself and once by the reset"
    assert len(errors) == 1


def test_nothing_comes_in() -> None:
    log = EmptyLog()
    with pytest.raises(AssertionError):
        log.write(1, {})
    log.erase_from(1)
    assert (len(log), bool(log), log.last_log_index, log.last_log_term) == (0, False, 0, 0)
    with pytest.raises(IndexError):
        log[1]
