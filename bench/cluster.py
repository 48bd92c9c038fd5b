"""What a cluster of three costs: ingest, lateness, and how fast a node catches up.

All nodes, the clients and the single broker that stands beside them share this machine, so the
processor time a message, over all nodes, says more than the rate.
"""

from __future__ import annotations

import time
from typing import Any, Final

from broker_process import Brokers
from clients import counts
from cluster_process import NODES, Cluster, ask, cluster
from lateness import COLUMNS, lateness_figures, produce_and_receive
from load import LoadError
from sending import Timed, timed_sends
from settings import BODY_BYTES, INGEST_LANES, Settings
from tables import Column, Table, Target, at_least, at_most, median, microseconds, percent, rate
from workers import run_apart

BATCH: Final = 10_000
HOURS: Final = 24
LATENESS_RATE: Final = 1_000
CATCH_UP_TIMEOUT_S: Final = 120.0
TOPIC: Final = "t"


def ingest(brokers: Brokers, settings: Settings) -> Table:
    """Bulk sends into one broker, then into a cluster with acks=quorum; then a node comes back."""
    table = Table(
        f"cluster ingest: {BODY_BYTES} B bodies, {BATCH:,} a batch over {HOURS} h, "
        f"{INGEST_LANES} connections, median of {settings.ingest_runs}",
        [
            Column("messages/s", "rate", rate),
            Column("of one broker", "of_single", percent),
            Column("all nodes' CPU us", "all_us", microseconds),
            Column("leader CPU us", "server_us", microseconds),
            Column("client CPU us", "client_us", microseconds),
            Column("of live ingest", "of_live", lambda value: f"{value:.1f} x"),
        ],
    )
    with brokers.fresh() as broker:
        before_s = broker.cpu_seconds()
        single = _runs(broker.port, broker.process_id, settings)
        broker.settle(limit_s=settings.settle_s)
        figures = _figures(single, broker.cpu_seconds() - before_s, counts(broker.port, TOPIC))
    table.add("one broker", figures, [])
    alone = figures["rate"]
    with cluster(brokers) as nodes:
        leader = nodes.leader()
        before_s = nodes.cpu_seconds()
        runs = _runs(nodes.ports[leader], nodes.nodes[leader].process_id, settings)
        for node in nodes.nodes.values():
            node.settle(limit_s=settings.settle_s)
        spent_s = nodes.cpu_seconds() - before_s
        figures = _figures(runs, spent_s, counts(nodes.ports[leader], TOPIC))
        figures["of_single"] = figures["rate"] / alone
        table.add("quorum of three", figures, [at_least(figures["of_single"], 0.4, "40 %")])
        caught = _catch_up(nodes, leader, settings)
        live = figures["rate"]
    table.add(
        "a node catches up",
        {"rate": caught, "of_live": caught / live},
        [at_least(caught / live, 3.0, "3 x live ingest")],
    )
    return table


def lateness(brokers: Brokers, settings: Settings) -> Table:
    """As the lateness of one broker, with three nodes."""
    table = Table(f"cluster lateness: three nodes, {settings.lateness_s:.0f} s", COLUMNS)
    with cluster(brokers) as nodes:
        leader = nodes.leader()
        port = nodes.ports[leader]
        produce_and_receive(port, 500, 2.0, topic="warm-up")
        before_s, began = nodes.cpu_seconds(), time.monotonic()
        produced, received = produce_and_receive(
            port, LATENESS_RATE, settings.lateness_s, topic="late"
        )
        cpu_s, wall_s = nodes.cpu_seconds() - before_s, time.monotonic() - began
        if nodes.leader() != leader:
            raise LoadError("the leadership changed under the measurement")
    figures = lateness_figures(received, produced.sent)
    figures |= {"core": cpu_s / wall_s, "server_us": cpu_s / produced.sent * 1e6}
    targets: list[Target] = [at_most(figures["early"], 0, "0 early")]
    targets.insert(0, at_most(figures["p99_ms"], 10.0, "10 ms p99"))
    table.add(f"{LATENESS_RATE:,} messages/s", figures, targets)
    return table


def _runs(port: int, process_id: int, settings: Settings) -> list[Timed]:
    return run_apart(
        timed_sends,
        port,
        process_id,
        batch=BATCH,
        hours=HOURS,
        messages=settings.ingest_messages[BATCH],
        runs=settings.ingest_runs,
        lanes=INGEST_LANES,
    ).value


def _figures(runs: list[Timed], spent_s: float, kept: dict[str, Any]) -> dict[str, Any]:
    return {
        "rate": median([run.rate for run in runs]),
        "server_us": median([run.server_us for run in runs]),
        "client_us": median([run.client_us for run in runs]),
        "all_us": spent_s / kept["waiting"] * 1e6,
    }


def _catch_up(nodes: Cluster, leader: int, settings: Settings) -> float:
    """Messages a second with which a node that was away comes back to the leader's log."""
    away = next(node for node in NODES if node != leader)
    nodes.nodes[away].stop()
    messages = settings.ingest_messages[BATCH]
    _runs(nodes.ports[leader], nodes.nodes[leader].process_id, settings)
    sent = messages * settings.ingest_runs + max(INGEST_LANES, messages // BATCH // 10) * BATCH
    nodes.nodes[leader].settle(limit_s=settings.settle_s)
    wanted = _position(nodes.ports[leader], "durable")
    again = nodes.node(away)
    nodes.nodes[away] = again
    with again:
        began = time.monotonic()
        while _position(nodes.ports[away], "durable") < wanted:
            if time.monotonic() - began > CATCH_UP_TIMEOUT_S:
                raise LoadError(f"node {away} did not catch up in {CATCH_UP_TIMEOUT_S:.0f} s")
            time.sleep(0.02)
        return sent / (time.monotonic() - began)


def _position(port: int, name: str) -> int:
    status, members = ask(port, "/v1/cluster")
    if status != 200:
        raise LoadError(f"GET /v1/cluster: {status}")
    return int(members[name])
