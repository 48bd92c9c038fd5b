"""Calls that write themselves down: one broker call each, and its line in the history.

The one rule: what is recorded is what the client can know. An answered call is `ok`, a refused one
`false`, and where the answer was lost `null`, with a due time only if the lost call cannot have
meant another one. A call that never reached the broker leaves no line. Failures end here: every
method returns None for them, so that a load goes on over any number of kills.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from delaylog.broker.history import HistoryRecorder, body_hash
from delaylog.client import AnswerLost, ApiError, AsyncPlainClient, ClientError, NotReached
from delaylog.client.wire.bulk import DONE, REJECTED, ref_to_id
from delaylog.client.wire.exchange import MOVED

RESULTS = ("created", "kept", "replaced", "rejected")
T = TypeVar("T")
EXPECTED_CODES = frozenset({"too_late", "unknown", "not_ready"})


def now_ms() -> int:
    """The wall clock in whole milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Known:
    """A message that a send was answered for, or that may exist under an id of ours."""

    topic: str
    id: str


@dataclass(frozen=True, slots=True)
class Leased:
    """A message in hand."""

    topic: str
    id: str
    receipt: str


@dataclass(slots=True)
class Pending:
    """An idempotent send: its first try's begin, and what to repeat until it is answered."""

    topic: str
    due_ms: int
    bodies: list[bytes]
    token: str
    sequence: int | None
    t0: int = 0


@dataclass(slots=True)
class RecordedCalls:
    """One client of one broker run; `surprises` are answers that the contract does not allow."""

    client: AsyncPlainClient
    recorder: HistoryRecorder
    surprises: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    expected: frozenset[str] = EXPECTED_CODES
    """Codes of refusals that are no surprise."""
    unclear: frozenset[str] = frozenset()
    """Codes after which a call may have been carried out: a leader that loses its leadership during
    a call answers `not_ready`."""

    async def send(
        self, topic: str, body: bytes, due_ms: int, own_id: str | None, key: str | None = None
    ) -> Known | None:
        """A plain send. Under an id of ours it may exist even if the answer was lost."""
        t0 = now_ms()
        members = {name: text for name, text in (("id", own_id), ("key", key)) if text}
        body_text = body_hash(body)
        try:
            sent = await self.client.send(topic, body, deliver_at_ms=due_ms, **members)
        except ClientError as error:
            ok = self._failed("send", error)
            if ok is not False:
                due = self._certain(due_ms)
                self.recorder.call(
                    "send", t0, now_ms(), ok, id=own_id, due=due, body=body_text, key=key
                )
            return Known(topic, own_id) if own_id and ok is None else None
        self.recorder.call(
            "send",
            t0,
            now_ms(),
            True,
            id=sent.id,
            due=sent.deliver_at_ms,
            body=body_text,
            result=sent.result,
            key=key,
        )
        return Known(topic, sent.id)

    async def send_bulk(
        self, topic: str, bodies: list[bytes], dues_ms: list[int], ids: list[str] | None
    ) -> list[Known]:
        """A plain bulk send; without ids of ours a lost one leaves only its bodies."""
        t0 = now_ms()
        hashes = list(map(body_hash, bodies))
        try:
            answer = await self.client.send_bulk(topic, bodies, deliver_at_ms=dues_ms, ids=ids)
        except ClientError as error:
            if self._failed("send", error) is False:
                return []
            t1 = now_ms()
            for row, body in enumerate(hashes):
                own_id = ids[row] if ids else None
                due = self._certain(dues_ms[row])
                self.recorder.call("send", t0, t1, None, id=own_id, due=due, body=body)
            return [Known(topic, own_id) for own_id in ids or []]
        refs, results = answer.refs.tolist(), answer.result.tolist()
        named = [
            own or ref_to_id(ref) for own, ref in zip(ids or [""] * len(refs), refs, strict=True)
        ]
        self.recorder.call(
            "send",
            t0,
            now_ms(),
            None,
            ids=named,
            dues=answer.deliver_at_ms.tolist(),
            bodies=hashes,
            results=[None if r == REJECTED else RESULTS[r] for r in results],
            oks=[r != REJECTED for r in results],
        )
        return [Known(topic, name) for name in named]

    async def send_once(self, pending: Pending) -> list[Known] | None:
        """An idempotent send; None = no answer yet, so try the same again later.

        All tries are one call of the history: it adds its messages once or the checker objects to
        messages that no answer named.
        """
        pending.t0 = pending.t0 or now_ms()
        try:
            if pending.sequence is None:
                sent = await self.client.send(
                    pending.topic,
                    pending.bodies[0],
                    deliver_at_ms=pending.due_ms,
                    idempotency_key=pending.token,
                )
                ids, dues_ms = [sent.id], [sent.deliver_at_ms]
            else:
                answer = await self.client.send_bulk(
                    pending.topic,
                    pending.bodies,
                    deliver_at_ms=pending.due_ms,
                    producer=pending.token,
                    sequence=pending.sequence,
                )
                ids = [ref_to_id(ref) for ref in answer.refs.tolist()]
                dues_ms = answer.deliver_at_ms.tolist()
        except ClientError as error:
            self._failed("send", error)
            return None
        bodies = list(map(body_hash, pending.bodies))
        self.recorder.call(
            "send",
            pending.t0,
            now_ms(),
            True,
            ids=ids,
            dues=dues_ms,
            bodies=bodies,
            result="created",
        )
        return [Known(pending.topic, name) for name in ids]

    async def receive(self, topic: str, most: int, wait_ms: int, lease_ms: int) -> list[Leased]:
        """A receive in JSON, one message or many."""
        t0 = now_ms()
        try:
            got = await self.client.receive(
                topic,
                max=most,
                wait=timedelta(milliseconds=wait_ms),
                lease=timedelta(milliseconds=lease_ms),
            )
        except ClientError as error:
            if self._failed("receive", error) is None:
                self.recorder.call("deliver", t0, now_ms(), None, lease_ms=lease_ms)
            return []
        if got.messages:
            self.recorder.call(
                "deliver",
                t0,
                now_ms(),
                True,
                ids=[message.id for message in got.messages],
                dues=[message.deliver_at_ms for message in got.messages],
                attempts=[message.attempts for message in got.messages],
                bodies=[body_hash(message.body) for message in got.messages],
                leases=[message.receipt for message in got.messages],
                now=_granted_ms(got.messages[0].lease_until_ms - lease_ms, got.now_ms),
                lease_ms=lease_ms,
                lease_until=got.messages[0].lease_until_ms,
            )
        return [Leased(topic, message.id, message.receipt) for message in got.messages]

    async def receive_bulk(
        self, topic: str, most: int, wait_ms: int, lease_ms: int, *, group: str | None = None
    ) -> tuple[int, list[Leased]]:
        """A receive in columns: the lease and what is under it."""
        t0 = now_ms()
        try:
            batch = await self.client.receive_bulk(
                topic,
                max=most,
                wait=timedelta(milliseconds=wait_ms),
                lease=timedelta(milliseconds=lease_ms),
                group=group,
            )
        except ClientError as error:
            if self._failed("receive", error) is None:
                self.recorder.call("deliver", t0, now_ms(), None, lease_ms=lease_ms, group=group)
            return 0, []
        receipts = [f"{batch.lease:016x}{ref % 2**64:016x}" for ref in batch.refs.tolist()]
        if batch.n:
            self.recorder.call(
                "deliver",
                t0,
                now_ms(),
                True,
                ids=batch.ids,
                dues=batch.deliver_at_ms.tolist(),
                attempts=batch.attempts.tolist(),
                bodies=list(map(body_hash, batch.bodies())),
                leases=receipts,
                now=_granted_ms(batch.lease_until_ms - lease_ms, batch.now_ms),
                lease_ms=lease_ms,
                lease_until=batch.lease_until_ms,
                group=group,
            )
        pairs = zip(batch.ids, receipts, strict=True)
        return batch.lease, [Leased(topic, name, receipt) for name, receipt in pairs]

    async def settle(
        self,
        verb: str,
        leased: Sequence[Leased],
        *,
        delay_ms: int | None = None,
        lease_ms: int | None = None,
    ) -> None:
        """ack, nack or extend by receipt."""
        if not leased:
            return
        topic = leased[0].topic
        receipts = [each.receipt for each in leased]
        t0 = now_ms()
        oks: list[bool | None]
        try:
            if verb == "ack":
                results = await self.client.ack(topic, receipts)
            elif verb == "nack":
                delay = None if delay_ms is None else timedelta(milliseconds=delay_ms)
                results = await self.client.nack(topic, receipts, delay=delay)
            else:
                results = await self.client.extend(
                    topic, receipts, lease=timedelta(milliseconds=lease_ms or 0)
                )
            oks = [result == "done" for result in results]
        except ClientError as error:
            oks = [self._failed(verb, error)] * len(leased)
        self.recorder.call(
            verb,
            t0,
            now_ms(),
            None,
            ids=[each.id for each in leased],
            leases=receipts,
            oks=oks,
            # A nacked message may not come again sooner than this.
            due=None if delay_ms is None else t0 + delay_ms,
            lease_ms=lease_ms,
        )

    async def ack_lease(self, lease: int, leased: Sequence[Leased]) -> None:
        """Ack all of a bulk lease."""
        if not leased:
            return
        t0 = now_ms()
        oks: list[bool | None]
        try:
            answer = await self.client.settle_bulk(leased[0].topic, "ack", lease)
            refused = {*answer.gone.tolist(), *answer.unknown.tolist()}
            refused = {f"{lease:016x}{ref % 2**64:016x}" for ref in refused}
            oks = [each.receipt not in refused for each in leased]
        except ClientError as error:
            oks = [self._failed("ack", error)] * len(leased)
        receipts = [each.receipt for each in leased]
        ids = [each.id for each in leased]
        self.recorder.call("ack", t0, now_ms(), None, ids=ids, leases=receipts, oks=oks)

    async def cancel(self, known: Known) -> bool | None:
        """True = cancelled, False = refused, None = nobody knows."""
        t0 = now_ms()
        ok: bool | None = True
        try:
            await self.client.cancel(known.topic, known.id)
        except ClientError as error:
            ok = self._failed("cancel", error)
        self.recorder.call("cancel", t0, now_ms(), ok, id=known.id)
        return ok

    async def reschedule(self, known: Known, due_ms: int) -> bool | None:
        """True = moved, False = refused, None = nobody knows."""
        t0 = now_ms()
        ok: bool | None = True
        due: int | None
        try:
            due = (await self.client.reschedule(known.topic, known.id, deliver_at_ms=due_ms))[
                "deliver_at_ms"
            ]
        except ClientError as error:
            ok = self._failed("reschedule", error)
            due = self._certain(due_ms)
        self.recorder.call("reschedule", t0, now_ms(), ok, id=known.id, due=due)
        return ok

    async def change_bulk(
        self, topic: str, ids: list[str], due_ms: int | None
    ) -> list[bool] | None:
        """Cancel many, or with a time reschedule many; None = nobody knows."""
        t0 = now_ms()
        op = "cancel" if due_ms is None else "reschedule"
        oks: list[bool] | None = None
        try:
            if due_ms is None:
                answer = await self.client.change_bulk(topic, "cancel", ids=ids)
            else:
                answer = await self.client.change_bulk(
                    topic, "reschedule", ids=ids, deliver_at_ms=due_ms
                )
            oks = [result == DONE for result in answer.result.tolist()]
        except ClientError as error:
            if self._failed(op, error) is False:
                return [False] * len(ids)
        due = None if due_ms is None else self._certain(due_ms)
        if oks is None:
            self.recorder.call(op, t0, now_ms(), None, ids=ids, due=due)
        else:
            self.recorder.call(op, t0, now_ms(), None, ids=ids, due=due, oks=oks)
        return oks

    async def outcome(self, op: str, call: Awaitable[T]) -> tuple[T | None, bool | None]:
        """(the answer, True), (None, False) if it was refused, or (None, None) if nobody knows."""
        try:
            return await call, True
        except ClientError as error:
            return None, self._failed(op, error)

    def _failed(self, op: str, error: ClientError) -> bool | None:
        """False = certainly not done, None = unknown."""
        if isinstance(error, NotReached):
            self.counts[f"{op} not reached"] += 1
            return False
        if isinstance(error, ApiError):
            self.counts[f"{op} {error.code}"] += 1
            # Between two leaders nodes redirect to each other, and none does anything.
            if error.code not in self.expected and error.status != MOVED:
                self.surprises.append(f"{op}: {error}")
            return None if error.code in self.unclear else False
        assert isinstance(error, AnswerLost)
        self.counts[f"{op} answer lost"] += 1
        return None

    @staticmethod
    def _certain(due_ms: int) -> int | None:
        """The due time that no answer told: as asked for, unless it has passed, since the broker
        may then have put its own now in its place."""
        return due_ms if due_ms > now_ms() else None


def _granted_ms(lease_began_ms: int, answered_ms: int | None) -> int:
    """The broker's clock when it handed the messages out: the earlier, so the stricter, of two."""
    return lease_began_ms if answered_ms is None else min(lease_began_ms, answered_ms)
