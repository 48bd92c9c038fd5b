"""DirectSender: sends on the caller's thread, for programs that wait for each answer.

Every call uses its own lane with a producer numbering from a pool, so any number of threads send
concurrently without waiting for each other. When a call returns or raises, all its messages have an
outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from delaylog.client.errors import NotReached
from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch, Row
from delaylog.client.sending.lane import Lane, Limit
from delaylog.client.sending.lane_sender import UNREACHED_FOR_S
from delaylog.client.sending.outbox import ROW_BYTES, Outbox
from delaylog.client.sending.thread_sender import Post

Place: TypeAlias = tuple[str, Post]
"""The name of a shard, and the function that posts to it."""


class DirectSender:
    """The direct sends of one client."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._sleep = sleep
        self._unreached_until_s: dict[str, float] = {}

    def send(self, topic: str, row: Row, places: Sequence[Place], limit_s: float) -> Sent:
        """Send one message to the first reachable shard, within the time limit."""
        outcome = self.send_rows(topic, (row,), places, limit_s)[0]
        if isinstance(outcome, BaseException):
            raise outcome.with_traceback(None)
        return outcome

    def send_rows(
        self, topic: str, rows: Iterable[Row], places: Sequence[Place], limit_s: float
    ) -> list[Sent | BaseException]:
        """Send rows in order, in as few requests as possible. Returns their outcomes.

        The time limit is that of each request.
        """
        outbox = self._outbox
        numbering = outbox.producers.take()
        try:
            limit = Limit(limit_s, of_calls=True)
            lane = Lane(topic, numbering, limit=limit, random=outbox.random)
            batches = self._queue(lane, rows)
            self._run(lane, self._reachable_first(places))
        finally:
            outbox.producers.give_back(numbering)
        return [batch.outcome(row) for batch in batches for row in range(batch.rows)]

    def _reachable_first(self, places: Sequence[Place]) -> list[Place]:
        blocked = self._unreached_until_s
        if not blocked:
            return list(places)
        now_s = self._clock()
        return sorted(places, key=lambda place: blocked.get(place[0], now_s) > now_s)

    def _queue(self, lane: Lane, rows: Iterable[Row]) -> list[Batch]:
        limits = self._outbox.limits
        now_s = self._clock()
        for body, kind, time_ms, members in rows:
            batch = lane.open
            size_bytes = len(body) + ROW_BYTES
            if (
                batch is None
                or batch.kind != kind
                or len(batch.bodies) >= limits.batch_max
                or batch.size_bytes + size_bytes > limits.batch_bytes_max
            ):
                batch = lane.begin(kind, now_s)
            batch.add(body, time_ms, members)
            batch.size_bytes += size_bytes
        lane.close_open()
        return list(lane.batches)

    def _run(self, lane: Lane, places: list[Place]) -> None:
        outbox = self._outbox
        unreached = 0
        while (attempt := lane.attempt()) is not None:
            batch, n = attempt.batch, attempt.n
            left_s = lane.left_s(self._clock())
            if left_s is not None and left_s <= 0:
                verdict = lane.expire()
                late = NotReached("no time was left")
                outbox.failed(batch, verdict.rows_failed, late, self._clock())
                continue
            shard, post = places[0]
            error: Exception | None
            try:
                told = partial(outbox.retried, lane.topic, n)
                answer = post(lane.topic, attempt.wire, told, left_s)
                batch.shard = shard
                error = lane.answered(answer, self._clock())
            except Exception as failure:
                error = failure
            except BaseException as interruption:
                lane.give_up(interruption, in_flight=True)
                raise
            if error is None:
                unreached = 0
                outbox.sent(batch, n, self._clock())
                continue
            if isinstance(error, NotReached):
                self._unreached_until_s[shard] = self._clock() + UNREACHED_FOR_S
            if isinstance(error, NotReached) and not attempt.lost and unreached < len(places) - 1:
                # No shard can have any of its rows, so the batch may go to another shard.
                unreached += 1
                places.append(places.pop(0))
                outbox.retried(lane.topic, n, error)
                continue
            unreached = 0
            verdict = lane.failed(error, self._clock())
            if verdict.rows_failed:
                outbox.failed(batch, verdict.rows_failed, error, self._clock())
            else:
                outbox.retried(lane.topic, n, error)
            if verdict.pause_s:
                self._sleep(verdict.pause_s)
