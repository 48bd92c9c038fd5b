"""Messages that come and go at a fixed pace: long polls that wait for them, and due times ahead.

The producer is open-loop: message k leaves at its time, whatever the server does meanwhile. Each
body begins with the moment, in us, from which its lateness counts: when it was to leave, or its due
time. The one rule: nothing is lost from sight. A message of the window that has not come by its end
counts with the lateness that it has by then, and the server has to agree with its clients about
what is left; processor time is all that the server used in the window, for sends too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

import everyday_redis
import numpy as np
import numpy.typing as npt
from broker_process import ServerProcess
from clients import BulkSender, DuePool, Int64Array, counts
from consuming import (
    PLAIN,
    STAMP,
    WAYS,
    JsonConsumer,
    Settle,
    StampedScript,
    Taking,
    stamped_body,
)
from load import Buffer, Driver, LoadError, expect_ok
from procfs import cpu_seconds
from rounds import Endpoint
from settings import BODY_BYTES
from tables import Column, Table, Target, at_most, microseconds, milliseconds, rate, whole
from wire import SendTemplate, json_request
from workers import Worker
from yardstick import Bench, Yardstick, http_of

PRODUCER_LANES: Final = 50
LEAD_MS: Final = (500, 5_000)
# For connections, and for messages that were sent before the first one of the open loop.
PREPARE_S: Final = 2.0
WARM_UP_S: Final = 0.5
# How long after the window the consumer of messages due ahead stops; and long polls give up, which
# end when all has come.
GRACE_S: Final = 0.4
LOST_S: Final = 30.0
TOPIC: Final = "open"
POLL_MS: Final = 20_000
ROWS_MAX: Final = 100
P99_MS: Final = {1_000: 4.0, 10_000: 5.0}
TEN_THOUSAND_US: Final = 40.0


class Pace(NamedTuple):
    """Messages a second, the consumers that wait for them, and whether they are due ahead."""

    per_second: int
    consumers: int
    ahead: bool


class Face(Protocol):
    """How a server is sent messages, how they are taken, and what it has at the end."""

    endpoint: Endpoint

    def send(self, number: int, stamp_us: int) -> Buffer:
        """The request that sends one message."""

    def fill(self, stamps_us: Int64Array) -> None:
        """Send all of these at once."""

    def consumer(self, lanes: int, until: float) -> StampedScript:
        """Consumers that stop at a time of `time.perf_counter()`."""

    def check(self, sent: int, settled: int) -> None:
        """Raise LoadError unless the server agrees with the clients."""


@dataclass(frozen=True, slots=True)
class Produced:
    """Stamps of all messages in us, and by how many seconds the producer fell behind at most."""

    stamps_us: Int64Array
    behind_s: float


@dataclass(frozen=True, slots=True)
class Consumed:
    """Receipt times and stamps of all messages in us, and how many are settled."""

    at_us: npt.NDArray[np.float64]
    stamps_us: Int64Array
    settled: int


def measure(bench: Bench, yardstick: Yardstick) -> Table:
    """A fresh server for each row."""
    table = Table(
        f"everyday open loop: single sends, {BODY_BYTES} B bodies, JSON, fsync always, "
        f"{bench.settings.everyday_window_s:.0f} s",
        [
            Column("per second", "rate", rate),
            Column("server CPU us", "server_us", microseconds),
            Column("p50 ms", "p50_ms", milliseconds),
            Column("p99 ms", "p99_ms", milliseconds),
            Column("max ms", "max_ms", milliseconds),
            Column("early", "early", whole),
            Column("overdue", "overdue", whole),
            Column("sender behind ms", "behind_ms", milliseconds),
        ],
        notes=[
            "Processor time is a message's, of its send, receive and ack. Times are lateness: from "
            "when the message was to leave (long polls) or from its due time, to the consumer's "
            "hands; where the sender fell far behind, they are its own. Overdue: had not come "
            f"{GRACE_S * 1e3:.0f} ms after the end. Redis is asked every "
            f"{everyday_redis.PAUSE_S * 1e3:.0f} ms, and at once again while something is due."
        ],
    )
    for pace in (Pace(200, 10, ahead=False), Pace(1_000, 1_000, ahead=False)):
        with bench.brokers.fresh() as broker:
            row = _row(bench, JsonFace(broker, pace, WAYS[PLAIN].settle, 1), pace)
        targets = _targets(row, yardstick, 250.0, 5.0) if pace.consumers == 1_000 else []
        table.add(f"{pace.consumers:,} long polls, {pace.per_second:,}/s, due now", row, targets)
    for per_second in (1_000, 10_000):
        pace = Pace(per_second, 1, ahead=True)
        case = f"{per_second:,}/s, due 0.5-5 s ahead, one consumer, max {ROWS_MAX}"
        for name, way in WAYS.items():
            with bench.brokers.fresh() as broker:
                row = _row(bench, JsonFace(broker, pace, way.settle, ROWS_MAX), pace)
            bound_us = way.open_us if per_second == 1_000 else TEN_THOUSAND_US
            targets = _targets(row, yardstick, bound_us, P99_MS[per_second])
            table.add(f"{case}: {name}", row, targets)
        with bench.redis() as redis:
            row = _row(bench, everyday_redis.DelayFace(redis, ROWS_MAX), pace)
        table.add(f"{case}: Redis by Lua", row)
    return table


def _targets(
    row: Mapping[str, Any], yardstick: Yardstick, bound_us: float, p99_ms: float
) -> list[Target]:
    cost = yardstick.cost(row, bound_us)
    if row["behind_ms"] > LEAD_MS[0]:
        # Fewer messages were sent than came, so what one costs cannot be told.
        cost = replace(cost, met=None)
    return [
        cost,
        at_most(row["p99_ms"], p99_ms, f"{p99_ms:.0f} ms p99"),
        at_most(row["early"], 0, "0 early"),
        at_most(row["overdue"], 0, "0 overdue"),
    ]


class JsonFace:
    """The broker by JSON."""

    def __init__(self, broker: ServerProcess, pace: Pace, settle: Settle, rows_max: int) -> None:
        self.endpoint = http_of(broker)
        self._ahead = pace.ahead
        self._taking = Taking([TOPIC], rows_max=rows_max, wait_ms=POLL_MS, settle=settle)

    def send(self, number: int, stamp_us: int) -> bytes:  # noqa: ARG002 (a Face)
        due = b',"deliver_at_ms":%d' % (stamp_us // 1_000) if self._ahead else b""
        members = b'{"body":"%b"%b}' % (stamped_body(stamp_us), due)
        return json_request(f"/v1/topics/{TOPIC}/messages", members)

    def fill(self, stamps_us: Int64Array) -> None:
        bodies = b"".join(stamped_body(stamp) for stamp in stamps_us.tolist())
        template = SendTemplate(TOPIC, len(stamps_us), bodies, BODY_BYTES)
        with Driver(self.endpoint.port, 1) as driver:
            driver.run(BulkSender(template, DuePool(stamps_us // 1_000), 1))

    def consumer(self, lanes: int, until: float) -> JsonConsumer:
        return JsonConsumer(self._taking, lanes, until, stamp=STAMP)

    def check(self, sent: int, settled: int) -> None:
        found = counts(self.endpoint.port, TOPIC)
        left = found["waiting"] + found["ready"]
        if (left, found["acked"], found["leased"]) != (sent - settled, settled, 0):
            raise LoadError(f"{sent} messages were sent and {settled} are settled: {found}")


class _Sender:
    """Sends message after message; when each leaves is the driver's."""

    def __init__(self, face: Face, first: int, stamps_us: Sequence[int]) -> None:
        self._face = face
        self._next = enumerate(stamps_us, first)

    def request(self, lane: int) -> Sequence[Buffer] | None:  # noqa: ARG002 (a Script)
        return (self._face.send(*next(self._next)),)

    def answer(self, lane: int, status: int, body: Any) -> None:  # noqa: ARG002 (a Script)
        expect_ok(status, body)


def _row(bench: Bench, face: Face, pace: Pace) -> dict[str, Any]:
    """One run against a fresh server."""
    start = time.time() + PREPARE_S
    begin = start + WARM_UP_S
    end = begin + bench.settings.everyday_window_s
    consumer = Worker(_consume, face, pace, start, end)
    producer = Worker(_produce, face, pace, start, end)
    try:
        time.sleep(begin - time.time())
        before_s = cpu_seconds(face.endpoint.server_id)
        time.sleep(end - time.time())
        cpu_s = cpu_seconds(face.endpoint.server_id) - before_s
        produced, consumed = producer.result().value, consumer.result().value
    finally:
        producer.kill()
        consumer.kill()
    face.check(len(produced.stamps_us), consumed.settled)
    window = np.array((begin, end)) * 1e6
    missing_us = _missing(produced.stamps_us, consumed.stamps_us, window)
    came = _inside(consumed.stamps_us, window)
    late_ms = (consumed.at_us - consumed.stamps_us)[came] / 1e3
    late_ms = np.concatenate([late_ms, (window[1] - missing_us) / 1e3])
    delivered = int(_inside(consumed.at_us, window).sum())
    p50, p99 = np.percentile(late_ms, (50, 99))
    return {
        "rate": delivered / (end - begin),
        "server_us": cpu_s / delivered * 1e6,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "max_ms": float(late_ms.max()),
        "early": int((consumed.at_us < consumed.stamps_us).sum()),
        "overdue": len(missing_us),
        "behind_ms": produced.behind_s * 1e3,
    }


def _inside(
    times_us: npt.NDArray[np.float64] | Int64Array, window: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    return (times_us > window[0]) & (times_us <= window[1])


def _missing(
    produced_us: Int64Array, consumed_us: Int64Array, window: npt.NDArray[np.float64]
) -> Int64Array:
    """The stamps of the window, with their repetitions, that were sent and have not come."""
    stamps, sent = np.unique(produced_us[_inside(produced_us, window)], return_counts=True)
    came_us = consumed_us[_inside(consumed_us, window)]
    came = np.bincount(np.searchsorted(stamps, came_us), minlength=len(stamps))
    if (came > sent).any():
        raise LoadError("a message came that was not sent")
    return np.repeat(stamps, sent - came)


def _produce(face: Face, pace: Pace, start: float, end: float) -> Produced:
    """Send until `end`. With due times ahead the server first gets what an endless run would have
    sent before `start`, so that as many messages are due a second from there on."""
    count = int((end - start) * pace.per_second)
    stamps_us = ((start + np.arange(count) / pace.per_second) * 1e6).astype(np.int64)
    before_us = np.empty(0, np.int64)
    if pace.ahead:
        random = np.random.default_rng(pace.per_second)
        earlier = LEAD_MS[1] * pace.per_second // 1_000
        left = start + np.arange(-earlier, count) / pace.per_second
        dues_ms = np.ceil(left * 1e3).astype(np.int64) + random.integers(*LEAD_MS, len(left))
        before_us = dues_ms[:earlier] * 1_000
        before_us = before_us[before_us > start * 1e6]
        stamps_us = dues_ms[earlier:] * 1_000
        face.fill(before_us)
    sender = _Sender(face, len(before_us), stamps_us.tolist())
    with Driver(face.endpoint.port, PRODUCER_LANES, face.endpoint.lane) as driver:
        behind_s = driver.run_open(sender, start=start, per_second=pace.per_second, requests=count)
    return Produced(np.concatenate([before_us, stamps_us]), behind_s)


def _consume(face: Face, pace: Pace, start: float, end: float) -> Consumed:
    count = int((end - start) * pace.per_second)
    last = end + (GRACE_S if pace.ahead else LOST_S)
    consumer = face.consumer(pace.consumers, time.perf_counter() + last - time.time())
    # A poll that is still open when all has come would wait for long.
    enough = None if pace.ahead else lambda: consumer.settled == count
    with Driver(face.endpoint.port, pace.consumers, face.endpoint.lane) as driver:
        driver.run(consumer, enough=enough)
    times = [at * 1e6 for at, stamps in consumer.stamped for _ in stamps]
    stamps_us = [int(stamp) for _, stamps in consumer.stamped for stamp in stamps]
    return Consumed(np.array(times), np.array(stamps_us, np.int64), consumer.messages())
