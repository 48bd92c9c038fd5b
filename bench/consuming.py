"""Consumers of the section `everyday`: each takes a message or a few, then settles them, and again.

Over HTTP in JSON, and over RESP. The one rule: a script counts what it received and what was
answered as settled, and `messages()` raises unless these agree and no message came twice, so a
figure never stands for messages that were lost on the way.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from load import Buffer, LoadError, Script, expect_ok
from settings import BODY_BYTES
from wire import json_request

RECEIPT: Final = re.compile(rb'"receipt":"([0-9a-f]{32})"')
# A receipt ends with the message's ref.
REF_AT: Final = 16
LEASE_MS: Final = 60_000
# Of a stamped body in an answer: a time in us.
STAMP: Final = re.compile(rb'"body":"(\d{16})')


class Settle(NamedTuple):
    """A call that settles receipts, and whether its answer brings the next messages."""

    call: str
    takes: bool


ACK: Final = Settle("ack", takes=False)


class Way(NamedTuple):
    """How a fleet consumes, and what it is to reach."""

    settle: Settle
    # Messages a second of fifty consumers that take one at a time.
    ready_per_s: float
    # Processor time a message at 1,000 messages a second.
    open_us: float


# A way to settle that the API gains is one more line here.
PLAIN: Final = "receive, ack"
WAYS: Final = {
    PLAIN: Way(ACK, 10_000, 400.0),
    "ack_and_receive": Way(Settle("ack_and_receive", takes=True), 15_000, 300.0),
}


class StampedScript(Script, Protocol):
    """Consumers of stamped bodies."""

    settled: int
    # (time.time() of an answer, the stamps in it).
    stamped: list[tuple[float, list[bytes]]]

    def messages(self) -> int:
        """Messages that are settled. Raises LoadError if others were received."""


def stamped_body(stamp_us: int) -> bytes:
    """A body that begins with a time."""
    return (b"%d" % stamp_us).ljust(BODY_BYTES, b"x")


@dataclass(frozen=True, slots=True)
class Taking:
    """What a consumer asks for: lane i takes from topic i modulo their number."""

    topics: Sequence[str]
    rows_max: int = 1
    wait_ms: int = 1_000
    settle: Settle = ACK

    def request(self, lane: int) -> bytes:
        """A receive."""
        return json_request(self._path(lane, "receive"), json.dumps(self._members()).encode())

    def settling(self, lane: int, receipts: Sequence[bytes], *, last: bool) -> bytes:
        """The call that settles; `last` = nothing is to be taken after it."""
        settle = ACK if last else self.settle
        members: dict[str, Any] = {"receipts": [receipt.decode() for receipt in receipts]}
        if settle.takes:
            members |= self._members()
        return json_request(self._path(lane, settle.call), json.dumps(members).encode())

    def _members(self) -> dict[str, int]:
        return {"max": self.rows_max, "wait_ms": self.wait_ms, "lease_ms": LEASE_MS}

    def _path(self, lane: int, call: str) -> str:
        return f"/v1/topics/{self.topics[lane % len(self.topics)]}/{call}"


@dataclass(slots=True)
class Taken:
    """What is known of a lane's messages between two requests."""

    receipts: Sequence[bytes] = ()
    # When the request left that brought them, and when the one under way did.
    asked_at: float = 0.0
    sent_at: float = 0.0
    # Messages that the request under way settles.
    settling: int = 0


class JsonConsumer:
    """Receives and settles on every lane until a time of `time.perf_counter()`.

    A latency is that of a cycle: from the request that brings messages to the answer that says
    they are settled. With a `stamp`, what that finds in each answer is kept with its time.
    """

    def __init__(
        self,
        taking: Taking,
        lanes: int,
        until: float,
        *,
        stamp: re.Pattern[bytes] | None = None,
    ) -> None:
        self._taking = taking
        self._until = until
        self._stamp = stamp
        self._lanes = [Taken() for _ in range(lanes)]
        self._receives = [taking.request(lane) for lane in range(lanes)]
        self._receipts: list[bytes] = []
        self.settled = 0
        self.latencies_s: list[float] = []
        self.stamped: list[tuple[float, list[bytes]]] = []

    def request(self, lane: int) -> Sequence[Buffer] | None:
        taken = self._lanes[lane]
        taken.sent_at = time.perf_counter()
        over = taken.sent_at >= self._until
        if taken.receipts:
            taken.settling = len(taken.receipts)
            return (self._taking.settling(lane, taken.receipts, last=over),)
        return None if over else (self._receives[lane],)

    def answer(self, lane: int, status: int, body: memoryview) -> None:
        at = time.time()
        expect_ok(status, body)
        text = bytes(body)
        taken = self._lanes[lane]
        if taken.settling:
            if text.count(b'"done"') != taken.settling:
                raise LoadError(f"settled {taken.settling} messages, the answer is {text[:300]!r}")
            self.settled += taken.settling
            taken.settling = 0
            self.latencies_s.append(time.perf_counter() - taken.asked_at)
        # An ack's answer has none, that of a call that also takes may have some.
        taken.receipts = RECEIPT.findall(text)
        taken.asked_at = taken.sent_at
        self._receipts += taken.receipts
        if self._stamp and taken.receipts:
            self.stamped.append((at, self._stamp.findall(text)))

    def messages(self) -> int:
        """Messages that were received once and settled. Raises LoadError if there are others."""
        agree(len(self._receipts), self.settled, {each[REF_AT:] for each in self._receipts})
        return self.settled


class Cycle(JsonConsumer):
    """Each lane sends a message due now, receives one and acks it: three requests a cycle."""

    def __init__(self, taking: Taking, send: bytes, lanes: int, until: float) -> None:
        super().__init__(taking, lanes, until)
        self._send = send
        self._sent = [False] * lanes
        self._began = [0.0] * lanes

    def request(self, lane: int) -> Sequence[Buffer] | None:
        taken = self._lanes[lane]
        if taken.receipts:
            return super().request(lane)
        if self._sent[lane]:
            # What was sent is taken, also if the time is over by now.
            self._sent[lane] = False
            taken.sent_at = self._began[lane]
            return (self._receives[lane],)
        self._began[lane] = time.perf_counter()
        self._sent[lane] = self._began[lane] < self._until
        return (self._send,) if self._sent[lane] else None

    def answer(self, lane: int, status: int, body: memoryview) -> None:
        if self._sent[lane]:
            expect_ok(status, body)
        else:
            super().answer(lane, status, body)


class RespVerbs(NamedTuple):
    """How one message is taken and settled over RESP."""

    take: bytes
    # Of the reply to that: what names the message, and the request that settles it; None: nothing
    # came. The reply to the settling is 1.
    settling: Callable[[Any], tuple[bytes, bytes] | None]


class RespConsumer:
    """Takes and settles one message on every lane until a time of `time.perf_counter()`."""

    def __init__(self, verbs: RespVerbs, lanes: int, until: float) -> None:
        self._verbs = verbs
        self._until = until
        self._settling: list[bytes | None] = [None] * lanes
        self._asked_at = [0.0] * lanes
        self._names: list[bytes] = []
        self.latencies_s: list[float] = []

    def request(self, lane: int) -> Sequence[Buffer] | None:
        settling = self._settling[lane]
        if settling is not None:
            return (settling,)
        now = time.perf_counter()
        if now >= self._until:
            return None
        self._asked_at[lane] = now
        return (self._verbs.take,)

    def answer(self, lane: int, status: int, body: Any) -> None:  # noqa: ARG002 (a Script)
        if self._settling[lane] is not None:
            if body != 1:
                raise LoadError(f"settled one message, the answer is {body!r}")
            self._settling[lane] = None
            self.latencies_s.append(time.perf_counter() - self._asked_at[lane])
            return
        taken = self._verbs.settling(body)
        if taken is None:
            raise LoadError("nothing was ready: the fill was too small")
        name, self._settling[lane] = taken
        self._names.append(name)

    def messages(self) -> int:
        """Messages that were received once and settled. Raises LoadError if there are others."""
        agree(len(self._names), len(self.latencies_s), set(self._names))
        return len(self._names)


def agree(received: int, settled: int, different: set[bytes]) -> None:
    """Raise LoadError unless every message was received once and settled."""
    if not received == settled == len(different):
        raise LoadError(
            f"{received} messages came, {len(different)} of them different, {settled} were settled"
        )
