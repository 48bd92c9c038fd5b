"""What can arrive at the port and must not matter: garbage, wrong keys, repeats, strange kinds.

Method: a running cluster, and datagrams that are sent straight to a node's port: random bytes, such
as a cluster with another key makes, all that the relays have kept, or sealed by hand.
"""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any

import pytest

from delaylog.replication.raftos_oracle.datagrams import (
    DATAGRAM_BYTES_MAX,
    Envelope,
    Stamp,
    pack,
    unpack,
)
from delaylog.replication.raftos_oracle.settings import make_cryptor
from tests.replication.raftos_oracle.cluster import CLUSTER_ID, SECRET, Cluster

pytestmark = pytest.mark.processes

LIFE = "ab" * 16
QUESTION = "cd" * 16


@cache
def cryptor() -> Any:
    """The key of the cluster."""
    return make_cryptor(SECRET, CLUSTER_ID)


def sealed(source: int, target: int, stamp: Stamp, message: Any) -> bytes:
    """By somebody who has the key."""
    token: bytes = cryptor().encrypt(pack(Envelope(source, target, stamp, message)))
    return token


def opened_message(data: bytes) -> dict[str, Any]:
    """What stands in a datagram."""
    return unpack(cryptor().decrypt(data)).message


def recorded(cluster: Cluster) -> list[tuple[int, bytes]]:
    """(target, bytes) of all that has passed and was no greeting."""
    return [
        (target, data)
        for _, target, data in cluster.passed
        if opened_message(data)["type"] != "hello"
    ]


async def introduce(cluster: Cluster, mad: int, to: int) -> None:
    """A node that is made by hand answers for its life."""
    hello = {"type": "hello", "ask": QUESTION, "answer": None}
    cluster.relays[to].deliver(sealed(mad, to, Stamp(LIFE, 1), hello))

    def answers() -> list[dict[str, Any]]:
        got = [opened_message(data) for *way, data in cluster.passed if way == [to, mad]]
        return [message for message in got if message.get("answer") == QUESTION]

    await cluster.until(lambda: bool(answers()))
    answer = {"type": "hello", "ask": None, "answer": answers()[0]["ask"]}
    cluster.relays[to].deliver(sealed(mad, to, Stamp(LIFE, 2), answer))


async def test_garbage(cluster: Cluster) -> None:
    await cluster.start()
    leader = await cluster.elected()
    random = Random(1)
    for size in range(1, 201):
        cluster.relays[leader].deliver(random.randbytes(size))
    for _ in range(5):
        cluster.relays[leader].deliver(random.randbytes(DATAGRAM_BYTES_MAX + 1))
    oracle = cluster.oracles[leader]
    await cluster.until(lambda: oracle.refused["oversized"] == 5)
    assert oracle.refused["unauthentic"] == 200
    await cluster.elected()


@pytest.mark.parametrize("other", [{"secret": b"x" * 32}, {"cluster_id": bytes(16)}], ids=str)
async def test_another_key_or_cluster(cluster: Cluster, other: dict[str, bytes]) -> None:
    await cluster.start(0, **other)
    await cluster.start(1, 2)
    await cluster.until(lambda: cluster.refused().get("unauthentic", 0) > 10)
    assert await cluster.elected(0) in (1, 2)
    assert cluster.oracles[0].leader(cluster.now_ms) is None
    assert cluster.oracles[0].term == 0
    assert cluster.refused().keys() <= {"unauthentic", "other_life", "old_term"}


async def test_what_was_recorded(cluster: Cluster) -> None:
    """In the same life of the nodes, and after a restart of each: every repeat is refused."""
    await cluster.start()
    restarts: list[int | None] = [None, 0, 1, 2]
    for restarted in restarts:
        await cluster.elected()
        again = recorded(cluster)
        if restarted is not None:
            await cluster.restart(restarted)
            await cluster.elected()
        before = sum(cluster.refused().values())
        for target, data in again:
            cluster.relays[target].deliver(data)
            await asyncio.sleep(0)
        await cluster.until(
            lambda sent=again, was=before: sum(cluster.refused().values()) >= was + len(sent)
        )
        assert cluster.refused().keys() <= {"replayed", "other_life", "old_term"}
    assert cluster.refused()["replayed"] > 0
    assert cluster.refused()["other_life"] > 0
    await cluster.elected()


async def test_greetings_that_were_recorded_change_nothing(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.elected()
    await cluster.restart(1)
    await cluster.elected()
    for _, target, data in list(cluster.passed):
        if opened_message(data)["type"] == "hello":
            cluster.relays[target].deliver(data)
            await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    before = dict(cluster.refused())
    count = len(cluster.passed)
    await cluster.until(lambda: len(cluster.passed) > count + 20)
    assert cluster.refused().get("other_life") == before.get("other_life")
    await cluster.elected()


async def test_the_age_of_the_newest_datagram(cluster: Cluster) -> None:
    """Also between two followers, which send each other nothing else while a leader is there."""
    await cluster.start()
    leader = await cluster.elected()
    ages = [oracle.ages_ms for oracle in cluster.oracles.values()]
    await cluster.until(lambda: all(None not in each().values() for each in ages))
    one, other = (node for node in cluster.nodes if node != leader)
    for _ in range(2):
        before = cluster.oracles[one].ages_ms()[other]
        await cluster.until(lambda b=before: (cluster.oracles[one].ages_ms()[other] or 0) > 300)
        await cluster.until(lambda: (cluster.oracles[one].ages_ms()[other] or 0) < 300)
    cluster.isolate(other)
    await cluster.until(lambda: (cluster.oracles[one].ages_ms()[other] or 0) > 1_500)


async def test_a_vote_for_one_is_none_for_another(cluster: Cluster) -> None:
    """A vote does not say for whom it is, so it must not be passed on to another candidate."""
    await cluster.start()
    await cluster.elected()
    for source, target, data in list(cluster.passed):
        cluster.relays[3 - source - target].deliver(data)
    await cluster.until(lambda: cluster.refused().get("stranger", 0) > 10)
    await cluster.elected()


async def test_made_by_hand_with_the_key(cluster: Cluster) -> None:
    """A peer that has gone mad: unknown kinds, wrong shapes, strangers, votes in another's name."""
    await cluster.start(0, 1)
    await cluster.elected()
    await introduce(cluster, 2, 0)
    named = "{}:{}".format(*cluster.members[1])
    vote = {"type": "request_vote", "term": 9, "last_log_index": 0, "last_log_term": 0}
    vote |= {"standing": [9, 9], "by_transfer": True}
    granted = {"type": "request_vote_response", "vote_granted": True}
    sent: list[tuple[str, int, int, Any]] = [
        ("unknown_type", 2, 0, {"type": "install_snapshot"}),
        ("unknown_type", 2, 0, {"type": ["request_vote"]}),
        ("unknown_type", 2, 0, {}),
        ("malformed", 2, 0, {**vote, "candidate_id": named}),
        ("malformed", 2, 0, {"type": "timeout_now", "term": -1}),
        ("malformed", 2, 0, {"type": "timeout_now", "term": True}),
        ("malformed", 2, 0, {"type": "timeout_now"}),
        ("malformed", 2, 0, {"type": "hello", "ask": "x", "answer": None}),
        ("malformed", 2, 0, [1]),
        ("stranger", 5, 0, {"type": "timeout_now", "term": 1}),
        ("stranger", 0, 0, {"type": "timeout_now", "term": 1}),
        ("old_term", 2, 0, {"type": "timeout_now", "term": 0}),
        ("old_term", 2, 0, {**granted, "term": 0}),
    ]
    before = dict(cluster.oracles[0].refused)
    for counter, (_, source, target, message) in enumerate(sent, 3):
        cluster.relays[target].deliver(sealed(source, target, Stamp(LIFE, counter), message))
    expected = {reason: [one[0] for one in sent].count(reason) for reason, *_ in sent}

    def more() -> dict[str, int]:
        now = cluster.oracles[0].refused
        return {reason: now[reason] - before[reason] for reason in expected}

    await cluster.until(lambda: more() == expected)
    await cluster.elected()
    assert cluster.oracles[0].term < 9
