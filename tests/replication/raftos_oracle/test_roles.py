"""The leader: its heartbeats, whose answers count, and what it repeats for a transfer.

Method: one node without a network, made the leader (`one_node.py`); timers are called by hand.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from delaylog.replication.epochs import EpochTick
from delaylog.replication.raftos_oracle.settings import ElectionTiming
from delaylog.replication.raftos_oracle.state import RESPONSES_PENDING_MAX, Leader
from tests.replication.raftos_oracle.one_node import OneNode


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
