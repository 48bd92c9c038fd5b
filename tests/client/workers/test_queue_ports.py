"""Workers on a queue that only receives and settles, here a client without its workers."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from delaylog.client import AsyncClient, Client, Message
from delaylog.client._async.workers.ports import async_queue_ports
from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client._sync.workers.ports import queue_ports
from delaylog.client._sync.workers.worker import ThreadWorker
from tests.client.workers.live import Live


def test_in_threads(live: Live) -> None:
    live.client.put_group("t", "g")
    live.send(["a", "b"], tags=[["x"], ["y"]])
    seen: list[bytes] = []
    with Client(live.url, namespace=live.namespace) as queue:
        worker = ThreadWorker(queue_ports(queue))

        @worker.consumer(
            "t", group="g", tags=["x"], exact_tags=True, wait=timedelta(milliseconds=200)
        )
        def handle(message: Message) -> None:
            seen.append(message.body)

        worker.start()
        live.await_counts(group="g", acked=1, ready=1)
        worker.stop()
    assert seen == [b"a"]


async def test_in_a_loop(live: Live) -> None:
    live.send(["a", "b"])
    handled = asyncio.Event()
    seen: list[bytes] = []
    async with AsyncClient(live.url, namespace=live.namespace) as queue:
        worker = AsyncWorker(async_queue_ports(queue))

        @worker.consumer("t", wait=timedelta(milliseconds=200))
        async def handle(message: Message) -> None:
            seen.append(message.body)
            if len(seen) == 2:
                handled.set()

        await worker.start()
        await handled.wait()
        await worker.stop()
    assert sorted(seen) == [b"a", b"b"]
    assert live.counts() == {"acked": 2}


def test_run_is_for_the_main_thread(live: Live) -> None:
    said: list[str] = []

    def elsewhere() -> None:
        with Client(live.url) as client:
            client.consumer("t")(print)
            try:
                client.run()
            except RuntimeError as error:
                said.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert said
    assert "use start() and stop()" in said[0]
