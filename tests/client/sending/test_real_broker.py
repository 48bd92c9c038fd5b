"""Both clients' sends against a real broker that is killed with -9 in their middle.

Method: messages carry their numbers as ids or bodies; after the broker has come back and everything
has its end, the broker's own list is compared with what was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from delaylog.client import (
    AsyncClient,
    Client,
    ClientError,
    Hooks,
    IdInUse,
    NewMessage,
    NotReached,
    SendFailed,
    Sent,
)
from tests.starts.warm_child import WarmChildBroker
from tests.waiting import until

FAR = timedelta(hours=1)
ROUNDS = 3
RESTARTS_S = 60.0
"""Time limit of sends: on a busy machine a broker takes longer to start than the default."""


async def bodies_there(url: str, topic: str) -> list[bytes]:
    """All bodies of a topic, waiting ones too."""
    async with AsyncClient(url) as client:
        return [found.body or b"" async for found in client.browse(topic, bodies=True)]


async def beaten(
    broker: WarmChildBroker, stop: asyncio.Event, sent: asyncio.Event | None = None
) -> None:
    """Kill the broker and start it again, a few times, then let the others end.

    `sent` is set whenever something was sent: no life is too short for that.
    """
    for _ in range(ROUNDS):
        await asyncio.sleep(0.15)
        if sent is not None:
            sent.clear()
            await sent.wait()
        await broker.kill()
        await asyncio.sleep(0.05)
        await broker.start()
    stop.set()


async def test_awaited_sends_are_there_once_through_kills(tmp_path: Path) -> None:
    sent: dict[str, str] = {}
    async with (
        WarmChildBroker(tmp_path / "data") as broker,
        AsyncClient(broker.url, timeout=timedelta(seconds=RESTARTS_S)) as client,
    ):
        stop, moved = asyncio.Event(), asyncio.Event()

        async def sender(task: int) -> None:
            number = 0
            while not stop.is_set():
                body = f"{task}-{number}"
                found = await client.send("t", body, delay=FAR)
                assert found.result == "created"
                sent[body] = found.id
                number += 1
                moved.set()

        await asyncio.gather(beaten(broker, stop, moved), *(sender(task) for task in range(40)))
        there = await bodies_there(broker.url, "t")
    assert len(sent) > 40
    assert sorted(there) == sorted(body.encode() for body in sent)
    assert len(set(sent.values())) == len(sent)


async def test_a_loop_that_awaits_nothing_but_room_loses_nothing_through_kills(
    tmp_path: Path,
) -> None:
    async with WarmChildBroker(tmp_path / "data") as broker, AsyncClient(broker.url) as client:
        stop = asyncio.Event()
        beating = asyncio.create_task(beaten(broker, stop))
        number = 0
        while not stop.is_set() and number < 10_000:
            for _ in range(50):
                client.send_soon("t", b"%d" % number, delay=FAR, id=f"id-{number}")
                number += 1
            await client.room()
            await asyncio.sleep(0.001)
        await beating
        await client.flush()
        there = await bodies_there(broker.url, "t")
    # In one lane nothing overtakes, and all of it is due in the order it came in.
    assert sorted(map(int, there)) == list(range(number))


async def test_sends_that_tasks_await_share_requests_and_wait_for_room(tmp_path: Path) -> None:
    """A thousand at once, ten times what may wait: none is refused, few requests are made."""
    requests: list[int] = []

    class Counting(Hooks):
        def on_sent(self, topic: str, n: int, seconds: float) -> None:
            requests.append(n)

    async with (
        WarmChildBroker(tmp_path / "data") as broker,
        AsyncClient(broker.url, batch_max=100, pending_max=100, hooks=[Counting()]) as client,
    ):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.send("t", b"a task", delay=FAR))
        sends = (client.send("t", b"%d" % n, delay=FAR) for n in range(1_000))
        sent = await asyncio.gather(*sends)
        assert len({each.id for each in sent}) == 1_000
        assert sum(requests) == 1_001
        assert len(requests) <= 30
        assert max(await bodies_there(broker.url, "t")) == b"a task"


async def test_threads_that_send_at_once_and_soon_lose_nothing_through_kills(
    tmp_path: Path,
) -> None:
    async with WarmChildBroker(tmp_path / "data") as broker:
        stop = asyncio.Event()
        over = threading.Event()
        sent: list[set[bytes]] = [set() for _ in range(4)]
        with Client(broker.url) as client:

            def at_once(task: int) -> None:
                number = 0
                while not over.is_set():
                    body = b"%d-%d" % (task, number)
                    client.send("t", body, delay=FAR)
                    sent[task].add(body)
                    number += 1

            def soon(task: int) -> None:
                number = 0
                while not over.wait(0.001):
                    body = b"%d-%d" % (task, number)
                    client.send_soon("t", body, delay=FAR)
                    sent[task].add(body)
                    number += 1

            working = [
                asyncio.create_task(asyncio.to_thread(work, task))
                for task, work in enumerate((at_once, at_once, soon, soon))
            ]
            await beaten(broker, stop)
            over.set()
            await asyncio.gather(*working)
            await asyncio.to_thread(client.flush)
        there = await bodies_there(broker.url, "t")
    assert all(sent)
    assert sorted(there) == sorted(set.union(*sent))


async def test_many_are_sent_in_order_by_either_client(tmp_path: Path) -> None:
    many = ["a", b"b", NewMessage("c", id="c", deliver_at_ms=10**12)]
    async with WarmChildBroker(tmp_path / "data") as broker:
        async with AsyncClient(broker.url) as client:
            sent = await client.send_many("t", many, delay=FAR)
        with Client(broker.url) as direct:
            same = await asyncio.to_thread(direct.send_many, "u", many, delay=FAR)
        for found in (sent, same):
            assert [each.result for each in found] == ["created"] * 3
            assert found[2].id == "c"
            assert found[2].deliver_at_ms < found[0].deliver_at_ms - 1_800_000
        assert sorted(await bodies_there(broker.url, "t")) == [b"a", b"b", b"c"]


async def test_one_that_is_too_large_for_the_broker_fails_alone(tmp_path: Path) -> None:
    async with WarmChildBroker(tmp_path / "data") as broker, AsyncClient(broker.url) as client:
        large = bytes((4 << 20) + 1)
        sendings = [client.send_soon("t", large if n == 3 else b"%d" % n) for n in range(8)]
        outcomes = await asyncio.gather(*sendings, return_exceptions=True)
        assert [n for n, each in enumerate(outcomes) if not isinstance(each, Sent)] == [3]
        assert "4194304" in str(outcomes[3])
        there = await bodies_there(broker.url, "t")
        assert sorted(there) == [b"%d" % n for n in range(8) if n != 3]
        with pytest.raises(ValueError, match="topic"):
            await client.send("no/topic", b"x")


async def test_a_client_that_is_closed_while_the_broker_is_down_counts_unsent_messages(
    tmp_path: Path,
) -> None:
    async with WarmChildBroker(tmp_path / "data") as broker:
        client = AsyncClient(broker.url, retry_for=timedelta(seconds=0.3))
        soon = Client(broker.url, retry_for=timedelta(seconds=0.3))
        await client.send("t", b"there", delay=FAR)
        await broker.kill()
        for number in range(3):
            client.send_soon("t", b"%d" % number)
            soon.send_soon("t", b"%d" % number)
        with pytest.raises(SendFailed) as failed:
            await client.close()
        assert failed.value.rows == 3
        assert isinstance(failed.value.failures[0], NotReached)
        await client.close()
        with pytest.raises(SendFailed, match="3 messages"):
            await asyncio.to_thread(soon.close)
        with pytest.raises(NotReached):
            await asyncio.to_thread(
                Client(broker.url, timeout=timedelta(seconds=0.1)).send, "t", b"x"
            )
        await broker.start()
        assert await bodies_there(broker.url, "t") == [b"there"]


async def test_a_close_sends_all_that_others_were_still_handing_over(tmp_path: Path) -> None:
    """A send during the close raises that the client is closed; accepted messages are sent."""
    async with WarmChildBroker(tmp_path / "data") as broker:
        said: list[str] = []
        done: list[str] = []
        enough = asyncio.Event()

        def in_thread(client: Client) -> None:
            try:
                while True:
                    done.append(client.send("t", b"x", delay=FAR).id)
            except ClientError as closed:
                said.append(str(closed))

        async def in_task(client: AsyncClient) -> None:
            try:
                while True:
                    done.append((await client.send("t", b"x", delay=FAR)).id)
                    if len(done) > 500:
                        enough.set()
            except ClientError as closed:
                said.append(str(closed))

        threaded = Client(broker.url, linger=timedelta(milliseconds=1))
        threads = [asyncio.create_task(asyncio.to_thread(in_thread, threaded)) for _ in "1234"]
        client = AsyncClient(broker.url)
        tasks = [asyncio.create_task(in_task(client)) for _ in range(20)]
        await enough.wait()
        await client.close()
        await asyncio.to_thread(threaded.close)
        await asyncio.gather(*threads, *tasks)
        assert said == ["the client is closed"] * 24
        async with AsyncClient(broker.url) as asking:
            assert (await asking.stats("t")).counts.waiting == len(set(done)) == len(done)


async def test_keyless_messages_go_to_a_reachable_shard_and_others_wait_for_their_own(
    tmp_path: Path,
) -> None:
    async with (
        WarmChildBroker(tmp_path / "a") as first,
        WarmChildBroker(tmp_path / "b") as second,
    ):
        async with AsyncClient(first.url, second.url) as client:
            await second.kill()
            free = await client.send_many("t", [b"%d" % n for n in range(20)])
            assert {sent.shard for sent in free} == {first.url}
            keyed = [client.send_soon("t", f"k{n}", key=f"k{n}") for n in range(20)]
            await until(lambda: any(sending.done() for sending in keyed))
            await asyncio.sleep(0.5)
            early = [sending for sending in keyed if sending.done()]
            assert 0 < len(early) < 20
            assert {(await sending).shard for sending in early} == {first.url}
            await second.start()
            # A busy machine may send some to the first one only now.
            late = {(await sending).shard for sending in keyed if sending not in early}
            assert {second.url} <= late <= {first.url, second.url}
        there = [*await bodies_there(first.url, "t"), *await bodies_there(second.url, "t")]
        assert len(there) == len(set(there)) == 40


async def test_a_client_whose_close_is_cancelled_has_closed_all_the_same(tmp_path: Path) -> None:
    async with WarmChildBroker(tmp_path / "data") as broker:
        client = AsyncClient(broker.url)
        await client.send("t", b"there", delay=FAR)
        await broker.kill()
        sending = client.send_soon("t", b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.close(), 0.1)
        assert sending.done()
        with pytest.raises(ClientError, match="closed"):
            client.send_soon("t", b"y")


async def test_an_id_in_use_is_refused_with_merge_reject(tmp_path: Path) -> None:
    """One send raises, `send_many` returns it as a result, and `flush` raises unread failures."""

    def threads(url: str) -> None:
        with Client(url) as client:
            with pytest.raises(IdInUse):
                client.send("t", "y", id="a", merge="reject")
            with pytest.raises(IdInUse):
                client.send_soon("t", "y", id="a", merge="reject").result(timedelta(seconds=30))
            (result,) = client.send_many("t", [NewMessage("y", id="a")], merge="reject")
            assert result.result == "rejected"

    async with WarmChildBroker(tmp_path / "data") as broker:
        async with AsyncClient(broker.url) as client:
            first = await client.send("t", "x", id="a", delay=FAR)
            with pytest.raises(IdInUse, match="a living message has the id a") as caught:
                await client.send("t", "y", id="a", merge="reject")
            assert caught.value.sent == first._replace(result="rejected")
            many = [NewMessage("y", id="a"), NewMessage("z", id="b")]
            results = await client.send_many("t", many, merge="reject")
            assert [each.result for each in results] == ["rejected", "created"]
            client.send_soon("t", "y", id="a", merge="reject")
            with pytest.raises(SendFailed) as unseen:
                await client.flush()
            assert [type(each) for each in unseen.value.failures] == [IdInUse]
        await asyncio.to_thread(threads, broker.url)


def test_an_interruption_does_not_wait_for_a_broker_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C, or a cancelled task: what is queued gets two seconds of the minute, and is told."""

    async def run() -> str:
        async with WarmChildBroker(tmp_path / "data") as broker:
            url = broker.url
        under_way = asyncio.Event()

        async def send() -> None:
            async with AsyncClient(url) as client:
                client.send_soon("t", "x")
                under_way.set()
                await client.flush()

        task = asyncio.ensure_future(send())
        await under_way.wait()
        task.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await task
        return url

    def interrupted(url: str) -> None:
        with contextlib.suppress(KeyboardInterrupt), Client(url) as client:
            client.send_soon("t", "x")
            raise KeyboardInterrupt

    url = asyncio.run(run())
    leaving = threading.Thread(target=interrupted, args=(url,))
    leaving.start()
    leaving.join(30)
    assert not leaving.is_alive()
    told = [record.message for record in caplog.records]
    assert sum(line.startswith("sends to t wait: ") for line in told) == 2, "once an outage"
    assert told.count("while closing after an error") == 2
