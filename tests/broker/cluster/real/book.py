"""What clients were told, and the judge over it.

Times are of the loop, in seconds. An operation counts from when its answer came; before that, or
when none came, it may have happened or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

REPEAT_SECONDS = 0.050
SLACK_SECONDS = 0.008
"""Between a look at the gate and the note here, and for milliseconds that are rounded."""


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Delivery:
    at: float
    life: int
    lease: int
    until_ms: int
    origin: int

    @property
    def epoch(self) -> int:
        return self.lease >> 40


@dataclass
class Message:
    body: bytes
    id: str
    due_ms: set[int] = field(default_factory=set)
    """One of these is its time."""
    origin: int = 0
    sent: bool = False
    """The send was answered."""
    ended: float | None = None
    """When the answer came that it is acked or cancelled."""
    how: str = ""
    touched: set[int] = field(default_factory=set)
    """Leases that somebody tried to end, and epochs (negative) in which the message was moved."""
    maybe_ended: bool = False
    deliveries: list[Delivery] = field(default_factory=list)


class Book:
    """Every message, by its body, which is unique."""

    def __init__(self) -> None:
        self.messages: dict[bytes, Message] = {}
        self.last_handed: dict[int, float] = {}
        """By epoch: when something was handed out last."""
        self.lost: dict[int, tuple[float, bytes]] = {}
        """By epoch: the first delivery whose lease the next leader did not know."""
        self.crashes: list[tuple[float, int]] = []
        self.repeats = 0
        self.count = 0
        self.excused = 0

    def delivered(
        self, body: bytes, one: Delivery, *, now_ms: int, due_ms: int, wall_ms: int
    ) -> None:
        """A message came out of a receive, decided at `one.at`."""
        self.count += 1
        message = self.messages.get(body)
        if message is None:
            raise Violation(f"{body!r} comes from nowhere")
        if due_ms > now_ms:
            raise Violation(f"{body!r} is early by {due_ms - now_ms} ms")
        if message.due_ms and min(message.due_ms) > wall_ms + 2:
            raise Violation(f"{body!r} is {min(message.due_ms) - wall_ms} ms before its time")
        if message.origin and message.origin != one.origin:
            raise Violation(f"{body!r} is there twice: {message.origin:#x}, {one.origin:#x}")
        if message.sent and not message.origin:
            raise Violation(f"{body!r} has no origin")
        if message.ended is not None and message.ended < one.at:
            raise Violation(
                f"{body!r} was {message.how} {one.at - message.ended:.3f} s before it is delivered"
                f" again: {message.deliveries} {one}"
            )
        message.origin = one.origin
        for old in message.deliveries:
            if old.lease in message.touched or one.at < old.at:
                continue
            if now_ms >= old.until_ms:
                continue
            if old.epoch == one.epoch:
                raise Violation(f"{body!r} under lease is handed out again: {old} {one}")
            self.repeats += 1
            if any(old.at <= at <= old.at + 0.3 and node != old.life for at, node in self.crashes):
                # A follower was killed with frames that it had only in memory.
                self.excused += 1
                continue
            first = self.lost.setdefault(old.epoch, (old.at, body))
            if old.at < first[0]:
                self.lost[old.epoch] = (old.at, body)
        message.deliveries.append(one)
        self.last_handed[one.epoch] = max(self.last_handed.get(one.epoch, 0.0), one.at)

    def check_repeats(self) -> None:
        """What the next leader did not know of was handed out in the last moment."""
        for epoch, (at, body) in self.lost.items():
            span = self.last_handed[epoch] - at
            if span > REPEAT_SECONDS + SLACK_SECONDS:
                raise Violation(
                    f"{body!r} was handed out twice, {span * 1000:.0f} ms before the end of epoch "
                    f"{epoch}: {self.messages[body].deliveries}"
                )
