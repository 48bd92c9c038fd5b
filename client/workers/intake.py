"""The messages that a consumer fetches ahead: how many, and when their attempts begin.

Messages that wait in this process are not available to other processes. So the window is the amount
that the handlers process in a quarter of a second, by their recent speed: thousands if a handler
takes microseconds, none if it takes seconds. In the latter case only as many messages are fetched
as can start immediately. At most `prefetch` messages wait.

The broker counts an attempt when a worker says that it begins. If the worker ends before, the
message is delivered again and nothing is counted. Fetched messages whose attempts have not begun
are taken a few at a time, by shard, shortly before their handlers start, and one call a shard
begins their attempts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from delaylog.client.models import Settled
from delaylog.client.workers.leases import Held, HeldState

# ---------------------------------------------------------------------------- how many to fetch

AHEAD_S: Final = 0.25
# Attempts begin this long before their handlers start, so that handlers do not wait for the call.
# If the process crashes, these attempts count although no handler has started.
BEGIN_AHEAD_S: Final = 0.02
# Or this many times the duration of a call, if that is longer.
CALLS_AHEAD: Final = 2
# Weight of the newest call in the average time of a call.
CALL_WEIGHT: Final = 0.25
# Half-life of the average handler time, in messages.
HALF_LIFE: Final = 100
# The broker's limit for one receive.
RECEIVE_MAX: Final = 10_000


class Intake:
    """The windows of one consumer's shards.

    `concurrency` is the number of handlers, `places` the number of messages that they can handle at
    once (a handler of batches takes several), `ports` the number of shards.
    """

    def __init__(self, *, concurrency: int, places: int, prefetch: int, ports: int) -> None:
        self._concurrency = concurrency
        self._places = places
        self._prefetch = prefetch
        self._ports = ports
        self._count = 0
        self._seconds = 0.0
        self._mean_s: float | None = None
        self._call_s = 0.0

    @property
    def mean_s(self) -> float:
        """How long a handler takes per message; 0 while that is unknown."""
        return self._mean_s or 0.0

    def handled(self, count: int, seconds: float) -> None:
        """Record that a handler took `seconds` for `count` messages."""
        self._count += count
        self._seconds += seconds

    def begun(self, seconds: float) -> None:
        """Record that a call that begins attempts took `seconds`."""
        self._call_s += (seconds - self._call_s) * CALL_WEIGHT

    def window(self) -> int:
        """How many messages may wait, over all shards. Updates `mean_s`."""
        if self._count:
            fresh_s = self._seconds / self._count
            weight = 1 - 0.5 ** (self._count / HALF_LIFE)
            known_s = fresh_s if self._mean_s is None else self._mean_s
            self._mean_s = known_s + (fresh_s - known_s) * weight
            self._count, self._seconds = 0, 0.0
        if self._mean_s is None:
            return 0
        if self._mean_s * self._prefetch <= AHEAD_S * self._concurrency:
            return self._prefetch
        return int(AHEAD_S * self._concurrency / self._mean_s)

    def ask(self, *, waiting_here: int, waiting: int, running: int) -> int:
        """How many messages to fetch from one shard; 0: none until handlers start some.

        `waiting_here` of the `waiting` messages came from that shard.
        """
        share = -(-self.window() // self._ports)
        # Refill a window only once half of it is used, so that answers stay large.
        ahead = share - waiting_here if 2 * waiting_here <= share else 0
        return min(RECEIVE_MAX, max(ahead, self.idle(waiting=waiting, running=running)))

    def idle(self, *, waiting: int, running: int) -> int:
        """One shard's part of the handlers that have nothing to do."""
        return -(-max(0, self._places - running - waiting) // self._ports)

    def soon(self, *, running: int) -> int:
        """How many messages may wait for handlers after their attempts have begun."""
        idle = max(0, self._places - running)
        if self._mean_s is None:
            return idle
        ahead_s = min(AHEAD_S, max(BEGIN_AHEAD_S, CALLS_AHEAD * self._call_s))
        if self._mean_s * RECEIVE_MAX <= ahead_s * self._concurrency:
            return max(idle, RECEIVE_MAX)
        return max(idle, int(ahead_s * self._concurrency / self._mean_s))


# -------------------------------------------------------------------------- when attempts begin

WAITING, OVER = HeldState.WAITING, HeldState.OVER


def do_nothing(_: int) -> None:
    """The default callback."""


def split(fresh: list[Held], begun: int | None) -> tuple[Sequence[Held], Sequence[Held]]:
    """The messages of one receive, which began `begun` attempts: those at which, and the others.

    The broker counted its own rows, of which the client may have left out some.
    """
    attempts = fresh[0].message.batch.attempts
    if begun is None or (begun >= len(attempts) and max(attempts) == 1):
        return fresh, ()
    ready: list[Held] = []
    others: list[Held] = []
    for held in fresh:
        message = held.message
        (ready if message.row < begun and message.attempts == 1 else others).append(held)
    return ready, others


class Untried:
    """The messages that wait, and those of the calls in progress that begin attempts."""

    def __init__(self, ports: int) -> None:
        self._waiting: list[deque[Held]] = [deque() for _ in range(ports)]
        self._asked: list[Sequence[Held]] = [() for _ in range(ports)]
        self.free: set[int] = set()
        """Shards that have waiting messages and no call in progress."""

    @property
    def any(self) -> bool:
        """Whether messages wait, or a call begins attempts."""
        return any(self._waiting) or any(self._asked)

    def add(self, port: int, fresh: Iterable[Held]) -> None:
        """Add fetched messages of a shard."""
        self._waiting[port].extend(fresh)
        self._update_free(port)

    def first(self, port: int) -> Held | None:
        """The next message of a shard, or None."""
        waiting = self._waiting[port]
        return waiting[0] if waiting else None

    def pop(self, port: int) -> Held:
        """Remove the next message of a shard."""
        held = self._waiting[port].popleft()
        self._update_free(port)
        return held

    def ask(self, port: int, batch: Sequence[Held]) -> None:
        """Note that a call begins the attempts at these messages."""
        self._asked[port] = batch
        self._update_free(port)

    def answered(self, port: int) -> Sequence[Held]:
        """Return the messages of the call that has ended."""
        batch, self._asked[port] = self._asked[port], ()
        self._update_free(port)
        return batch

    def again(self, port: int) -> None:
        """Let the messages of a failed call wait again, before all others."""
        batch = self.answered(port)
        self._waiting[port].extendleft(reversed(batch))
        self._update_free(port)

    def asked(self) -> list[Held]:
        """The messages whose call is in progress."""
        return [held for batch in self._asked for held in batch]

    def drain(self) -> list[Held]:
        """Remove all messages without a call."""
        drained = [held for waiting in self._waiting for held in waiting]
        for waiting in self._waiting:
            waiting.clear()
        self.free.clear()
        return drained

    def _update_free(self, port: int) -> None:
        if self._waiting[port] and not self._asked[port]:
            self.free.add(port)
        else:
            self.free.discard(port)


class BeginningDesk(ABC):
    """The part of the desk that begins attempts, as a base class."""

    running: int
    unsettled: int
    _intake: Intake
    _ready: deque[Held]
    _waiting: list[int]
    """Messages that no handler has started, by shard."""

    def __init__(self, *, ports: int, places: int) -> None:
        self.on_ready: Callable[[int], None] = do_nothing
        """Called with the number of messages that became ready for a handler."""
        self.on_begin: Callable[[int], None] = do_nothing
        """Called when `to_begin` may return messages of a shard."""
        self._places = places
        self._untried = Untried(ports)
        self._begin_low = 0
        """The number of ready messages at which attempts at further ones begin."""

    @property
    def waiting(self) -> int:
        """The number of messages that no handler has started."""
        return sum(self._waiting)

    def begin_at_once(self, n: int) -> int | None:
        """At how many of `n` messages a receive begins the attempt; None: at all of them.

        Attempts begin at once if their handlers start as soon as those that a call would begin,
        which spares the call; but not at a message that was tried before, see `to_begin`.
        """
        waiting = self.waiting
        idle = self._intake.idle(waiting=waiting, running=self.running)
        if n <= idle:
            return None
        soon = 0 if self._untried.any else self._intake.soon(running=self.running) - waiting
        return min(n, max(idle, soon))

    def to_begin(self, port: int, now_s: float) -> Sequence[Held]:
        """The messages of a shard whose attempts begin now; none: wait for `on_begin`.

        `begun` or `not_begun` must follow.
        """
        untried, soon = self._untried, self._intake.soon(running=self.running)
        self._begin_low = soon // 2
        waiting = len(self._ready) + len(untried.asked())
        if port not in untried.free or waiting > self._begin_low:
            return ()
        idle = self._places - self.running - waiting
        batch: list[Held] = []
        while waiting + len(batch) < soon and (held := untried.first(port)) is not None:
            if held.state is not WAITING or now_s >= held.hold.until_s:
                self._drop(untried.pop(port))
                continue
            # An earlier attempt at this message may have killed its process, as this one may. So it
            # begins only when a handler is free and, if no other handler runs, after the answers to
            # the acks of the messages before it.
            tried = held.message.attempts > 1
            if tried and (len(batch) >= idle or (self.unsettled and not self.running)):
                break
            batch.append(untried.pop(port))
        untried.ask(port, batch)
        return batch

    def begun(self, port: int, results: Sequence[Settled], seconds: float) -> None:
        """Record the answer to a call that began attempts and took `seconds`."""
        self._intake.begun(seconds)
        batch = self._untried.answered(port)
        for held, result in zip(batch, results, strict=True):
            if result is Settled.GONE:
                held.state = OVER
        self._ready.extend(batch)
        self.on_ready(len(batch))
        self._ask_to_begin()

    def not_begun(self, port: int) -> None:
        """Record that a call to begin attempts failed."""
        self._untried.again(port)

    def _ask_to_begin(self) -> None:
        for port in tuple(self._untried.free):
            self.on_begin(port)

    def _drop(self, held: Held) -> None:
        """Forget a message that waits: its lease has ended, or it was returned."""
        held.state = OVER
        held.hold.open.discard(held)
        self._less_waits(held.hold.port)

    @abstractmethod
    def _less_waits(self, port: int) -> None:
        """Record that a message of a shard no longer waits."""
