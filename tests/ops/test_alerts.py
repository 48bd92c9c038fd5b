"""Each alert fires in the trouble that it is about, and no other one; none fires in quiet times.

Method: samples of a cluster of three nodes, changed in one place, and the rules of ops/
evaluated over them by a small evaluator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import promql_parser
import pytest
import yaml

from tests.ops.promql import Labels, Series

RULES: Final = [
    rule | {"parsed": promql_parser.parse(rule["expr"])}
    for group in yaml.safe_load(
        (Path(__file__).parents[2] / "ops" / "prometheus" / "rules.yaml").read_text()
    )["groups"]
    for rule in group["rules"]
]
ALERTS: Final = {rule["alert"] for rule in RULES if "alert" in rule}
STEP_S: Final = 60
TROUBLE_S: Final = 1_800.0
"""When the trouble begins."""
END_S: Final = 4_500
NODES: Final = ("a", "b", "c")
GIB: Final = float(1 << 30)

Sample: TypeAlias = tuple[str, Labels]
Samples: TypeAlias = dict[Sample, float]


def of(name: str, instance: str, **labels: str) -> Sample:
    return name, frozenset({"job": "delaylog", "instance": instance, **labels}.items())


def quiet(at_s: float) -> Samples:
    """Ten messages a second in one topic; node a leads."""
    done, topic = 10.0 * at_s, {"namespace": "default", "topic": "t"}
    group = {**topic, "group": "g"}
    out: Samples = {}
    for node in NODES:
        out |= {
            of("delaylog_info", node, version="1"): 1.0,
            of("delaylog_delivered_total", node, **group): done,
            of("delaylog_ended_total", node, **group, state="acked"): done,
            of("delaylog_ended_total", node, **group, state="dead"): 3.0,
            of("delaylog_push_targets", node, state="open"): 0.0,
            of("delaylog_push_targets", node, state="closed"): 2.0,
            of("delaylog_disk_full", node): 0.0,
            of("delaylog_held", node): 0.0,
            of("delaylog_disk_free_bytes", node): 100 * GIB,
            of("delaylog_audit_failing", node): 0.0,
            of("process_open_fds", node): 100.0,
            of("process_max_fds", node): 65_536.0,
            of("delaylog_cluster_leader_known", node): 1.0,
            of("delaylog_cluster_lost_commits_total", node): 0.0,
            of("delaylog_cluster_missing_voters", node): 0.0,
            of("delaylog_cluster_own_clock_offset_seconds", node): 0.01,
            of("delaylog_cluster_leaderships_total", node): 1.0,
        }
        for name, samples in (("loop_lag", 100 * at_s), ("fsync", 20 * at_s)):
            out |= {
                of(f"delaylog_{name}_seconds_count", node): samples,
                of(f"delaylog_{name}_seconds_bucket", node, le="0.1"): samples,
                of(f"delaylog_{name}_seconds_bucket", node, le="0.5"): samples,
            }
    return out | {
        of("delaylog_ready_messages", "a", **group): 0.0,
        of("delaylog_cluster_follower_lag_bytes", "a", node="2"): 1_000.0,
        of("delaylog_cluster_follower_lag_seconds_count", "a", node="2"): 50 * at_s,
        of("delaylog_cluster_follower_lag_seconds_bucket", "a", node="2", le="5.0"): 50 * at_s,
        # This node led once.
        of("delaylog_cluster_follower_lag_seconds_count", "b", node="2"): 9.0,
        of("delaylog_cluster_follower_lag_seconds_bucket", "b", node="2", le="5.0"): 8.0,
        of("delaylog_ready_lateness_seconds_count", "a", **topic): done,
        of("delaylog_ready_lateness_seconds_bucket", "a", **topic, le="0.1"): done,
    }


Trouble: TypeAlias = Callable[[Samples, float], None]


def sets(name: str, value: float, *nodes: str, **labels: str) -> Trouble:
    """The gauge of some nodes has a value; all nodes if none are named."""

    def change(samples: Samples, passed_s: float) -> None:
        for sample in samples:
            if sample[0] != name or not labels.items() <= dict(sample[1]).items():
                continue
            if not nodes or dict(sample[1])["instance"] in nodes:
                samples[sample] = value

    return change


def adds(name: str, at_once: float, a_second: float = 0.0, **labels: str) -> Trouble:
    """A counter of all nodes grows by more."""

    def change(samples: Samples, passed_s: float) -> None:
        for sample in samples:
            if sample[0] == name and labels.items() <= dict(sample[1]).items():
                samples[sample] += at_once + a_second * passed_s

    return change


def waits(delivered: bool) -> Trouble:
    """A message waits since the trouble began, with or without hand-outs of others."""

    def change(samples: Samples, passed_s: float) -> None:
        group = {"namespace": "default", "topic": "t", "group": "g"}
        samples[of("delaylog_ready_messages", "a", **group)] = 5.0
        samples[of("delaylog_oldest_due_age_seconds", "a", **group)] = passed_s
        if not delivered:
            for node in NODES:
                samples[of("delaylog_delivered_total", node, **group)] = 10 * TROUBLE_S

    return change


def held(samples: Samples, passed_s: float) -> None:
    """The broker is held while messages are due."""
    waits(delivered=False)(samples, passed_s)
    sets("delaylog_held", 1.0)(samples, passed_s)


def late(share: float) -> Trouble:
    return adds("delaylog_ready_lateness_seconds_bucket", 0.0, -10 * share)


def filling(samples: Samples, passed_s: float) -> None:
    """A gibibyte a minute."""
    samples[of("delaylog_disk_free_bytes", "a")] -= GIB * passed_s / 60


TROUBLES: Final[dict[str, tuple[Trouble, set[str]]]] = {
    "late messages": (late(0.2), {"DelaylogLateFast", "DelaylogLateSlow"}),
    "some late messages": (late(0.015), {"DelaylogLateSlow"}),
    # A count grows by one, and no bucket below it.
    "a stall of ten seconds": (
        adds("delaylog_loop_lag_seconds_count", 1.0),
        {"DelaylogLoopBlocked"},
    ),
    "many short stalls": (
        adds("delaylog_loop_lag_seconds_bucket", 0.0, -0.5, le="0.1"),
        {"DelaylogLoopBlocked"},
    ),
    "a few short stalls": (adds("delaylog_loop_lag_seconds_bucket", 0.0, -0.05, le="0.1"), set()),
    "a sync of ten seconds": (adds("delaylog_fsync_seconds_count", 1.0), {"DelaylogDiskSlow"}),
    "a held broker": (held, {"DelaylogHeld"}),
    "nobody takes messages": (waits(delivered=False), {"DelaylogConsumerStuck"}),
    "consumers are behind": (waits(delivered=True), {"DelaylogConsumerSlow"}),
    "a dead letter": (
        adds("delaylog_ended_total", 1.0, state="dead"),
        {"DelaylogDeadLetters"},
    ),
    "an open target": (
        sets("delaylog_push_targets", 1.0, "a", state="open"),
        {"DelaylogPushTargetOpen"},
    ),
    "a full disk": (sets("delaylog_disk_full", 1.0, "a"), {"DelaylogDiskFull"}),
    "a disk that fills up": (filling, {"DelaylogDiskFullSoon"}),
    "no audit log": (sets("delaylog_audit_failing", 1.0, "a"), {"DelaylogAuditFailing"}),
    "few descriptors": (sets("process_open_fds", 60_000.0, "a"), {"DelaylogDescriptorsScarce"}),
    "no leader": (sets("delaylog_cluster_leader_known", 0.0), {"DelaylogNoLeader"}),
    "one node knows no leader": (sets("delaylog_cluster_leader_known", 0.0, "b"), set()),
    "lost commits": (
        adds("delaylog_cluster_lost_commits_total", 1.0),
        {"DelaylogCommitsLost"},
    ),
    "a missing voter": (
        sets("delaylog_cluster_missing_voters", 1.0, "a"),
        {"DelaylogVoterMissing"},
    ),
    "a follower behind": (
        sets("delaylog_cluster_follower_lag_bytes", GIB),
        {"DelaylogFollowerBehind"},
    ),
    "a follower that is late": (
        adds("delaylog_cluster_follower_lag_seconds_bucket", 0.0, -40),
        {"DelaylogFollowerLate"},
    ),
    "a follower that is late at times": (
        adds("delaylog_cluster_follower_lag_seconds_bucket", 0.0, -10),
        set(),
    ),
    "a wrong clock": (
        sets("delaylog_cluster_own_clock_offset_seconds", -2.0, "c"),
        {"DelaylogClockOff"},
    ),
    "elections": (
        adds("delaylog_cluster_leaderships_total", 0.0, 1 / 600),
        {"DelaylogLeadershipUnsteady"},
    ),
}


def fired(trouble: Trouble) -> dict[str, list[Labels]]:
    """The alerts that fire at some time, with the labels of their first time."""
    series, pending, out = Series(), dict[tuple[str, Labels], int](), dict[str, list[Labels]]()
    for at_s in range(0, END_S + 1, STEP_S):
        samples = quiet(at_s)
        if at_s >= TROUBLE_S:
            trouble(samples, at_s - TROUBLE_S)
        for (name, labels), value in samples.items():
            series.add(at_s, name, labels, value)
        for rule in RULES:
            found = series.evaluate(rule["parsed"], at_s)
            if "record" in rule:
                for labels, value in found.items():
                    series.add(at_s, rule["record"], labels, value)
                continue
            name, wait_s = rule["alert"], seconds(rule.get("for", "0s"))
            for one in [key for key in pending if key[0] == name and key[1] not in found]:
                del pending[one]
            ready = [
                each for each in found if at_s - pending.setdefault((name, each), at_s) >= wait_s
            ]
            if ready:
                out.setdefault(name, ready)
    return out


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3_600}[text[-1]]


def test_nothing_fires_in_quiet_times() -> None:
    assert fired(lambda samples, passed_s: None) == {}


def test_each_alert_has_a_trouble() -> None:
    assert set().union(*(alerts for _, alerts in TROUBLES.values())) == ALERTS


@pytest.mark.parametrize("name", TROUBLES)
def test_the_alert_of_a_trouble_fires(name: str) -> None:
    trouble, alerts = TROUBLES[name]
    assert set(fired(trouble)) == alerts


def test_a_dead_letter_of_a_cluster_is_one_alert() -> None:
    """All nodes count it."""
    found: Any = fired(TROUBLES["a dead letter"][0])
    assert len(found["DelaylogDeadLetters"]) == 1
