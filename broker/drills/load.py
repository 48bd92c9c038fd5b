"""The load of a drill: senders and consumers that go on through every fault and record every call.

A sender repeats each batch, with its producer and sequence, until it is answered: the batch is
stored once. A consumer receives, acknowledges most messages, nacks some and forgets a few. Each
call becomes a line of the history, with the outcome that the client knows.

A `Route` follows the leader. Each call is one attempt at the node believed to lead. A 307 names the
leader. After a failed or timed-out attempt the next one goes to the next node. An attempt was
answered, was certainly not carried out (`NotDone`), or has an unknown outcome (`Unclear`). The
caller decides what to repeat.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import aiohttp

from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.timeline import Deliveries, Served, Timeline, wall_ms
from delaylog.broker.history import HistoryRecorder, body_hash
from delaylog.client.wire.bulk import (
    BULK_TYPE,
    ReceivedBatch,
    decode_received,
    decode_send_answer,
    decode_settled,
    encode_send,
    encode_settle,
    ref_to_id,
)

# ---------------------------------------------------------------------------------- one attempt

ATTEMPT_S: Final = 1.0
"""Timeout of an attempt, added to the wait that the call itself asks for. Careful clients use this
value; a shorter one would hide how long a node that hangs keeps its clients."""
REDIRECT: Final = 307
NOT_READY: Final = 503


class AttemptFailed(Exception):
    """The call was not answered. The route now points to another node."""


class NotDone(AttemptFailed):
    """The call certainly had no effect: no connection, or the node was not the leader."""


class Unclear(AttemptFailed):
    """The call may have been carried out, or may still be."""


class Refused(Exception):
    """The leader refused the call."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and the node that gave it."""

    node: int
    body: bytes


class Route:
    """The node believed to lead, shared by all calls of a drill."""

    def __init__(self, urls: Mapping[int, str], tls: ssl.SSLContext | None = None) -> None:
        self._urls = dict(urls)
        self._tls = tls
        self._order = sorted(urls)
        self._at = self._order[0]
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Route:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        self._session = aiohttp.ClientSession(connector=connector)
        # aiohttp would repeat some calls by itself; only the load may repeat a call.
        self._session._retry_connection = False
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        wait_s: float = 0.0,
        method: str = "POST",
    ) -> Answered:
        """Make one attempt. Raises AttemptFailed and Refused."""
        assert self._session is not None
        node = self._at
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_S + wait_s)
        url = self._urls[node] + path
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                status = answer.status
                location = answer.headers.get("Location", "")
                read = await answer.read()
        except aiohttp.ClientConnectorError as error:
            self._leave(node)
            raise NotDone(str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._leave(node)
            raise Unclear(str(error) or type(error).__name__) from None
        if status == REDIRECT:
            self._go_to(location, node)
            raise NotDone(f"the leader is at {location}")
        if status == NOT_READY:
            # A leader that loses its leadership during a call answers this too.
            self._leave(node)
            raise Unclear(read[:200].decode(errors="replace"))
        if status >= 300:
            raise Refused(f"{method} {path}: {status} {read[:300].decode(errors='replace')}")
        return Answered(node, read)

    def _leave(self, node: int) -> None:
        """Move on to the next node, unless another call has changed the route already."""
        if self._at == node:
            self._at = self._order[(self._order.index(node) + 1) % len(self._order)]

    def _go_to(self, location: str, asked: int) -> None:
        """Follow a redirect, if it names another known member; otherwise try the next node."""
        for node, url in self._urls.items():
            if location.startswith(url + "/") and node != asked:
                if self._at == asked:
                    self._at = node
                return
        self._leave(asked)


# ------------------------------------------------------------------------------------- the load

TOPIC: Final = "drill"
PLACE: Final = f"/v1/topics/{TOPIC}"
_BULK: Final = {"Content-Type": BULK_TYPE, "Accept": BULK_TYPE}
_JSON_BULK: Final = {"Content-Type": "application/json", "Accept": BULK_TYPE}
SENDERS: Final = 3
CONSUMERS: Final = 3
BATCH: Final = 4
SEND_EVERY_S: Final = 0.012
"""Some 800 messages a second in all: every 50 ms some are delivered, and two cores can run three
nodes."""
AHEAD_MS: Final = (0, 600)
BODY_BYTES: Final = 100
LEASE_MS: Final = 2_500
RECEIVE_MAX: Final = 50
WAIT_MS: Final = 200
CONSUMER_SHAPE: Final = {"max": RECEIVE_MAX, "wait_ms": WAIT_MS, "lease_ms": LEASE_MS}
RETRY_S: Final = 0.01
RETRIES_MAX: Final = 60_000
"""A fault may cost a message an attempt; no message may become dead by that."""
NACK_SHARE: Final = 0.04
FORGET_SHARE: Final = 0.02
DRAIN_S: Final = 60.0


class Load:
    """All clients of a drill."""

    def __init__(self, route: Route, recorder: HistoryRecorder, seed: int) -> None:
        self.timeline = Timeline()
        self.deliveries = Deliveries()
        self.counts: Counter[str] = Counter()
        self.sent = 0
        self._route = route
        self._recorder = recorder
        self._seed = seed
        self._made = 0
        self._sending: list[asyncio.Task[None]] = []
        self._consuming: list[asyncio.Task[None]] = []
        self._stop_sending = False
        self._stop_consuming = False

    # ------------------------------------------------------------------ life

    async def begin(self) -> None:
        """Create the topic and start the clients, which run until `drain`."""
        settings = json.dumps({"max_retry": RETRIES_MAX}).encode()
        await self.insist(PLACE, settings, {"Content-Type": "application/json"}, method="PUT")
        loop = asyncio.get_running_loop()
        self._sending = [loop.create_task(self._send(n)) for n in range(SENDERS)]
        self._consuming = [loop.create_task(self._consume(n)) for n in range(CONSUMERS)]

    def check(self) -> None:
        """Raise the error of a client that has failed, if any."""
        for task in (*self._sending, *self._consuming):
            if task.done() and (error := task.exception()) is not None:
                raise error

    async def drain(self) -> bool:
        """Stop the senders and consume the rest; return whether every message has ended."""
        self._stop_sending = True
        await asyncio.gather(*self._sending)
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            counts = await self._counts()
            if not any(counts[state] for state in ("waiting", "ready", "leased")):
                break
            await asyncio.sleep(0.1)
        else:
            return False
        # Late deliveries arrive now, above all a second copy of a message.
        await asyncio.sleep(0.3)
        self._stop_consuming = True
        await asyncio.gather(*self._consuming)
        return True

    async def abandon(self) -> None:
        """Cancel all clients, after a failure."""
        tasks = [*self._sending, *self._consuming]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _counts(self) -> dict[str, int]:
        answer = await self.insist(f"{PLACE}/stats", b"", {}, method="GET")
        counts: dict[str, int] = json.loads(answer.body)["counts"]
        return counts

    async def insist(
        self, path: str, body: bytes, headers: dict[str, str], *, method: str
    ) -> Answered:
        """Repeat an idempotent call until it is answered."""
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            try:
                return await self._route.call(path, body, headers, method=method)
            except AttemptFailed:
                await asyncio.sleep(RETRY_S)
        raise DrillError(f"{method} {path} was not answered within {DRAIN_S:.0f} s")

    # ------------------------------------------------------------------ sending

    async def _send(self, number: int) -> None:
        random = Random(f"{self._seed} send {number}")
        sequence = 0
        while not self._stop_sending:
            sequence += 1
            bodies, dues_ms = [], []
            for _ in range(BATCH):
                self._made += 1
                text = f"{self._seed}-{self._made}-".encode()
                bodies.append(text + random.randbytes(BODY_BYTES // 2).hex().encode())
                dues_ms.append(int(wall_ms()) + random.randint(*AHEAD_MS))
            await self._send_until_answered(f"sender-{number}", sequence, bodies, dues_ms)
            await asyncio.sleep(SEND_EVERY_S)

    async def _send_until_answered(
        self, producer: str, sequence: int, bodies: list[bytes], dues_ms: list[int]
    ) -> None:
        wire = encode_send(bodies, deliver_at_ms=dues_ms, producer=producer, sequence=sequence)
        t0 = int(wall_ms())
        while True:
            began_ms = wall_ms()
            try:
                answered = await self._route.call(f"{PLACE}/messages", wire, _BULK)
                break
            except AttemptFailed as failed:
                self._note("send", failed)
                await asyncio.sleep(RETRY_S)
            except asyncio.CancelledError:
                for body, due_ms in zip(bodies, dues_ms, strict=True):
                    hashed, t1 = body_hash(body), int(wall_ms())
                    self._recorder.call("send", t0, t1, None, due=due_ms, body=hashed)
                raise
        ended_ms = wall_ms()
        self.timeline.sent(Served(began_ms, ended_ms, answered.node))
        answer = decode_send_answer(answered.body)
        self.sent += len(bodies)
        # All attempts are recorded as one call. If one of them added the messages again, the
        # checker would find messages that no answer named.
        self._recorder.call(
            "send",
            t0,
            int(ended_ms),
            True,
            ids=[ref_to_id(ref) for ref in answer.refs.tolist()],
            dues=answer.deliver_at_ms.tolist(),
            bodies=list(map(body_hash, bodies)),
            result="created",
            node=answered.node,
        )

    # ------------------------------------------------------------------ consuming

    async def _consume(self, number: int) -> None:
        random = Random(f"{self._seed} consume {number}")
        wanted = json.dumps(CONSUMER_SHAPE).encode()
        while not self._stop_consuming:
            began_ms = wall_ms()
            try:
                answered = await self._route.call(
                    f"{PLACE}/receive", wanted, _JSON_BULK, wait_s=WAIT_MS / 1000
                )
            except AttemptFailed as failed:
                self._note("receive", failed)
                if not isinstance(failed, NotDone):
                    t0 = int(began_ms)
                    self._recorder.call("deliver", t0, int(wall_ms()), None, lease_ms=LEASE_MS)
                await asyncio.sleep(RETRY_S)
                continue
            batch = decode_received(answered.body)
            if batch.n:
                self._take(batch, Served(began_ms, wall_ms(), answered.node))
                await self._settle(batch, random)

    def _take(self, batch: ReceivedBatch, served: Served) -> None:
        # The broker's time of the delivery; of two values the earlier one, which is stricter.
        granted_ms = batch.lease_until_ms - LEASE_MS
        now_ms = granted_ms if batch.now_ms is None else min(granted_ms, batch.now_ms)
        dues_ms = batch.deliver_at_ms.tolist()
        self.timeline.delivered(served)
        self.deliveries.take(
            served.node, batch.ids, dues_ms, now_ms=now_ms, until_ms=batch.lease_until_ms
        )
        self._recorder.call(
            "deliver",
            int(served.began_ms),
            int(served.ended_ms),
            True,
            ids=batch.ids,
            dues=dues_ms,
            attempts=batch.attempts.tolist(),
            bodies=list(map(body_hash, batch.bodies())),
            leases=[_receipt(batch, ref) for ref in batch.refs.tolist()],
            now=now_ms,
            lease_ms=LEASE_MS,
            lease_until=batch.lease_until_ms,
            node=served.node,
        )

    async def _settle(self, batch: ReceivedBatch, random: Random) -> None:
        """Acknowledge most messages, nack some, and forget a few, whose leases expire."""
        draining = self._stop_sending
        acked, nacked = [], []
        for row in range(batch.n):
            kind = 1.0 if draining else random.random()
            if kind < NACK_SHARE:
                nacked.append(row)
            elif kind >= NACK_SHARE + FORGET_SHARE:
                acked.append(row)
        await self._settle_some("ack", batch, acked)
        await self._settle_some("nack", batch, nacked)

    async def _settle_some(self, verb: str, batch: ReceivedBatch, rows: list[int]) -> None:
        if not rows:
            return
        refs = [int(batch.refs[row]) for row in rows]
        ids = [batch.ids[row] for row in rows]
        wire = encode_settle(batch.lease, refs, delay_ms=0 if verb == "nack" else None)
        t0 = int(wall_ms())
        oks: list[bool | None] = [None] * len(refs)
        if verb == "nack":
            self.deliveries.give_back(ids)
        try:
            answered = await self._route.call(f"{PLACE}/{verb}", wire, _BULK)
            answer = decode_settled(answered.body)
            refused = {*answer.gone.tolist(), *answer.unknown.tolist()}
            oks = [ref not in refused for ref in refs]
        except AttemptFailed as failed:
            self._note(verb, failed)
            if isinstance(failed, NotDone):
                oks = [False] * len(refs)
        finally:
            # If the drill is cancelled here, the call is recorded with an unknown outcome.
            leases = [_receipt(batch, ref) for ref in refs]
            self._recorder.call(verb, t0, int(wall_ms()), None, ids=ids, leases=leases, oks=oks)

    def _note(self, op: str, failed: AttemptFailed | Refused) -> None:
        self.counts[f"{op} {'not done' if isinstance(failed, NotDone) else 'unclear'}"] += 1


def _receipt(batch: ReceivedBatch, ref: int) -> str:
    return f"{batch.lease:016x}{ref % 2**64:016x}"
