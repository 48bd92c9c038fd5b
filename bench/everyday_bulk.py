"""Bulk bodies of 100 and 1,000 by two clients, with ids of their own and without, beside Redis.

Redis gets the same bodies by a script that skips ids it has. The one rule: the broker without ids,
the broker with ids and Redis are measured in turns, and every id is new.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import everyday_redis
from clients import Until
from everyday_redis import ID_BYTES, RedisBatches
from load import Buffer, Driver, expect_ok
from rounds import COLUMNS, Case, Round, figures, fixed, messages_of, ratio
from sending import spread_dues
from settings import BODY_BYTES, FILL_BATCH, FILL_LANES
from tables import Column, Table, Target, at_least, percent, times
from wire import even_template
from workers import run_apart
from yardstick import Bench, Yardstick, check_counts, http_of, resp_of

CLIENTS: Final = 2
HOURS: Final = 1
# Different bodies, so that due times do not repeat at once.
BODIES: Final = 16
KIB: Final = 1_024
# Ids that one worker stores before the clock starts; a multiple of FILL_BATCH.
FILL_IDS: Final = 1_000_000

PLAIN: Final = "no ids"
NAMED: Final = "with ids"
REDIS: Final = "Redis"


class Shape(NamedTuple):
    """Messages of one body, bytes of each, and ids that are stored before."""

    rows: int
    body_bytes: int
    other_ids: int = 0


SHAPES: Final = (
    Shape(100, BODY_BYTES),
    Shape(1_000, BODY_BYTES),
    Shape(100, KIB),
    Shape(1_000, KIB),
)
OF_REDIS: Final = {
    (100, BODY_BYTES, PLAIN): 1.8,
    (100, BODY_BYTES, NAMED): 1.3,
    (1_000, BODY_BYTES, NAMED): 2.5,
}


def measure(bench: Bench, yardstick: Yardstick) -> Table:
    """All shapes, fresh servers each; then a body of 1,000 beside ids that are stored already."""
    table = Table(
        f"everyday bulk: {CLIENTS} clients, fsync always, {bench.settings.everyday_rounds} rounds "
        "in turns, against a hash and a sorted set of Redis 7.0.15, AOF everysec",
        [
            *COLUMNS,
            Column("of Redis", "of_redis", times),
            Column("of no ids", "of_plain", percent),
        ],
    )
    others = [Shape(1_000, BODY_BYTES, ids) for ids in bench.settings.everyday_ids]
    for shape in (*SHAPES, *others):
        _add(table, yardstick, shape, _rounds(bench, shape))
    return table


def bulk_requests(topic: str, rows: int, body_bytes: int) -> list[bytes]:
    """Bulk sends without ids, due hours ahead."""
    template = even_template(topic, rows, body_bytes)
    dues = (spread_dues(rows, HOURS, seed).astype("<i8").tobytes() for seed in range(BODIES))
    return [b"".join(template.pieces(each)) for each in dues]


class NamedBatches:
    """Bulk sends that are alike but for their ids; one buffer a lane."""

    def __init__(self, topic: str, rows: int, body_bytes: int, lanes: int) -> None:
        self._size = rows * ID_BYTES
        place = b"?" * self._size
        template = even_template(topic, rows, body_bytes, {"id_size": ID_BYTES, "id": place})
        text = b"".join(template.pieces(spread_dues(rows, HOURS, rows).astype("<i8").tobytes()))
        self._at = text.index(place)
        self._texts = [bytearray(text) for _ in range(lanes)]

    def request(self, lane: int) -> memoryview:
        """The lane's buffer with new ids in it."""
        ids = secrets.token_hex(self._size // 2).encode()
        text = self._texts[lane]
        text[self._at : self._at + self._size] = ids
        return memoryview(text)


def _rounds(bench: Bench, shape: Shape) -> dict[str, list[Round]]:
    rows, body_bytes, other_ids = shape
    with (
        bench.brokers.fresh() as plain,
        bench.brokers.fresh() as named,
        bench.redis() as redis,
    ):
        for start in range(0, other_ids, FILL_IDS):
            run_apart(_fill_ids, named.port, min(FILL_IDS, other_ids - start))
        if other_ids:
            named.settle(limit_s=bench.settings.settle_s)
        digest = everyday_redis.loaded(redis, everyday_redis.SEND)
        ours = NamedBatches("t", rows, body_bytes, CLIENTS)
        theirs = RedisBatches(digest, rows, b"x" * body_bytes, CLIENTS)

        def until(batches: NamedBatches | RedisBatches, end: float) -> Until:
            return Until(batches.request, CLIENTS, end, rows=rows)

        done = bench.compare(
            {
                PLAIN: fixed(
                    http_of(plain), bulk_requests("t", rows, body_bytes), CLIENTS, rows=rows
                ),
                NAMED: Case(http_of(named), partial(until, ours), CLIENTS),
                REDIS: Case(resp_of(redis), partial(until, theirs), CLIENTS),
            }
        )
        check_counts(plain.port, "t", waiting=messages_of(done[PLAIN]))
        check_counts(named.port, "t", waiting=messages_of(done[NAMED]))
        everyday_redis.check_stored(redis, messages_of(done[REDIS]))
    return done


def _add(table: Table, yardstick: Yardstick, shape: Shape, done: dict[str, list[Round]]) -> None:
    for case, rounds in done.items():
        row = figures(rounds)
        if case != REDIS:
            row["of_redis"] = ratio(rounds, done[REDIS])
        if case == NAMED:
            row["of_plain"] = ratio(rounds, done[PLAIN])
        name = f"bulk of {shape.rows:,}, {shape.body_bytes:,} B, {case}"
        if shape.other_ids and case == NAMED:
            name += f", beside {shape.other_ids / 1e6:g} M"
        table.add(name, row, _targets(shape, case, row, yardstick))


def _targets(shape: Shape, case: str, row: dict[str, Any], yardstick: Yardstick) -> list[Target]:
    found = []
    if bound := OF_REDIS.get((shape.rows, shape.body_bytes, case)):
        found.append(at_least(row["of_redis"], bound, f"{bound} x Redis"))
    if case == NAMED and shape.rows == 1_000:
        if shape.body_bytes == KIB:
            found.append(at_least(row["of_plain"], 0.8, "80 % of no ids"))
        else:
            found.append(yardstick.cost(row, 2.0))
    return found


class _IdFill:
    """Sends so many bodies with new ids, and ends."""

    def __init__(self, bodies: int) -> None:
        self._batches = NamedBatches("other", FILL_BATCH, BODY_BYTES, FILL_LANES)
        self._left = bodies

    def request(self, lane: int) -> Sequence[Buffer] | None:
        if not self._left:
            return None
        self._left -= 1
        return (self._batches.request(lane),)

    def answer(self, lane: int, status: int, body: memoryview) -> None:  # noqa: ARG002 (a Script)
        expect_ok(status, body)


def _fill_ids(port: int, messages: int) -> None:
    with Driver(port, FILL_LANES) as driver:
        driver.run(_IdFill(messages // FILL_BATCH))
