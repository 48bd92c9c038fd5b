"""Consumers of what is ready: each takes a message or ten, settles them, and takes the next.

Fifty are a fleet of workers; one, ten and two hundred show how the cost of a request depends on
who else asks in the same turn. The one rule: what is ready lasts for all rounds, so no request
waits for a message.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

import everyday_redis
import numpy as np
from broker_process import ServerProcess
from clients import counts
from consuming import PLAIN, WAYS, JsonConsumer, RespConsumer, RespVerbs, Taking
from load import LoadError
from redis_peer import pack
from rounds import COLUMNS, WARM_UP_S, Case, figures, messages_of, ratio
from sending import fill
from settings import BODY_BYTES, FILL_BATCH, Settings
from tables import Column, Table, times
from workers import run_apart
from yardstick import RESP, Bench, Yardstick, await_ready, http_of, resp_of

FLEET: Final = 50
TOPICS: Final = 50
# Of the rate on one topic.
SPREAD_SHARE: Final = 0.6
VERBS_PER_S: Final = 15_000
# Messages that are filled in for a second of a case, more than it takes.
READY_PER_S: Final = 30_000
READY_TENS_PER_S: Final = 120_000
READY_REDIS_PER_S: Final = 80_000


class Row(NamedTuple):
    """One case: how it is run, the topics and messages that it finds, and what it is to reach."""

    case: Case
    topics: Sequence[str]
    filled: int
    rate: float | None = None


def measure(bench: Bench, yardstick: Yardstick) -> Table:
    """All consumers in turns; each case has topics of its own."""
    table = Table(
        f"everyday consumers: take, settle, and again, closed loop, {BODY_BYTES} B bodies that are "
        f"ready, JSON, fsync always, {bench.settings.everyday_rounds} rounds in turns",
        [*COLUMNS, Column("of Redis", "of_redis", times)],
        notes=[
            "Processor time is a message's, of the requests that take and settle it; p50 and p99 "
            "are of a cycle, from the request that takes to the answer that it is settled. Redis: "
            "RPOPLPUSH and LREM, AOF everysec where nothing else is said."
        ],
    )
    with ExitStack() as stack:
        broker = stack.enter_context(bench.brokers.fresh(*RESP))
        rows = _rows(broker, bench.settings)
        for row in rows.values():
            _fill(broker, row)
        peers = {lanes: stack.enter_context(bench.redis()) for lanes in (1, FLEET)}
        names = {lanes: f"Redis, consumers: {lanes}" for lanes in peers}
        lists = {names[lanes]: (lanes, redis) for lanes, redis in peers.items()}
        strict = stack.enter_context(bench.redis("always"))
        lists[f"Redis with AOF always, consumers: {FLEET}"] = (FLEET, strict)
        stock = _stock(READY_REDIS_PER_S, bench.settings)
        cases = {name: row.case for name, row in rows.items()}
        for name, (lanes, redis) in lists.items():
            everyday_redis.fill_list(redis, stock, BODY_BYTES)
            consumer = partial(RespConsumer, everyday_redis.MOVE, lanes)
            cases[name] = Case(resp_of(redis), consumer, lanes)
        done = bench.compare(cases)
        for name, row in rows.items():
            _check(broker, row, messages_of(done[name]))
        for name, (_, redis) in lists.items():
            everyday_redis.check_list(redis, stock - messages_of(done[name]))
    for name, rounds in done.items():
        shown = figures(rounds)
        targets = []
        if row := rows.get(name):
            if row.case.lanes in names:
                shown["of_redis"] = ratio(rounds, done[names[row.case.lanes]])
            if row.rate:
                targets.append(yardstick.rate(shown, row.rate))
        table.add(name, shown, targets)
    return table


def _rows(broker: ServerProcess, settings: Settings) -> dict[str, Row]:
    """The broker's cases by name."""
    few = _stock(READY_PER_S, settings)
    rows: dict[str, Row] = {}
    for number, (name, way) in enumerate(WAYS.items()):
        one = [f"one-{number}"]
        many = [f"many-{number}-{topic}" for topic in range(TOPICS)]
        case = f"{name}, consumers: {FLEET}"
        taking = Taking(one, settle=way.settle)
        rows[case] = Row(_json(broker, taking, FLEET), one, few, way.ready_per_s)
        taking = Taking(many, settle=way.settle)
        rate = SPREAD_SHARE * way.ready_per_s
        rows[f"{case}, topics: {TOPICS}"] = Row(_json(broker, taking, FLEET), many, few, rate)
    for lanes in (1, 10, 200):
        topics = [f"alike-{lanes}"]
        case = f"{PLAIN}, consumers: {lanes}"
        rows[case] = Row(_json(broker, Taking(topics), lanes), topics, few)
    topics = ["tens"]
    tens = _json(broker, Taking(topics, rows_max=10), 10)
    rows[f"{PLAIN}, consumers: 10, max 10"] = Row(tens, topics, _stock(READY_TENS_PER_S, settings))
    for lanes in (1, FLEET):
        topics = [f"verbs-{lanes}"]
        consumer = partial(RespConsumer, _verbs(topics[0].encode()), lanes)
        case = f"DL.RECEIVE t 1, DL.ACK, consumers: {lanes}"
        rate = VERBS_PER_S if lanes == FLEET else None
        rows[case] = Row(Case(resp_of(broker), consumer, lanes), topics, few, rate)
    return rows


def _json(broker: ServerProcess, taking: Taking, lanes: int) -> Case:
    return Case(http_of(broker), partial(JsonConsumer, taking, lanes), lanes)


def _verbs(topic: bytes) -> RespVerbs:
    def settling(reply: Any) -> tuple[bytes, bytes] | None:
        if not reply:
            return None
        message_id, receipt = reply[0][:2]
        return message_id, pack([b"DL.ACK", topic, receipt])

    return RespVerbs(pack([b"DL.RECEIVE", topic, b"1"]), settling)


def _stock(per_s: int, settings: Settings) -> int:
    """Enough for all rounds, in whole batches that TOPICS divides too."""
    round_s = settings.everyday_round_s + WARM_UP_S
    wished = per_s * settings.everyday_rounds * round_s
    return math.ceil(wished / FILL_BATCH) * FILL_BATCH


def _fill(broker: ServerProcess, row: Row) -> None:
    share = row.filled // len(row.topics)
    run_apart(_fill_topics, broker.port, row.topics, share)
    for topic in row.topics:
        await_ready(broker.port, topic, share)


def _fill_topics(port: int, topics: Sequence[str], messages: int) -> None:
    dues = np.full(messages, int(time.time() * 1000), np.int64)
    for topic in topics:
        fill(port, topic, dues)


def _check(broker: ServerProcess, row: Row, settled: int) -> None:
    """What is not settled is ready, and there is some."""
    found = [counts(broker.port, topic) for topic in row.topics]
    ready, leased = (sum(each[state] for each in found) for state in ("ready", "leased"))
    if (ready, leased) != (row.filled - settled, 0) or not all(each["ready"] for each in found):
        raise LoadError(
            f"{row.topics[0]}: {row.filled} messages were ready and {settled} are settled, now "
            f"{ready} are ready and {leased} under lease"
        )
