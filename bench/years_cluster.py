"""Three nodes hold ten years of messages under 1,024 descriptors each; the leader is killed."""

from __future__ import annotations

import time

from broker_process import Brokers
from clients import counts
from cluster_process import cluster
from load import LoadError
from sending import timed_sends
from settings import INGEST_LANES, Settings
from tables import Column, Table, at_most, mebibytes, rate, seconds, whole
from workers import run_apart
from years import BATCH, DESCRIPTORS, FEW_FILES, HOURS, TOPIC, of_process


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Send with acks=quorum, kill the leader, count what its successor has."""
    messages = settings.years_messages
    table = Table(
        f"years, cluster: {rate(messages)} messages evenly over ten years, three nodes, "
        f"{DESCRIPTORS:,} descriptors each",
        [
            Column("messages/s", "rate", rate),
            Column("a leader answers s", "again_s", seconds),
            Column("open files", "files", whole),
            Column("RSS MiB", "rss", mebibytes),
            Column("private MiB", "rss_anon", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    with cluster(Brokers([*FEW_FILES, *brokers.program], brokers.data_root)) as nodes:
        leader = nodes.leader()
        run = run_apart(
            timed_sends,
            nodes.ports[leader],
            nodes.nodes[leader].process_id,
            batch=BATCH,
            hours=HOURS,
            messages=messages,
            runs=1,
            lanes=INGEST_LANES,
        ).value[0]
        sent = counts(nodes.ports[leader], TOPIC)["waiting"]
        for number, node in nodes.nodes.items():
            node.settle(limit_s=settings.settle_s)
            figures, targets = of_process(node)
            case = "leader" if number == leader else f"follower {number}"
            table.add(case, figures | ({"rate": run.rate} if number == leader else {}), targets)
        nodes.nodes[leader].kill()
        begun = time.monotonic()
        successor = nodes.leader()
        again_s = time.monotonic() - begun
        figures, targets = of_process(nodes.nodes[successor])
        if (kept := counts(nodes.ports[successor], TOPIC)["waiting"]) != sent:
            raise LoadError(f"{sent} messages were pending before the kill, {kept} after")
        targets = [at_most(again_s, 1.0, "1 s"), *targets]
        table.add("leader killed", figures | {"again_s": again_s}, targets)
    return table
