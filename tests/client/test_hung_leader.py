"""A leader that is stopped, not killed: every kind of call goes on at the next leader.

Three real nodes ask for tokens. The clients have one with the fewest rights, and a time limit of
five minutes, as in the example of HOWTO. A stopped node keeps its connections open and answers
nothing, as a machine that vanished does. What waits for it longer than a failover takes fails here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from delaylog.client import AsyncClient, Client, Message, Settled
from tests.broker.cluster.three_nodes import NAMES, NODES, ThreeNodes
from tests.client.scenes import drained
from tests.client.workers.live import KINDS, Kind, Works

DELAYLOG = str(Path(sys.executable).with_name("delaylog"))
LONG = timedelta(minutes=5)
SOON_S = 60
"""How long anything may take: far less than the time limit, far more than a failover."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(
        tmp_path_factory.mktemp("cluster"), token=make_token(os.urandom(RANDOM_BYTES))
    )
    try:
        nodes.start(new_cluster=True)
        nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
        yield nodes
    finally:
        nodes.clean_up()


@pytest.fixture
def members(three: ThreeNodes, topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The addresses of the nodes; the environment has a token for one topic."""
    grants = [f"{role}:{topic}" for role in ("producer", "consumer")]
    made = three.call(three.leader(), "PUT", f"/v1/principals/{topic}", {"grants": grants})
    assert made.status == 201, made
    three.call(three.leader(), "PUT", f"/v1/topics/{topic}", {})
    three.followers()
    three.caught_up()
    monkeypatch.setenv("DELAYLOG_TOKEN", made.json["token"])
    return ",".join(map(three.url, NODES))


@contextmanager
def stopped(three: ThreeNodes) -> Iterator[int]:
    """The leader is stopped in this block, and goes on afterwards."""
    leader = three.leader()
    three.signal(leader, signal.SIGSTOP)
    try:
        yield leader
    finally:
        three.signal(leader, signal.SIGCONT)
        three.until(lambda: len(three.followers()) == 2)


async def test_every_kind_of_call(three: ThreeNodes, members: str, topic: str, make: Any) -> None:
    """Calls that were open when the leader stopped, and calls that begin afterwards."""
    admin = make(members, token=three.token, timeout=LONG)
    async with make(members, timeout=LONG) as client, admin:
        await client.send_many(topic, [f"early {n}" for n in range(5)])
        held = await drained(client, topic, 5, lease=timedelta(minutes=5))
        assert len(held) == 5
        poll = asyncio.ensure_future(client.receive(topic, wait=timedelta(seconds=30)))
        await asyncio.sleep(0.5)
        with stopped(three) as leader:

            async def commit() -> str:
                async with admin.transaction() as together:
                    await together.stage(topic, ["tx"], delay_ms=3_600_000)
                return "committed"

            later = {"delay": timedelta(hours=1)}
            calls = {
                "send": client.send(topic, "s", **later),
                "send with an id": client.send(topic, "s", id="own", **later),
                "send_many": client.send_many(topic, ["m"] * 100, **later),
                "ack": client.ack(held[:1]),
                "extend": client.extend(held[1:2], lease=timedelta(seconds=200)),
                "nack": client.nack(held[2:3], delay=timedelta(hours=1)),
                "reject": client.reject(held[3:4]),
                "begin": client.begin(held[4], lease=timedelta(seconds=200)),
                "stats": admin.stats(topic),
                "topics": admin.topics(),
                "transaction": commit(),
            }
            begun = list(map(asyncio.ensure_future, calls.values()))
            found = await asyncio.wait_for(asyncio.gather(*begun), SOON_S)
            answers = dict(zip(calls, found, strict=True))
            for verb in ("ack", "extend", "nack", "reject", "begin"):
                assert answers[verb] == [Settled.DONE], verb
            await asyncio.wait_for(client.send(topic, "for the poll"), SOON_S)
            (message,) = await asyncio.wait_for(poll, SOON_S)
            assert (message.body, message.attempts) == (b"for the poll", 1)
            await client.ack([message])
            assert three.leader() != leader
        counts = (await admin.stats(topic)).counts
        assert (counts.waiting, counts.acked, counts.dead) == (104, 2, 1)


async def test_a_stopped_leader_that_goes_on_before_the_others_elect(
    three: ThreeNodes, members: str, topic: str, make: Any
) -> None:
    """Nothing is done twice, whoever leads after the short stop."""
    async with make(members, timeout=LONG) as client:
        for n in range(4):
            leader = three.leader()
            sends = [asyncio.ensure_future(client.send(topic, f"{n}")) for _ in range(20)]
            three.signal(leader, signal.SIGSTOP)
            await asyncio.sleep(0.1 + 0.4 * n)
            three.signal(leader, signal.SIGCONT)
            await asyncio.wait_for(asyncio.gather(*sends), SOON_S)

        def counts() -> dict[str, int]:
            found: dict[str, int] = three.on_leader("GET", f"/v1/topics/{topic}/stats").json[
                "counts"
            ]
            return found

        found = counts()
        assert found["waiting"] + found["ready"] == 80
        # A node that has just begun to lead loads the messages first.
        three.until(lambda: counts()["ready"] == 80)


async def test_a_subscription_by_a_stream(three: ThreeNodes, members: str, topic: str) -> None:
    async with AsyncClient(members, timeout=LONG) as client:
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def loop() -> None:
            async for message in client.subscribe(topic):
                seen.put_nowait(message.text)
                await message.ack()

        looping = asyncio.create_task(loop())
        await client.send(topic, "before")
        assert await asyncio.wait_for(seen.get(), SOON_S) == "before"
        with stopped(three):
            await asyncio.wait_for(client.send(topic, "meanwhile"), SOON_S)
            assert await asyncio.wait_for(seen.get(), SOON_S) == "meanwhile"
        await client.send(topic, "after")
        assert await asyncio.wait_for(seen.get(), SOON_S) == "after"
        looping.cancel()


async def test_a_stream_that_hangs_while_it_opens(
    three: ThreeNodes, members: str, topic: str
) -> None:
    async with AsyncClient(members, timeout=LONG) as client, AsyncClient(members) as other:
        await client.send(topic, "x")
        with stopped(three):
            loop = client.subscribe(topic)
            message = await asyncio.wait_for(anext(loop), SOON_S)
            assert await asyncio.wait_for(message.ack(), SOON_S) is Settled.DONE
            await other.close()


def test_a_subscription_by_polls(three: ThreeNodes, members: str, topic: str) -> None:
    with Client(members, timeout=LONG) as client:
        client.send(topic, "before")
        loop = client.subscribe(topic)
        next(loop).ack()
        with stopped(three):
            client.send(topic, "meanwhile")
            until_s = time.monotonic() + SOON_S
            message = next(loop)
            assert message.text == "meanwhile"
            message.ack()
            assert time.monotonic() < until_s


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_keeps_its_leases(three: ThreeNodes, members: str, topic: str, kind: Kind) -> None:
    """A handler outlives the lease of its message by far: the extensions go to the next leader."""
    begun, may_end = threading.Event(), threading.Event()
    seen: list[tuple[str, int]] = []
    works = Works(kind, SimpleNamespace(url=members, namespace="default"))  # type: ignore[arg-type]

    @works.consumer(topic, lease=timedelta(seconds=12), concurrency=4, wait=timedelta(seconds=20))
    async def handle(message: Message) -> None:
        seen.append((message.text, message.attempts))
        if message.text == "long":
            begun.set()
            await asyncio.to_thread(may_end.wait, SOON_S)

    with Client(members, timeout=LONG) as client:
        client.send(topic, "long")
        works.start()
        try:
            assert begun.wait(SOON_S)
            with stopped(three):
                client.send(topic, "short")
                three.until(lambda: ("short", 1) in seen)
                time.sleep(15)
                may_end.set()
                counts = f"/v1/topics/{topic}/stats"

                def acked() -> bool:
                    return bool(three.on_leader("GET", counts).json["counts"]["acked"] == 2)

                three.until(acked)
        finally:
            may_end.set()
            works.stop()
    assert sorted(seen) == [("long", 1), ("short", 1)]


def test_commands(three: ThreeNodes, members: str, topic: str) -> None:
    """A message that a command sends is there once; the doctor names the node that hangs."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        first = three.url(leader)
        others = [url for url in members.split(",") if url != first]
        command = [DELAYLOG, *words, "--url", ",".join([first, *others])]
        environment = {**os.environ, "DELAYLOG_TOKEN": three.token}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=SOON_S, check=False, env=environment
        )

    with stopped(three) as leader:
        sent = run("send", topic, "x")
        assert (sent.returncode, sent.stdout.count("created")) == (0, 1), sent.stderr
        told = run("cluster", "doctor")
        assert told.returncode == 1
        assert f"node {leader} ({NAMES[leader]}) does not answer" in told.stdout, told.stderr
        status = run("cluster", "status")
        assert status.returncode == 0, status.stderr
    counts = f"/v1/topics/{topic}/stats"
    # The node that hung may be asked before it knows that another one leads.
    three.until(lambda: three.on_leader("GET", counts).json["counts"]["ready"] == 1)
