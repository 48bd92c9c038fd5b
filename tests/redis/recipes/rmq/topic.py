"""An RMQ topic: send, pop, commit, roll back, dead letters.

The one rule: a message leaves the store into the prepare set of its slot and leaves that by commit
or roll back, so whatever a consumer does it is delivered at least once and at most 17 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from zlib import crc32

from delaylog.client.queues.rmq.messages import (
    RETRIES_MAX,
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqMessage,
)
from tests.redis.recipes.calls import Calls
from tests.redis.recipes.clock import Clock, wall_clock_ms
from tests.redis.recipes.connection import Connection
from tests.redis.recipes.replies import scored, text
from tests.redis.recipes.rmq import scripts
from tests.redis.recipes.rmq.deliveries import DeadLetter, Delivery

TIMEOUT_S = 60
"""Default time to commit."""

SCAN_BATCH = 100


class TopicKind(Enum):
    """What a topic carries. Name, slots and kind are fixed together, once."""

    RANGE_MERGE = RangeMergeMessage
    PRIORITY = PriorityMessage
    FIXED_TIME = FixedTimeMessage


class RolledBack(Enum):
    """What became of a delivery that was rolled back."""

    GONE = 0
    """It was committed or timed out before; nothing was done."""
    RETRY = 1
    DEAD = 2


class RmqTopic:
    """A topic in slots, each with a store, a prepare and a dead set.

    A slot is the CRC32 (zlib's) of the slot basis, or of the body, modulo the number of slots,
    which is a power of two. To keep the deliveries of a body serial let one worker own a slot.

    What the description of RMQ leaves open is decided so:

    - the count in a prepare score is what REMAINS: a first delivery writes 16, one from store
      score s writes s - 1, and the roll back of 0 goes to dead: 1 + 16 deliveries;
    - a roll back adds with NX, so a newer send of the body keeps its own time or priority;
    - a new Priority or FixedTime send while the body waits for a retry overwrites its score and
      so gives it all retries again; a RangeMerge send merges into the retry;
    - a dead letter's score is the millisecond it died, and it comes back due at once, or with the
      lowest fresh priority.

    A roll back names its delivery by the prepare score and does nothing to a later one. A commit
    goes by the body alone, as described: do not commit after the timeout.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        kind: TopicKind,
        *,
        slots: int = 8,
        timeout_s: int = TIMEOUT_S,
        clock: Clock = wall_clock_ms,
    ) -> None:
        if slots < 1 or slots & (slots - 1):
            raise ValueError(f"the number of slots is a power of two, not {slots}")
        self.name = name
        self.kind = kind
        self.slots = slots
        self.timeout_s = timeout_s
        self._calls = Calls(connection)
        self._clock = clock
        self._next_slot = 0

    def slot_of(self, message: RmqMessage) -> int:
        """Where a message belongs."""
        basis = message.body if message.slot_basis is None else message.slot_basis
        return crc32(basis.encode()) & (self.slots - 1)

    def send(self, message: RmqMessage) -> bool:
        """Put a message in. True if the body is new in its slot; else it was merged
        (RangeMerge: the first time stays; the others: the new score counts).
        """
        if not isinstance(message, self.kind.value):
            raise TypeError(f"topic {self.name} carries {self.kind.value.__name__} only")
        store = self._store(self.slot_of(message))
        now_ms = self._clock()
        if isinstance(message, RangeMergeMessage):
            added = self._calls.script(
                scripts.SEND_MERGED, [store], message.body, now_ms + message.time_range_ms
            )
            return int(added) == 1
        if isinstance(message, PriorityMessage):
            score = message.priority
        else:
            score = message.fixed_time_ms
            if score <= now_ms:
                raise ValueError(f"a fixed time lies ahead: {score} is not after {now_ms}")
        return int(self._calls.one("ZADD", store, score, message.body)) == 1

    def pop(self, slot: int) -> Delivery | None:
        """Take the next message of a slot: the longest overdue, or the highest priority."""
        now_ms = self._clock()
        if self.kind is TopicKind.PRIORITY:
            script, times = scripts.POP_HIGHEST, [now_ms // 1000]
        else:
            script, times = scripts.POP_DUE, [now_ms // 1000, now_ms]
        keys = [self._store(slot), self._prepare(slot)]
        found = self._calls.script(script, keys, RETRIES_MAX, *times)
        return Delivery(text(found[0]), slot, int(found[1])) if found else None

    def pop_any(self, slots: Sequence[int] | None = None) -> Delivery | None:
        """Take the next message of any of these slots (default: all), each slot in its turn."""
        chosen = range(self.slots) if slots is None else slots
        for step in range(len(chosen)):
            at = (self._next_slot + step) % len(chosen)
            delivery = self.pop(chosen[at])
            if delivery is not None:
                self._next_slot = at + 1
                return delivery
        return None

    def commit(self, delivery: Delivery) -> bool:
        """The message is done with. False if it was not in work any more."""
        key = self._prepare(delivery.slot)
        return int(self._calls.one("ZREM", key, delivery.body)) == 1

    def roll_back(self, delivery: Delivery) -> RolledBack:
        """The message failed: it comes again, or is dead after its last retry."""
        slot = delivery.slot
        answer = self._calls.script(
            scripts.ROLL_BACK,
            [self._store(slot), self._prepare(slot), self._dead(slot)],
            *(delivery.body, delivery.prepare_score, self._clock()),
        )
        return RolledBack(int(answer))

    def scan_timeouts(self, slot: int) -> int:
        """Roll back what was delivered `timeout_s` ago or earlier; answer how many."""
        deadline = (self._clock() // 1000 - self.timeout_s) * 1000 + 999
        rolled_back = 0
        while True:
            page = scored(
                self._calls.one(
                    *("ZRANGEBYSCORE", self._prepare(slot), 0, deadline, "WITHSCORES"),
                    *("LIMIT", 0, SCAN_BATCH),
                )
            )
            # Each of the page leaves the prepare set, by this call or by another's.
            for body, score in page:
                outcome = self.roll_back(Delivery(body, slot, int(score)))
                rolled_back += outcome is not RolledBack.GONE
            if len(page) < SCAN_BATCH:
                return rolled_back

    def dead_letters(self, slot: int, count: int = 100) -> list[DeadLetter]:
        """The first of a slot that failed too often, oldest first."""
        key = self._dead(slot)
        found = self._calls.one("ZRANGE", key, 0, count - 1, "WITHSCORES")
        return [DeadLetter(body, slot, int(score)) for body, score in scored(found)]

    def revive(self, letter: DeadLetter, *, score: int | None = None) -> bool:
        """Move a dead letter back, as if it were new. `score` is its time or its priority; without
        one it is due at once, or has the lowest priority. False if it is not dead (any more).
        """
        if score is None:
            is_priority = self.kind is TopicKind.PRIORITY
            score = RETRIES_MAX + 1 if is_priority else self._clock()
        elif score <= RETRIES_MAX:
            raise ValueError(f"a time or a priority is more than {RETRIES_MAX}, not {score}")
        keys = [self._store(letter.slot), self._dead(letter.slot)]
        return int(self._calls.script(scripts.REVIVE, keys, letter.body, score)) == 1

    def depth(self) -> int:
        """How many wait in all slots, due or not."""
        stores = [("ZCARD", self._store(slot)) for slot in range(self.slots)]
        return sum(int(size) for size in self._calls.many(stores))

    def _store(self, slot: int) -> str:
        return f"{self.name}_{slot}"

    def _prepare(self, slot: int) -> str:
        # Braces are part of the name: in a cluster both keys then lie where the store lies.
        return f"prepare_{{{self.name}_{slot}}}"

    def _dead(self, slot: int) -> str:
        return f"dead_{{{self.name}_{slot}}}"
