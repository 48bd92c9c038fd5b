"""Lane: the sends of one topic to one shard, in order, one request at a time.

A state machine without I/O: its inputs are the time and the outcome of each exchange, its outputs
are the next request and the time to send it. A request is retried with the same bytes and the same
(producer, sequence), by which a broker recognizes repeats. It is replaced by a request with other
rows only if it certainly was not carried out. So no message is added twice, and messages stay in
order.

No process uses a (producer, sequence) for two different requests. Each client appends a unique part
to the given name, a forked child appends another one, and a numbering that is reused continues with
its next sequence.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from delaylog.client.errors import AnswerLost, ApiError, NotReached, in_time
from delaylog.client.sending.batch import Batch, Kind
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.wire.patience import FIRST_PAUSE_S, PAUSE_MAX_S, final_error, is_doubtful

# ----------------------------------------------------------------- producer names and sequences

PRODUCER_CHARS_MAX: Final = 200
"""A broker accepts 255 characters; the rest is for the appended part."""


class Numbering:
    """A producer name and its next sequence."""

    __slots__ = ("_next", "producer")

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self._next = 0

    def take(self) -> int:
        """Return the next sequence."""
        taken = self._next
        self._next += 1
        return taken


class Producers:
    """The numberings of one client. Thread-safe."""

    def __init__(self, label: str | None = None) -> None:
        if label is not None and not (
            isinstance(label, str) and 1 <= len(label) <= PRODUCER_CHARS_MAX
        ):
            raise ValueError(f"a producer is named by 1 to {PRODUCER_CHARS_MAX} characters")
        self._label = label
        self._begin()

    def take(self) -> Numbering:
        """Take an unused numbering."""
        if os.getpid() != self._process_id:
            # The parent still uses these names; the broker would treat our sends as its repeats.
            self._begin()
        try:
            return self._spare.pop()
        except IndexError:
            name, numbers = self._names
            return Numbering(f"{name}-{next(numbers)}")

    def give_back(self, numbering: Numbering) -> None:
        """Return a numbering for reuse with any topic: sequences only have to increase."""
        if os.getpid() == self._process_id:
            self._spare.append(numbering)

    def _begin(self) -> None:
        # An earlier run of the program may have used the same name with sequences from 0.
        unique = uuid.uuid4().hex
        name = unique if self._label is None else f"{self._label}-{unique[:12]}"
        self._spare: deque[Numbering] = deque()
        # At once, since several threads of a child may begin: no name may be counted twice.
        self._names = name, itertools.count()
        self._process_id = os.getpid()


# ------------------------------------------------------------------- requests and their retries

RETRY_FOR_S_MAX: Final = 500.0
"""Limit of retries: a broker remembers sequences for only ten minutes."""

LAST_TRY_S: Final = 0.5
"""Time reserved for the last try within a time limit.

A tenth of the limit is reserved, but at least this; of a limit below one second, half of it.
"""

# Errors in these fields concern the whole body, so that splitting it does not help.
_OF_THE_BODY: Final = frozenset({"producer", "sequence", "merge", "v", "n", "topic", "namespace"})


class Limit(NamedTuple):
    """How long the requests of a lane are retried."""

    seconds: float
    of_calls: bool = False
    """Whether callers wait: then every exchange, the last one too, ends within the limit."""
    strict: bool = False
    """Whether it always counts from the opening of the batch; see `Lane._deadline_s`."""


@dataclass(slots=True)
class Attempt:
    """One request, which is retried until it has an outcome."""

    batch: Batch
    rows: list[int] | None
    """The numbers of the rows in the batch; None for all."""
    producer: str
    sequence: int
    lost: bool = False
    """Whether an earlier try may have been carried out."""
    waited: bool = False
    """Whether it has waited for a limit of the principal."""
    _wire: bytes = field(default=b"", repr=False)

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.batch.rows if self.rows is None else len(self.rows)

    @property
    def row_numbers(self) -> list[int]:
        """The numbers of the rows in the batch."""
        return list(range(self.n)) if self.rows is None else list(self.rows)

    @property
    def wire(self) -> bytes:
        """The encoded body, identical for each try."""
        if not self._wire:
            self._wire = self.batch.encode(self.rows, self.producer, self.sequence)
        return self._wire


@dataclass(frozen=True, slots=True)
class Verdict:
    """The reaction to a failure: continue after `pause_s`; `rows_failed` rows have failed."""

    pause_s: float
    rows_failed: int = 0


class Lane:
    """The batches of one topic, oldest first. The last one may be open."""

    __slots__ = (
        "_answered_at_s",
        "_attempt",
        "_failures",
        "_parts",
        "_random",
        "batches",
        "free",
        "limit",
        "numbering",
        "open",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        numbering: Numbering,
        *,
        limit: Limit,
        random: Callable[[], float],
        free: bool = False,
    ) -> None:
        self.topic = topic
        self.limit = limit
        self.free = free
        """Whether any shard may take the batches."""
        self.open: Batch | None = None
        self.batches: deque[Batch] = deque()
        self.numbering = numbering
        """The producer name and the next sequence."""
        self._random = random
        self._answered_at_s = float("-inf")
        """When the last answer arrived."""
        self._attempt: Attempt | None = None
        self._parts: deque[list[int]] = deque()
        """The untried rows of the first batch, if it was split."""
        self._failures = 0
        """The number of consecutive failures."""

    @property
    def limit_s(self) -> float | None:
        """The time limit of the calls that wait; None if none does."""
        return self.limit.seconds if self.limit.of_calls else None

    @property
    def idle(self) -> bool:
        """Whether no message waits in the lane."""
        return not self.batches

    @property
    def linger_from_s(self) -> float | None:
        """When the first row was added, if only an open batch waits; None: send now."""
        first = self.batches[0] if self.batches else None
        return None if first is None or first is not self.open else first.opened_at_s

    @property
    def complete(self) -> bool:
        """Whether the next batch accepts no more rows."""
        return bool(self.batches) and self.batches[0] is not self.open

    def begin(self, kind: Kind, now_s: float) -> Batch:
        """Append a new open batch."""
        self.close_open()
        batch = self.open = Batch(self.topic, kind, now_s, free=self.free)
        batch.limit_s = self.limit_s
        self.batches.append(batch)
        return batch

    def close_open(self) -> None:
        """Close the last batch for new rows."""
        if self.open is not None:
            self.open.close()
            self.open = None

    def adopt(self, batch: Batch) -> None:
        """Append a closed batch that another lane could not deliver to its shard."""
        self.close_open()
        self.batches.append(batch)

    def attempt(self) -> Attempt | None:
        """The request to send now: the pending one, or the next; None if nothing waits."""
        if self._attempt is None and self.batches:
            batch = self.batches[0]
            if batch is self.open:
                self.close_open()
            rows = self._parts.popleft() if self._parts else None
            self._attempt = Attempt(batch, rows, self.numbering.producer, self.numbering.take())
        return self._attempt

    def left_s(self, now_s: float) -> float | None:
        """How long the exchange of the attempt may take; None: as long as any call."""
        return self._deadline_s() - now_s if self.limit.of_calls else None

    def linger_s(self, usual_s: float) -> float:
        """How long a batch waits for more rows: most of a time limit is for sending it."""
        return min(usual_s, self.limit.seconds / 4) if self.limit.of_calls else usual_s

    def expire(self) -> Verdict:
        """Fail the batch of the attempt: its time limit passed before the first try."""
        return self._give_up_batch(NotReached("earlier requests took too long"), late=True)

    def answered(self, answer: SendAnswer, now_s: float) -> AnswerLost | None:
        """Record the answer. Returns AnswerLost if it does not match the request."""
        attempt = self._under_way()
        if answer.n != attempt.n:
            return AnswerLost(f"{attempt.n} messages were sent, the answer is about {answer.n}")
        attempt.batch.sent(attempt.rows, answer)
        self._answered_at_s = now_s
        self._failures = 0
        self._end_attempt()
        return None

    def failed(self, error: BaseException, now_s: float) -> Verdict:
        """Record a failure: retry the request, split it, or fail its rows."""
        attempt = self._under_way()
        match error:
            case NotReached():
                return self._again(error, now_s)
            case _ if is_doubtful(error):
                attempt.lost = True
                return self._again(error, now_s)
            case ApiError(code="timeout"):
                return self._again(error, now_s)
            case ApiError(code="quota"):
                # The broker detects repeats first, so this request was never carried out.
                attempt.lost = False
                return self._over_quota(error, now_s)
            case ApiError(code="bad_request" | "too_large") if not attempt.lost:
                return self._refused(error)
            case ApiError(code="disk_full"):
                # As for a quota: the broker detects repeats first.
                attempt.lost = False
        return self._give_up_batch(error)

    def release_unreached(self) -> Batch | None:
        """Remove the first batch for another shard, if certainly none of it was accepted."""
        attempt = self._attempt
        if attempt is None or attempt.lost or attempt.rows is not None or not attempt.batch.free:
            return None
        self._attempt = None
        self._failures = 0
        return self.batches.popleft()

    def give_up(self, error: BaseException, *, in_flight: bool) -> list[tuple[Batch, int]]:
        """Fail all waiting messages. Returns each batch with the number of failed rows.

        `in_flight`: a request of the first batch is in progress and may be carried out.
        """
        self.close_open()
        if self._attempt is not None and in_flight:
            self._attempt.lost = True
        ended = []
        while self.batches:
            batch = self.batches[0]
            if self._attempt is None:
                self.attempt()
            ended.append((batch, self._give_up_batch(error).rows_failed))
        return ended

    def _under_way(self) -> Attempt:
        assert self._attempt is not None, "there is an attempt in progress"
        return self._attempt

    def _deadline_s(self) -> float:
        from_s = self._under_way().batch.opened_at_s
        if not self.limit.strict:
            # Time spent waiting for the answers to earlier requests does not count. Both times are
            # before the attempt's first try, so its retries end within the limit of that try.
            from_s = max(from_s, self._answered_at_s)
        return from_s + self.limit.seconds

    def _again(self, error: BaseException, now_s: float) -> Verdict:
        left_s = self._deadline_s() - now_s
        if self.limit.of_calls:
            limit_s = self.limit.seconds
            left_s -= max(limit_s / 10, min(LAST_TRY_S, limit_s / 2))
        if left_s <= 0:
            return self._give_up_batch(error, late=self.limit.of_calls)
        # The pause before the last try is shortened, so that this try starts exactly at the
        # deadline, or earlier by the reserved time if a caller needs the answer by then.
        return Verdict(min(self._pause_s(), left_s))

    def _over_quota(self, error: ApiError, now_s: float) -> Verdict:
        attempt = self._under_way()
        deadline_s = self._deadline_s()
        after_s = error.retry_after_s
        if attempt.n > 1 and now_s < deadline_s:
            # The limit of a principal names no quota, counts calls too, and is one of a second.
            may_wait = "quota" not in error.problem and not attempt.waited
            if may_wait and after_s is not None and now_s + after_s <= deadline_s:
                attempt.waited = True
                return Verdict(after_s)
            # A part may fit into the quota when the whole does not, and one row far in the future
            # must not block the others.
            self._halve()
            return Verdict(0.0)
        backoff_s = self._pause_s()
        pause_s = backoff_s if after_s is None else after_s
        if now_s + pause_s > deadline_s:
            return self._give_up_attempt(error)
        return Verdict(pause_s)

    def _refused(self, error: ApiError) -> Verdict:
        attempt = self._under_way()
        rows = attempt.row_numbers
        if error.field in _OF_THE_BODY:
            return self._give_up_batch(error)
        if len(rows) == 1:
            return self._give_up_attempt(error)
        if error.item is None or not 0 <= error.item < len(rows):
            self._halve()
            return Verdict(0.0)
        row = rows.pop(error.item)
        attempt.batch.fail([row], error)
        self._attempt = None
        self._parts.appendleft(rows)
        return Verdict(0.0, 1)

    def _halve(self) -> None:
        rows = self._under_way().row_numbers
        middle = len(rows) // 2
        self._attempt = None
        self._parts.extendleft((rows[middle:], rows[:middle]))

    def _give_up_attempt(self, error: BaseException, *, late: bool = False) -> Verdict:
        attempt = self._under_way()
        rows = attempt.row_numbers
        last = final_error(error, doubt=attempt.lost)
        attempt.batch.fail(rows, in_time(last, self.limit.seconds) if late else last)
        self._end_attempt()
        return Verdict(0.0, len(rows))

    def _give_up_batch(self, error: BaseException, *, late: bool = False) -> Verdict:
        """Fail the attempt in progress and the untried parts behind it."""
        batch = self._under_way().batch
        parts = list(self._parts)
        self._parts.clear()
        of_parts = error
        if late:
            of_parts = in_time(NotReached(str(error)), self.limit.seconds)
        elif is_doubtful(error):
            of_parts = NotReached(str(error))
        # The parts first: ending the attempt removes the batch.
        for rows in parts:
            batch.fail(rows, of_parts)
        verdict = self._give_up_attempt(error, late=late)
        return Verdict(0.0, verdict.rows_failed + sum(map(len, parts)))

    def _end_attempt(self) -> None:
        batch = self._under_way().batch
        self._attempt = None
        if not self._parts:
            assert batch.left == 0, "a batch that is not split ends as a whole"
            self.batches.popleft()
            batch.drop_bodies()

    def _pause_s(self) -> float:
        """Exponential backoff with jitter."""
        pause_s = min(PAUSE_MAX_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return pause_s * (0.5 + self._random() / 2)
