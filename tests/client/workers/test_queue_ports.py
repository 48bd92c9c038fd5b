"""Workers on a queue that only receives and settles, here a client without its workers.

Both kinds of embedded brokers run theirs so: test_tasks and test_timers.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from delaylog.client import Client, Message
from delaylog.client._sync.workers.ports import queue_ports
from delaylog.client._sync.workers.worker import ThreadWorker
from tests.client.workers.live import Live


def test_the_selection_of_a_consumer_reaches_the_queue(live: Live) -> None:
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
