"""Three nodes hold ten years of messages under 1,024 descriptors each; the leader is killed."""

from __future__ import annotations

import time
from typing import Final

from broker_process import Brokers
from clients import counts
from cluster_process import Cluster, ask, cluster
from load import LoadError
from sending import timed_sends
from settings import INGEST_LANES, Settings
from tables import Column, Table, at_most, mebibytes, rate, seconds, whole
from workers import run_apart
from years import BATCH, DESCRIPTORS, HOURS, TOPIC, few_files, of_process

_LEADER_TIMEOUT_S: Final = 20.0


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Send with acks=quorum, kill the leader, count what its successor has."""
    messages = settings.years_messages
    table = Table(
        f"years, cluster: {rate(messages)} messages evenly over ten years, three nodes, "
        f"{DESCRIPTORS:,} descriptors each",
        [
            Column("messages/s", "rate", rate),
            Column("serving again s", "again_s", seconds),
            Column("open files", "files", whole),
            Column("RSS MiB", "rss", mebibytes),
            Column("private MiB", "rss_anon", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    with cluster(Brokers([*few_files(), *brokers.program], brokers.data_root)) as nodes:
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
        again_s = _serving_again(nodes, leader)
        successor = nodes.leader()
        figures, targets = of_process(nodes.nodes[successor])
        if (kept := counts(nodes.ports[successor], TOPIC)["waiting"]) != sent:
            raise LoadError(f"{sent} messages were pending before the kill, {kept} after")
        targets = [at_most(again_s, 1.0, "1 s"), *targets]
        table.add("leader killed", figures | {"again_s": again_s}, targets)
    return table


def _serving_again(nodes: Cluster, killed: int) -> float:
    """Seconds from now until one of the others answers as the leader."""
    begun = time.monotonic()
    while time.monotonic() - begun < _LEADER_TIMEOUT_S:
        for number, port in nodes.ports.items():
            if number != killed and ask(port, "/v1/topics")[0] == 200:
                return time.monotonic() - begun
        time.sleep(0.005)
    raise LoadError(f"nobody leads {_LEADER_TIMEOUT_S:.0f} s after the leader's end")
