"""The everyday request: one message or ten a request, by one client, eight or fifty.

Here the cost of a request decides, not that of a message. Four tables: requests that send, with
the floors they are held against; larger bodies with ids beside Redis (everyday_bulk.py); consumers
of what is ready (everyday_consumers.py); and messages that come and go at a fixed pace
(everyday_open.py). The one rule: after each group of rows the broker is asked for its counts, which
have to agree with what its clients saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import everyday_bulk
import everyday_consumers
import everyday_open
import everyday_redis
from broker_process import Brokers
from clients import Until
from consuming import Cycle, Taking
from everyday_bulk import NamedBatches, bulk_requests
from floors import SINGLE_PATH, bare_server, single_requests
from redis_peer import pack, reference_programs
from rounds import COLUMNS, Case, Endpoint, Round, figures, fixed, messages_of, ratio
from settings import BODY_BYTES, SINGLES_LANES, Settings
from tables import Column, Table, Target, at_least, at_most, microseconds, times
from wire import json_request
from yardstick import HANDLER_US, RESP, Bench, Yardstick, check_counts, http_of, resp_of

LONE_ROWS: Final = (1, 10, 100, 1_000)
EIGHT: Final = 8
# Messages of one request, and the target in us of its processor time.
EIGHT_ROWS: Final = {1: None, 10: 100.0, 100: 160.0}
BODY: Final = b"x" * BODY_BYTES

BARE: Final = "bare handler, 50 connections"
SINGLE: Final = "single JSON sends, 50 connections"
VERB: Final = "DL.SEND, 50 connections"
LUA: Final = "Redis: hash + sorted set by Lua, 50 connections"
ALONE: Final = "bare handler, alone"
SYNCED: Final = "bare handler with a sync by a thread, alone"
LONE_TEN: Final = "bulk of 10, alone"
CYCLE: Final = "send, receive, ack, alone (of all three)"


def measure(brokers: Brokers, settings: Settings) -> Iterator[Table]:
    """Four tables; the first one has the floors that scale the targets of all."""
    bench = Bench(brokers, settings, reference_programs())
    table, yardstick = _requests(bench)
    yield table
    yield everyday_bulk.measure(bench, yardstick)
    yield everyday_consumers.measure(bench, yardstick)
    yield everyday_open.measure(bench, yardstick)


def _requests(bench: Bench) -> tuple[Table, Yardstick]:
    table = Table(
        f"everyday requests: {BODY_BYTES} B bodies, fsync always, "
        f"{bench.settings.everyday_rounds} rounds in turns",
        [
            *COLUMNS,
            Column("floor us", "floor_us", microseconds),
            Column("of bare", "of_bare", times),
            Column("of Redis", "of_redis", times),
        ],
    )
    fifty = _fifty(bench)
    shown = {case: figures(rounds) for case, rounds in (fifty | _alone(bench)).items()}
    shown |= {case: figures(rounds) for case, rounds in _eight(bench).items()}
    yardstick = Yardstick(*(shown[case]["server_us"] for case in (BARE, ALONE, SYNCED)))
    for case in (SINGLE, VERB):
        shown[case]["of_bare"] = ratio(fifty[case], fifty[BARE])
        shown[case]["of_redis"] = ratio(fifty[case], fifty[LUA])
    shown[SINGLE]["floor_us"] = yardstick.handler_us
    shown[LONE_TEN]["floor_us"] = yardstick.synced_us
    shown[CYCLE]["floor_us"] = yardstick.alone_us + 2 * yardstick.synced_us
    targets = _targets(shown, yardstick)
    for case, row in shown.items():
        table.add(case, row, targets.get(case, ()))
    table.notes += [
        f"Targets on rates and processor time, here and below, are scaled by "
        f"{yardstick.slowness:.2f}: what the bare handler on 50 connections takes in this run, by "
        f"the {HANDLER_US:.0f} us that it took when they were set.",
        "Figures are of requests, whatever the messages in one. The floor of the lone cycle is a "
        "bare handler and two with a sync.",
    ]
    return table, yardstick


def _targets(
    shown: Mapping[str, Mapping[str, Any]], yardstick: Yardstick
) -> dict[str, list[Target]]:
    found = {
        SINGLE: [
            at_least(shown[SINGLE]["of_bare"], 1.4, "1.4 x bare"),
            yardstick.cost(shown[SINGLE], 32.0),
        ],
        VERB: [yardstick.rate(shown[VERB], 30_000)],
    }
    for case, factor in ((LONE_TEN, 1.5), (CYCLE, 1.6)):
        bound = factor * shown[case]["floor_us"]
        text = f"{factor} x floor, {microseconds(bound)} us"
        found[case] = [at_most(shown[case]["server_us"], bound, text)]
    for rows, bound_us in EIGHT_ROWS.items():
        if bound_us:
            found[_eight_of(rows)] = [yardstick.cost(shown[_eight_of(rows)], bound_us)]
    return found


def _fifty(bench: Bench) -> dict[str, list[Round]]:
    """Single sends on 50 connections: a bare handler, the broker by HTTP and RESP, Redis."""
    lanes = SINGLES_LANES
    verb = pack([b"DL.SEND", b"verb", b"3600000", BODY])
    with ExitStack() as stack:
        bare = stack.enter_context(bare_server("application"))
        broker = stack.enter_context(bench.brokers.fresh(*RESP))
        redis = stack.enter_context(bench.redis())
        digest = everyday_redis.loaded(redis, everyday_redis.SEND)
        batches = everyday_redis.RedisBatches(digest, 1, BODY, lanes)
        cases = {
            BARE: fixed(http_of(bare), single_requests(SINGLE_PATH), lanes),
            SINGLE: fixed(http_of(broker), single_requests("/v1/topics/json/messages"), lanes),
            VERB: fixed(resp_of(broker), [verb], lanes),
            LUA: Case(resp_of(redis), lambda until: Until(batches.request, lanes, until), lanes),
        }
        done = bench.compare(cases)
        check_counts(broker.port, "json", waiting=messages_of(done[SINGLE]))
        check_counts(broker.port, "verb", waiting=messages_of(done[VERB]))
        everyday_redis.check_stored(redis, messages_of(done[LUA]))
    return done


def _alone(bench: Bench) -> dict[str, list[Round]]:
    """A lone client: floors, bulk bodies, and the life of one message."""
    named = "bulk of 10 with ids, alone"
    loose = "bulk of 10, alone, --fsync interval"
    bulks = {f"bulk of {rows:,}, alone": rows for rows in LONE_ROWS}
    with ExitStack() as stack:
        bare = stack.enter_context(bare_server("application"))
        folder = stack.enter_context(bench.brokers.folder())
        synced = stack.enter_context(bare_server("synced", str(folder / "synced")))
        broker = stack.enter_context(bench.brokers.fresh())
        interval = stack.enter_context(bench.brokers.fresh("--fsync", "interval"))
        batches = NamedBatches("named", 10, BODY_BYTES, 1)
        cases = {
            ALONE: fixed(http_of(bare), single_requests(SINGLE_PATH), 1),
            SYNCED: fixed(http_of(synced), single_requests(SINGLE_PATH), 1),
            **{
                case: fixed(http_of(broker), bulk_requests(f"bulk-{rows}", rows, BODY_BYTES), 1)
                for case, rows in bulks.items()
            },
            named: Case(http_of(broker), lambda until: Until(batches.request, 1, until), 1),
            loose: fixed(http_of(interval), bulk_requests("bulk-10", 10, BODY_BYTES), 1),
            CYCLE: _cycle(http_of(broker)),
        }
        done = bench.compare(cases)
        for case, rows in bulks.items():
            check_counts(broker.port, f"bulk-{rows}", waiting=rows * messages_of(done[case]))
        check_counts(broker.port, "named", waiting=10 * messages_of(done[named]))
        check_counts(interval.port, "bulk-10", waiting=10 * messages_of(done[loose]))
        check_counts(broker.port, "cycle", acked=messages_of(done[CYCLE]), ready=0, leased=0)
    return done


def _cycle(endpoint: Endpoint) -> Case:
    send = json_request("/v1/topics/cycle/messages", b'{"body":"%b"}' % BODY)
    return Case(endpoint, partial(Cycle, Taking(["cycle"]), send, 1), 1)


def _eight(bench: Bench) -> dict[str, list[Round]]:
    """Eight clients, each with one bulk body under way."""
    with bench.brokers.fresh() as broker:
        cases = {
            _eight_of(rows): fixed(
                http_of(broker), bulk_requests(f"eight-{rows}", rows, BODY_BYTES), EIGHT
            )
            for rows in EIGHT_ROWS
        }
        done = bench.compare(cases)
        for rows in EIGHT_ROWS:
            sent = rows * messages_of(done[_eight_of(rows)])
            check_counts(broker.port, f"eight-{rows}", waiting=sent)
    return done


def _eight_of(rows: int) -> str:
    return f"bulk of {rows:,}, {EIGHT} clients"
