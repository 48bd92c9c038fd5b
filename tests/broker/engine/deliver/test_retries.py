"""Retries: backoff, retries used up, ttl, merge modes and idempotent producers."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from delaylog.broker.engine.deliver.receives import RECEIVE_BYTES_MAX
from delaylog.broker.engine.errors import ConflictError
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.broker.engine.upkeep.housekeeping import TAIL_BYTES_HARD_MAX
from delaylog.contract.own_backoff import encode_own_backoff
from delaylog.storage.layout import MessageState as S

CREATED, KEPT, REPLACED, REJECTED = 0, 1, 2, 3
HOUR = 3_600_000


def test_backoff_doubles_within_its_jitter(host) -> None:
    """1, 2, 4, 8 s and at most max, each shortened by up to a fifth."""
    host.configure(backoff=Backoff(first_ms=1_000, max_ms=6_000, factor=2.0, jitter=0.2))
    host.send(50)
    got = host.receive()
    for base in (1_000, 2_000, 4_000, 6_000, 6_000):
        host.nack(got)
        now = host.now_ms
        host.advance(base)
        got = host.receive()
        waits = {m.deliver_at_ms - now for m in got}
        assert len(got) == 50
        assert base * 0.8 - 1 <= min(waits)
        assert max(waits) <= base
        assert len(waits) > 10, "jitter spreads them"


def backoffs(*said: dict[str, Any] | None) -> dict[str, Any]:
    """The column of headers in which messages say their backoffs; every second has headers too."""
    headers = msgpack.packb({"h": "v"})
    values = [
        (b"" if each is None else encode_own_backoff(each)) + (headers if k % 2 else b"")
        for k, each in enumerate(said)
    ]
    return {"headers": values}


@pytest.mark.parametrize("how", ["nack", "expiry"])
@pytest.mark.parametrize("again", ["", "restart", "checkpoint"])
def test_a_message_may_say_its_own_backoff(host: Any, how: str, again: str) -> None:
    """What it says wins, what it does not say is the topic's; restarts and moves keep it."""
    host.configure(backoff=Backoff(first_ms=1_000, max_ms=4_000, factor=2.0, jitter=0.0))
    wanted = {
        "none": (None, [1_000, 2_000, 4_000, 4_000]),
        "first": ({"first_ms": 300}, [300, 600, 1_200, 2_400]),
        "at once": ({"first_ms": 0}, [0, 0, 0, 0]),
        "long": ({"first_ms": 10_000}, [10_000] * 4),
        "least": ({"max_ms": 1_500}, [1_000, 1_500, 1_500, 1_500]),
        "steady": ({"factor": 1.0}, [1_000] * 4),
        "empty": ({}, [1_000, 2_000, 4_000, 4_000]),
        "all": (
            {"first_ms": 100, "max_ms": HOUR, "factor": 10.0, "jitter": 0.0},
            [100, 1_000, 10_000, 100_000],
        ),
    }
    host.send(len(wanted), ids=list(wanted), **backoffs(*(said for said, _ in wanted.values())))
    for at in range(4):
        got = host.receive(lease=500)
        assert {m.id for m in got} == set(wanted)
        if again == "restart":
            host.restart()
        elif again == "checkpoint":
            host.checkpoint()
            host.restart()
        if how == "nack":
            host.nack(got)
        else:
            host.advance(500)
        now = host.now_ms
        waits = {name: host.find([name])[0].row["deliver_at"] - now for name in wanted}
        expected = {name: each[at] for name, (_, each) in wanted.items()}
        assert {name: max(wait, 0) for name, wait in waits.items()} == expected
        host.advance(200_000)
    host.check_counts()


def test_an_own_backoff_has_jitter(host: Any) -> None:
    host.configure(backoff=Backoff(first_ms=0))
    said = {"first_ms": 1_000, "max_ms": 1_000, "jitter": 0.5}
    host.send(50, **backoffs(*([said] * 50)))
    host.nack(host.receive())
    now = host.now_ms
    host.advance(1_000)
    waits = {m.deliver_at_ms - now for m in host.receive()}
    assert 500 <= min(waits) < max(waits) <= 1_000
    assert len(waits) > 10


def test_a_nack_with_a_delay_wins_over_an_own_backoff(host: Any) -> None:
    host.send([b"a"], **backoffs({"first_ms": HOUR}))
    host.nack(host.receive(), 5)
    host.advance(5)
    assert host.bodies() == [b"a"]


@pytest.mark.parametrize("max_retry", [0, 1, 3])
def test_dead_after_its_retries(host, max_retry: int) -> None:
    """`max_retry` deliveries beyond the first, by nack and by expiry, over restarts."""
    host.configure(max_retry=max_retry, backoff=Backoff(first_ms=0))
    (name,) = host.ids_of(host.send(1))
    for attempt in range(1, max_retry + 2):
        (got,) = host.receive(lease=1_000)
        assert got.attempts == attempt
        if attempt % 2:
            host.nack([got])
        else:
            host.advance(1_050)
        host.restart()
    assert host.state_of(name) is S.DEAD
    assert host.receive() == []
    assert host.topic.default.counts.dead == 1
    host.check_counts()


@pytest.mark.parametrize("where", ["waiting", "ready", "leased"])
def test_keep_and_reject_leave_the_living_one(host, where: str) -> None:
    """The answer names it; once it has ended the id is free again."""
    delay = HOUR if where == "waiting" else 0
    first = host.send([b"old"], delay=delay, ids=["m"])
    got = host.receive() if where == "leased" else []
    for merge, code in (("keep", KEPT), ("reject", REJECTED)):
        result = host.send([b"new", b"other"], delay=5, ids=["m", merge], merge=merge)
        assert list(result.results) == [code, CREATED]
        assert result.refs[0] == first.refs[0]
        assert result.deliver_at_ms[0] == first.deliver_at_ms[0]
    if got:
        host.ack(got)
    else:
        host.cancel(["m"])
    assert host.send([b"new"], ids=["m"]).results == CREATED
    host.check_counts()


@pytest.mark.parametrize(
    ("merge", "codes", "body"),
    [
        ("keep", [CREATED, KEPT, CREATED, KEPT], b"0"),
        ("reject", [CREATED, REJECTED, CREATED, REJECTED], b"0"),
        ("replace", [REPLACED, REPLACED, CREATED, CREATED], b"3"),
    ],
)
def test_an_id_twice_in_one_batch(host, merge: str, codes: list[int], body: bytes) -> None:
    """First wins, or last wins; every row is answered with the one that lives."""
    result = host.send(4, ids=["m", "m", "n", "m"], merge=merge)
    assert list(result.results) == codes
    assert len(set(result.refs[[0, 1, 3]].tolist())) == 1
    assert sorted(host.bodies()) == sorted([body, b"2"])
    host.check_counts()


@pytest.mark.parametrize("keep", ["none", "restart", "checkpoint"])
def test_a_repeated_sequence_is_answered_as_first(host, keep: str) -> None:
    """Whatever became of the messages, and over restarts; nothing is added."""
    how = {"delay": [5, HOUR, 7], "ids": ["a", "a", "b"], "producer": "p", "sequence": 9}
    first = host.send(3, **how)
    host.advance(1_000)
    host.ack(host.receive())
    if keep != "none":
        getattr(host, keep)()
        host.restart()
    again = host.send(3, **how)
    assert again.refs.tolist() == first.refs.tolist()
    assert again.deliver_at_ms.tolist() == first.deliver_at_ms.tolist()
    assert list(again.results) == list(first.results)
    assert host.topic.sent == 2
    with pytest.raises(ConflictError):
        host.send(2, delay=5, producer="p", sequence=9)


def test_the_window_of_a_producer(host) -> None:
    """Sixty-four sequences in any order; what lies below is refused."""
    for sequence in (100, 37, 64, 99):
        host.send(1, producer="p", sequence=sequence)
    assert host.topic.sent == 4
    host.send(1, producer="p", sequence=37)
    assert host.topic.sent == 4
    host.checkpoint()
    host.restart()
    with pytest.raises(ConflictError):
        host.send(1, producer="p", sequence=36)
    host.send(1, producer="p", sequence=101)
    with pytest.raises(ConflictError):
        host.send(1, producer="p", sequence=37)
    host.send(1, producer="q", sequence=1)
    assert host.topic.sent == 6


@pytest.mark.long
def test_leases_of_large_messages_expire_in_portions(host) -> None:
    """A message that returns after a backoff is copied, and the copies wait in memory."""
    n, size = 240, 1 << 20
    host.configure(backoff=Backoff(first_ms=1_000, max_ms=1_000))
    host.send([b"x" * size] * n)
    host.flush()
    while host.receive(lease=30_000):
        pass
    pile = host.engine.state.hours.pile
    host.advance(30_000)
    sizes = [pile.size_bytes]
    while host.engine.state.leases.next_expiry_ms() is not None:
        host.flush()
        host.advance(100)
        sizes.append(pile.size_bytes)
    assert max(sizes) < 1.5 * TAIL_BYTES_HARD_MAX + 2 * RECEIVE_BYTES_MAX
    host.advance(1_100)
    got = []
    while more := host.receive():
        got += [message.origin for message in more]
    assert len(set(got)) == len(got) == n
