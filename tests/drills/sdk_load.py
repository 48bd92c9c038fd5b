"""A program that uses the SDK in every way at once, on any number of shards, through any faults.

Senders are tasks that share a lingering AsyncClient, tasks of one that repeats nothing, and threads
with `send` and `send_soon`; handlers run in tasks and in threads, and one task receives and acks
by hand. The one rule: only the public SDK is used, and each call goes into the history as what the
SDK said of it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final

from drill import open_messages
from sdk_history import Begun, SdkHistory, now_ms

from delaylog.client import (
    AsyncClient,
    Client,
    ClientError,
    LeasedMessage,
    NotReached,
    NotReady,
    SettleFailed,
    Shard,
)
from delaylog.client.hooks import Hooks
from delaylog.client.workers import Retry

WORKED: Final = "worked"
KEYED: Final = "keyed"
KEPT: Final = "kept"
"""Nobody consumes it: its messages are due in an hour, and are listed at the end."""
CONSUMED: Final = (WORKED, KEYED)
TOPICS: Final = (*CONSUMED, KEPT)
KEPT_MS: Final = 3_600_000
AHEAD_MS: Final = (0, 500)
LEASE_MS: Final = 2_000
WAIT_MS: Final = 300
KEYS: Final = 40
RETRIES_MAX: Final = 60_000
"""A message is taken and dropped at every fault; none may die of it."""
RETRY_SHARE: Final = 0.04
SENDING_TASKS: Final = 12
HASTY_S: Final = 0.01
THREADS: Final = 2
CALL_TIMEOUT_S: Final = 5.0
DRAIN_S: Final = 60.0
CALM_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Ways:
    """How each kind of client reaches the shards, which have the same names on every way."""

    direct: list[Shard]
    behind: list[Shard]
    """Answers may be lost."""
    hasty: list[Shard]
    """Answers are lost often, for clients that repeat nothing."""


class Telling(Hooks):
    """What the SDK tells of its own accord."""

    def __init__(self, history: SdkHistory) -> None:
        self._history = history
        self._lock = threading.Lock()
        self.retries: Counter[str] = Counter()

    def on_send_retry(self, topic: str, n: int, error: Exception) -> None:
        with self._lock:
            self.retries[type(error).__name__] += 1

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        # Its ack goes out from here on; nobody is told what comes of it.
        self._history.settled("ack", [message], now_ms())

    def on_handler_error(
        self, message: LeasedMessage, error: BaseException, seconds: float
    ) -> None:
        self._history.settled("nack", [message], now_ms())


class SdkLoad:
    """All of it, from `begin` to `drain` and `read_back`."""

    def __init__(self, history: SdkHistory, seed: int, ways: Ways) -> None:
        """Nothing is asked yet."""
        self.handled: Counter[str] = Counter()
        self.telling = Telling(history)
        self._history = history
        self._seed = seed
        self._made = 0
        self._lock = threading.Lock()
        self._stop_sending = threading.Event()
        self._stop_receiving = False
        shared: dict[str, Any] = {
            "hooks": [self.telling],
            "timeout": timedelta(seconds=CALL_TIMEOUT_S),
        }
        self._patient = AsyncClient(*ways.behind, linger=timedelta(milliseconds=2), **shared)
        # What reached nobody is told by the direct way, what may have come through by the other.
        self._hasty = [
            AsyncClient(*shards, retry_for=timedelta(seconds=HASTY_S), **shared)
            for shards in (ways.direct, ways.hasty)
        ]
        self._threaded = Client(*ways.behind, **shared)
        self._asking = AsyncClient(*ways.direct, timeout=timedelta(seconds=CALL_TIMEOUT_S))
        self._working = AsyncClient(*ways.direct, **shared)
        self._working_threads = Client(*ways.behind, **shared)
        self._tasks: list[asyncio.Task[None]] = []
        self._receiving: asyncio.Task[None] | None = None

    # Life

    async def begin(self) -> None:
        """Make the topics and go on until `drain`."""
        for shard in self._asking.shards:
            for topic in TOPICS:
                await self._put_topic(shard.name, topic)
        self._declare()
        await self._working.start()
        self._working_threads.start()
        works: list[Coroutine[Any, Any, None]] = [
            *(self._send(self._patient, f"task {n}") for n in range(SENDING_TASKS)),
            *(self._send(client, f"hasty {n}") for n, client in enumerate(self._hasty)),
        ]
        for n in range(THREADS):
            works.append(asyncio.to_thread(self._send_in_thread, f"thread {n}"))
            works.append(asyncio.to_thread(self._send_soon_in_thread, f"soon {n}"))
        self._tasks = [asyncio.create_task(work) for work in works]
        self._receiving = asyncio.create_task(self._receive())

    async def _put_topic(self, shard: str, topic: str) -> None:
        """Create a topic, and try again while a new cluster on a slow machine has no leader."""
        ends = time.monotonic() + CALM_S_MAX
        while True:
            try:
                await self._asking.broker(shard).put_topic(topic, {"max_retry": RETRIES_MAX})
                return
            except NotReady:
                if time.monotonic() > ends:
                    raise
                await asyncio.sleep(0.1)

    async def calm(self, sent: int, least_s: float) -> None:
        """Until so many more sends were acknowledged, and for a time at least.

        Raises what ended a sender or the receiver, none of which ends by itself, and TimeoutError
        when the SDK does not come back to send.
        """
        goal = self._history.acknowledged + sent
        async with asyncio.timeout(CALM_S_MAX):
            await asyncio.sleep(least_s)
            while self._history.acknowledged < goal:
                self._check()
                await asyncio.sleep(0.02)
        self._check()

    def _check(self) -> None:
        for task in (*self._tasks, self._receiving):
            if task is not None and task.done() and (error := task.exception()) is not None:
                raise error

    async def drain(self) -> None:
        """No more faults come: end the sends, and consume until nothing is open."""
        self._stop_sending.set()
        await asyncio.gather(*self._tasks)
        deadline_s = time.monotonic() + DRAIN_S
        while left := await self._open():
            if time.monotonic() > deadline_s:
                self._history.surprise(f"{left} messages are still open after {DRAIN_S:.0f} s")
                break
            await asyncio.sleep(0.1)
        # Whatever could still come, a second copy of something above all, comes now.
        await asyncio.sleep(0.3)
        self._stop_receiving = True
        assert self._receiving is not None
        await self._receiving
        self._history.mark("end", now_ms())

    async def read_back(self) -> None:
        """See the kept messages in the brokers, all of them."""
        async for message in self._asking.browse(KEPT, bodies=True):
            assert message.body is not None
            self._history.seen(KEPT, message.body, message.id, message.shard)

    async def close(self) -> None:
        """Close every client; a failure that nobody was told of is a surprise."""
        self._stop_sending.set()
        for client in (self._patient, *self._hasty, self._working, self._asking):
            try:
                await client.close()
            except ClientError as error:
                self._history.surprise(f"close raised {error!r}")
        for threaded in (self._threaded, self._working_threads):
            try:
                await asyncio.to_thread(threaded.close)
            except ClientError as error:
                self._history.surprise(f"close raised {error!r}")

    async def _open(self) -> int:
        n = 0
        for shard in self._asking.shards:
            for topic in CONSUMED:
                counts = (await self._asking.broker(shard.name).stats(topic))["counts"]
                n += open_messages(counts)
        return n

    # Sending

    def _next(self, random: Random) -> tuple[Begun, dict[str, Any]]:
        """A new message, and how it is sent."""
        with self._lock:
            self._made += 1
            number = self._made
        kind = random.random()
        topic, own_id, key = WORKED, None, None
        due_ms: int | None = now_ms() + random.randint(*AHEAD_MS)
        if kind < 0.3:
            topic, due_ms = KEPT, now_ms() + KEPT_MS
        elif kind < 0.5:
            own_id = f"own-{number}"
        elif kind < 0.75:
            # At once: one that is repeated until its own time has passed comes behind what is
            # ready, and so not in the order of its time.
            topic, key, due_ms = KEYED, f"key-{random.randrange(KEYS)}", None
        body = b"%d-%d" % (self._seed, number)
        begun = self._history.begin(topic, body, due_ms, own_id=own_id, key=key)
        return begun, {"deliver_at_ms": due_ms, "id": own_id, "key": key}

    async def _send(self, client: AsyncClient, name: str) -> None:
        """A few at once, awaited one by one, again and again."""
        random = Random(f"{self._seed} {name}")
        while not self._stop_sending.is_set():
            sendings = []
            for _ in range(random.randint(1, 4)):
                begun, how = self._next(random)
                sendings.append((begun, client.send_soon(begun.topic, begun.body, **how)))
            for begun, sending in sendings:
                try:
                    self._history.sent(begun, await sending)
                except Exception as error:
                    self._history.not_sent(begun, error)
            await asyncio.sleep(random.uniform(0.0, 0.15))

    def _send_in_thread(self, name: str) -> None:
        """One by one, each on this thread."""
        random = Random(f"{self._seed} {name}")
        while not self._stop_sending.wait(random.uniform(0.0, 0.05)):
            begun, how = self._next(random)
            try:
                self._history.sent(begun, self._threaded.send(begun.topic, begun.body, **how))
            except Exception as error:
                self._history.not_sent(begun, error)

    def _send_soon_in_thread(self, name: str) -> None:
        """Some behind this thread, then all their results."""
        random = Random(f"{self._seed} {name}")
        while not self._stop_sending.wait(random.uniform(0.0, 0.1)):
            sendings = []
            for _ in range(random.randint(1, 5)):
                begun, how = self._next(random)
                sendings.append((begun, self._threaded.send_soon(begun.topic, begun.body, **how)))
            for begun, sending in sendings:
                try:
                    self._history.sent(begun, sending.result())
                except Exception as error:
                    self._history.not_sent(begun, error)

    # Consuming

    def _declare(self) -> None:
        for topic in CONSUMED:
            random = Random(f"{self._seed} handle {topic}")

            @self._working.consumer(
                topic,
                concurrency=8,
                lease=timedelta(milliseconds=LEASE_MS),
                wait=timedelta(milliseconds=WAIT_MS),
            )
            async def handle(message: LeasedMessage, random: Random = random) -> None:
                self._take(message, "tasks")
                await asyncio.sleep(random.uniform(0.0, 0.01))
                if random.random() < RETRY_SHARE:
                    raise Retry(delay=timedelta(milliseconds=random.choice((0, 100))))

            @self._working_threads.consumer(
                topic,
                concurrency=2,
                lease=timedelta(milliseconds=LEASE_MS),
                wait=timedelta(milliseconds=WAIT_MS),
            )
            def handle_in_thread(message: LeasedMessage, random: Random = random) -> None:
                self._take(message, "threads")
                time.sleep(random.uniform(0.0, 0.01))
                if random.random() < RETRY_SHARE:
                    raise Retry

    async def _receive(self) -> None:
        """Receives and acks by hand: what it is told of an ack is recorded."""
        client = self._asking
        while not self._stop_receiving:
            t0 = now_ms()
            try:
                messages = await client.receive(
                    WORKED,
                    max=20,
                    wait=timedelta(milliseconds=WAIT_MS),
                    lease=timedelta(milliseconds=LEASE_MS),
                )
            except ClientError as error:
                if not isinstance(error, NotReached):
                    self._history.receive_lost(t0, LEASE_MS)
                await asyncio.sleep(0.05)
                continue
            for message in messages:
                self._take(message, "by hand")
            if messages:
                await self._ack(messages)

    async def _ack(self, messages: Sequence[LeasedMessage]) -> None:
        t0 = now_ms()
        results: Sequence[Any]
        try:
            results = await self._asking.ack(messages)
        except SettleFailed as failed:
            results = failed.results
        except ClientError as error:
            results = [error] * len(messages)
        self._history.settled("ack", messages, t0, results)

    def _take(self, message: LeasedMessage, how: str) -> None:
        with self._lock:
            self.handled[how] += 1
        self._history.delivered(message, LEASE_MS)
