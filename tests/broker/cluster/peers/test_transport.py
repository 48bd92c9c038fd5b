"""Sound nodes over real sockets: connecting, order, large messages, ends and new beginnings.

Method: two or three transports in one loop, on asyncio's loop and on uvloop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import time

import pytest

from delaylog.broker.cluster.peers import PeerLimits, Refused
from delaylog.broker.cluster.peers.connection import Connection, Stage
from delaylog.replication.epochs import EpochTick
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import Append, Fetched, Hello, Message
from delaylog.replication.wire import encode
from tests.broker.cluster.peers.rig import CLUSTER, AnyFolder, Rig, ack
from tests.waiting import until

FOLDER = 20 + sum(map(len, encode(AnyFolder().identity(1))))
"""The record of a folder's identity."""


async def test_connect_and_talk(rig: Rig) -> None:
    """Three nodes find each other, each pair once, and every message arrives in order."""

    rig.make_addresses(3)
    nodes = [await rig.start(n) for n in (2, 0, 1)]
    nodes = [nodes[1], nodes[2], nodes[0]]
    for n, node in enumerate(nodes):
        others = {0, 1, 2} - {n}
        await until(lambda t=node.transport, o=others: t.connected() == o)
        assert node.transport.hello_of(min(others)) == Hello(CLUSTER, min(others), True, 7, 9)
    for turn in range(30):
        for n, node in enumerate(nodes):
            for peer in {0, 1, 2} - {n}:
                for more in range(10):
                    node.transport.send(peer, ack(turn * 10 + more))
        await asyncio.sleep(0)
    await until(lambda: all(len(node.messages) == 600 for node in nodes))
    for n, node in enumerate(nodes):
        for peer in {0, 1, 2} - {n}:
            found = [m for source, m in node.messages if source == peer]
            assert found == [ack(k) for k in range(300)]
        counts = node.transport.counts
        assert not counts.refused
        assert {t.connects for t in counts.peers.values()} == {1}
        assert {t.messages_in for t in counts.peers.values()} == {300}
        assert {t.messages_out for t in counts.peers.values()} == {300}


async def test_bytes_are_counted_alike(rig: Rig) -> None:
    """What one has sent in records the other has received; a turn is one record."""
    one, two = await rig.pair(limits=PeerLimits(ping_ms=2_000, silent_ms=20_000))
    before = two.transport.counts.peers[0].bytes_in
    for number in range(100):
        one.transport.send(1, ack(number))
    await until(lambda: len(two.messages) == 100)
    grown = two.transport.counts.peers[0].bytes_in - before
    assert grown in (100 * 33 + 20, 100 * 33 + 40), "one record, and perhaps a ping"


@pytest.mark.parametrize("size", [1 << 20, 20_000_000])
async def test_large_both_ways(rig: Rig, size: int) -> None:
    """Frames far beyond any buffer, at once in both directions, with small ones around them."""

    data = random.Random(size).randbytes(size)
    large: list[Message] = [
        Fetched(1, 2, 3, memoryview(data)),
        Append(1, 2, 3, 4, 5, EpochTick(), data),
    ]
    nodes = await rig.pair()
    for n, node in enumerate(nodes):
        for message in (ack(1), large[0], ack(2), large[1], ack(3)):
            node.transport.send(1 - n, message)
    await until(lambda: all(len(node.messages) == 5 for node in nodes))
    for n, node in enumerate(nodes):
        expected = [ack(1), large[0], ack(2), large[1], ack(3)]
        assert node.messages == [(1 - n, message) for message in expected]
        assert node.story == [("up", 1 - n)]
        assert not node.refused


async def test_answers_go_out_in_the_same_turn(rig: Rig) -> None:
    """A ball played 1,000 times needs no turn of the loop besides those of the sockets."""
    one, two = await rig.pair()
    for node in (one, two):
        node.on_message = lambda peer, m, t=node.transport: t.send(peer, ack(m.end + 1))
    one.transport.send(1, ack(0))
    await until(lambda: len(one.messages) >= 500)
    assert [m.end for _, m in two.messages][:500] == list(range(0, 1000, 2))
    one.on_message = two.on_message = lambda peer, message: None


async def test_answers_wait_for_nothing(rig: Rig) -> None:
    """What a message causes is with the socket before anything else of the loop runs."""

    one, two = await rig.pair()
    grown: list[int] = []
    traffic = two.transport.counts.peers[0]

    def answer(peer: int, message: Message) -> None:
        before = traffic.bytes_out
        asyncio.get_running_loop().call_soon(lambda: grown.append(traffic.bytes_out - before))
        two.transport.send(peer, message)

    two.on_message = answer
    one.transport.send(1, ack(1))
    await until(lambda: one.messages)
    assert grown == [53]


async def test_flush_is_at_once(rig: Rig) -> None:
    """Without giving the loop a turn."""
    one, two = await rig.pair()
    before = one.transport.counts.peers[1].bytes_out
    one.transport.send(1, ack(1))
    assert one.transport.counts.peers[1].bytes_out == before
    one.transport.flush()
    assert one.transport.counts.peers[1].bytes_out == before + 53
    await until(lambda: two.messages)


async def test_nobody_there(rig: Rig) -> None:
    """What is sent to who is away, or to nobody at all, is dropped and counted."""

    rig.make_addresses(3)
    node = await rig.start(1)
    for peer in (0, 0, 2, 7, 1):
        node.transport.send(peer, ack(1))
    node.transport.flush()
    node.transport.drop(0, "not there")
    peers = node.transport.counts.peers
    assert (peers[0].messages_dropped, peers[2].messages_dropped) == (2, 1)
    assert node.transport.hello_of(0) is None
    await until(lambda: peers[2].dials_failed > 2)
    assert peers[0].dials_failed == 0, "it has to dial"
    assert not node.refused


@pytest.mark.parametrize("ends", [0, 1])
async def test_again_after_an_end(rig: Rig, ends: int) -> None:
    """Whichever side is stopped and started, they find each other, and hear of it in order."""
    nodes = [*await rig.pair()]
    stays = nodes[1 - ends]
    for times in range(1, 4):
        await nodes[ends].transport.stop()
        assert nodes[ends].story == [("up", 1 - ends), ("down", 1 - ends)]
        await until(lambda: not stays.transport.connected())
        nodes[ends] = await rig.start(ends)
        await until(lambda: stays.transport.connected() and nodes[ends].story)
        assert stays.story == [("up", ends), ("down", ends)] * times + [("up", ends)]
        stays.transport.send(ends, ack(times))
        await until(lambda n=nodes[ends]: n.messages)
        assert nodes[ends].messages == [(1 - ends, ack(times))]


async def test_drop(rig: Rig) -> None:
    """The host may end a connection; the peer comes back. It is told from the loop, not inside."""

    one, two = await rig.pair()
    for node, peer in ((one, 1), (two, 0)):
        count = len(one.story)
        node.transport.drop(peer, "for a test")
        assert len(node.story) == count
        assert not node.transport.connected()
        node.transport.send(peer, ack(1))
        assert node.transport.counts.peers[peer].messages_dropped == 1
        await until(lambda c=count: len(one.story) == len(two.story) == c + 2)
        assert not node.ended[1:], "it has closed the connection itself"
    assert one.refused == two.refused == {Refused.HOST: 1}


async def test_host_refuses_a_message(rig: Rig) -> None:
    """A PeerError closes that connection, nothing behind the message is told, and it goes on."""
    one, two = await rig.pair()

    def refuse(peer: int, message: Message) -> None:
        if message == ack(2):
            raise PeerError("no sound peer says that")

    two.on_message = refuse
    for number in (1, 2, 3):
        one.transport.send(1, ack(number))
    # Both: who dialled hears the other's hello after its own was taken.
    await until(lambda: len(one.story) == len(two.story) == 3)
    assert two.messages == [(0, ack(1)), (0, ack(2))]
    assert two.refused == {Refused.MESSAGE: 1}
    one.transport.send(1, ack(4))
    await until(lambda: two.messages[-1] == (0, ack(4)))


async def test_host_drops_while_it_is_told(rig: Rig) -> None:
    """Nothing more of that connection is told, though it is in the same record."""

    one, two = await rig.pair()
    two.on_message = lambda peer, message: two.transport.drop(peer, "enough")
    for number in (1, 2, 3):
        one.transport.send(1, ack(number))
    await until(lambda: len(two.story) == 3)
    assert two.messages == [(0, ack(1))]


async def test_host_fails(rig: Rig) -> None:
    """An error of our own is the loop's to report; it closes the connection at worst."""
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    one, two = await rig.pair()

    def fail(peer: int, message: Message) -> None:
        raise ValueError("a fault")

    two.on_message = fail
    one.transport.send(1, ack(1))
    await until(lambda: two.refused == {Refused.FAILED: 1} and told)
    assert [type(error) for error in told] == [ValueError]
    await until(lambda: len(two.story) == 3)


async def test_idle_stays_open(rig: Rig) -> None:
    """Pings keep it up, over several times the span after which silence is death."""

    one, two = await rig.pair()
    await asyncio.sleep(1.4)
    assert one.story == [("up", 1)]
    assert two.story == [("up", 0)]
    assert not one.refused
    assert not two.refused
    sent = one.transport.counts.peers[1].bytes_out
    assert sent <= 63 + FOLDER + 20 * 11, "only pings, and no more than there should be"


async def test_a_loop_that_stands_still(rig: Rig) -> None:
    """Time in which this process did nothing is not held against its peer."""
    one, two = await rig.pair()
    await asyncio.sleep(0.1)
    time.sleep(0.8)  # noqa: ASYNC251 -- that is the point
    await asyncio.sleep(0.3)
    assert one.story == [("up", 1)]
    assert two.story == [("up", 0)]


async def test_stop_twice_and_unstarted(rig: Rig) -> None:
    one, _ = await rig.pair()
    await one.transport.stop()
    await one.transport.stop()
    assert one.story == [("up", 1), ("down", 1)]
    one.transport.send(1, ack(1))
    one.transport.flush()


async def test_what_was_sent_before_stop_arrives(rig: Rig) -> None:
    """A node that leaves may still say so."""
    one, two = await rig.pair()
    for number in range(1000):
        one.transport.send(1, ack(number))
    await one.transport.stop()
    await until(lambda: len(two.messages) == 1000)
    assert not two.refused


async def test_cannot_listen(rig: Rig) -> None:
    """A port in use is the caller's to hear of, and nothing is left behind."""

    await rig.start(0)
    with pytest.raises(OSError, match="in use"):
        await rig.start(1, listen=rig.addresses[0])


async def test_it_stops_although_a_dial_is_given_up_as_it_succeeds(rig: Rig) -> None:
    """uvloop does not tell a protocol that its connection is lost then: nobody may wait for it."""
    listener = await rig.start(1)
    before = asyncio.all_tasks()
    transport = (await rig.start(0)).transport
    made, given_up = transport.made, []

    def give_up(connection: Connection) -> None:
        made(connection)
        given_up.append(connection)
        for task in asyncio.all_tasks() - before:
            task.cancel()

    transport.made = give_up  # type: ignore[method-assign]
    await until(lambda: given_up and not asyncio.all_tasks() - before)
    await asyncio.wait_for(transport.stop(), 30)
    assert all(connection.lost.done() for connection in given_up)
    assert not listener.story


async def test_a_dial_that_is_given_up_once_the_connection_is_open(rig: Rig) -> None:
    """A busy loop opens it in the turn in which the time of the dial ends, and uvloop drops it."""
    await rig.start(1)
    node = await rig.start(0)
    made, dialled = node.transport.made, []

    def keep(connection: Connection) -> None:
        made(connection)
        dialled.append(connection)

    node.transport.made = keep  # type: ignore[method-assign]
    await until(node.transport.connected)
    [connection] = dialled
    with contextlib.suppress(asyncio.CancelledError), connection.made_or_lost():
        raise asyncio.CancelledError
    assert connection.stage == Stage.CLOSED
    node.transport.send(1, ack(1))
    node.transport.flush()
    await until(lambda: node.story == [("up", 1), ("down", 1), ("up", 1)])


async def test_the_descriptor_of_a_dial_that_is_lost_at_once_is_closed_once(rig: Rig) -> None:
    """Its number belongs to other files soon, which stay open."""
    await rig.start(1)
    node = await rig.start(0)
    made, numbers = node.transport.made, []
    with contextlib.ExitStack() as opened:

        def abort(connection: Connection) -> None:
            made(connection)
            assert connection._transport is not None
            numbers.append(connection._transport.get_extra_info("socket").fileno())
            connection.abort()

        node.transport.made = abort  # type: ignore[method-assign]
        await until(lambda: len(numbers) > 3)
        node.transport.made = made  # type: ignore[method-assign]
        ends = {end for _ in range(8) for end in os.pipe()}
        for end in ends:
            opened.callback(os.close, end)
        await until(node.transport.connected)
        gc.collect()
        for end in ends:
            os.fstat(end)


@pytest.mark.parametrize("gone", [0, 2])
async def test_a_removed_node_is_told_and_does_not_hammer(rig: Rig, gone: int) -> None:
    """Whether it dials the others anyway, or only since it has no majority. It counts as no peer
    and as no refusal, and comes back ever more slowly.
    """
    rig.make_addresses(3)
    rest = [node for node in range(3) if node != gone]
    members = [await rig.start(node) for node in rest]
    farewell = ack(77)
    for member in members:
        member.transport.set_removed({gone}, farewell)
        member.transport.set_addresses({node: rig.addresses[node] for node in rest})
    removed = await rig.start(gone)
    removed.transport.dial_all(wanted=True)
    await until(lambda: {peer for peer, _ in removed.messages} == set(rest))
    await asyncio.sleep(1.5)
    assert all(message == farewell for _, message in removed.messages)
    # 20 ms at first, then up to 200: at 20 it would be some hundred and fifty.
    assert len(removed.messages) < 80
    for member in members:
        assert not member.transport.counts.refused
        assert gone not in member.transport.connected()
        assert ("up", gone) not in member.story


@pytest.mark.parametrize("later", [False, True])
async def test_a_removed_node_may_be_a_member_again(rig: Rig, later: bool) -> None:
    """This node was away, or its folder is an old copy, if the removed one knows more. Otherwise it
    could meet none of the members, nor learn that its folder is stale.
    """
    folder = AnyFolder(version=16)
    behind = await rig.start(0, folders=folder)
    behind.transport.set_removed({1}, ack(77))
    behind.transport.set_addresses({0: rig.addresses[0]})
    peer = await rig.start(1, folders=AnyFolder(version=17 if later else 16))
    peer.transport.dial_all(wanted=True)
    await until(lambda: folder.judged if later else peer.messages)
    assert folder.judged == ([1] if later else [])
    if later:
        await until(lambda: ("up", 1) in behind.story)
        assert behind.transport.connected() == {1}
        assert not peer.messages


async def test_without_a_majority_only_those_away_are_dialled(rig: Rig) -> None:
    first, second = await rig.pair()
    second.transport.dial_all(wanted=True)
    await asyncio.sleep(0.5)
    assert not first.transport.counts.refused
    assert not second.transport.counts.refused
    second.transport.dial_all(wanted=False)
    assert second.transport.connected() == {0}
