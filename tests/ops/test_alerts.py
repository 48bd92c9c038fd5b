"""Each alert fires in the trouble that it is about, and no other one; none fires in quiet times.

Method: samples of clusters of three nodes over four hours, each changed in one place at some time,
are given to Prometheus, which evaluates the expressions of the rules at each minute. `for` is
applied here. Each trouble is a job of its own: one Prometheus judges all of them.
`test_alerts_live.py` has Prometheus scrape brokers that are really in trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pytest

from delaylog.broker.host.watch.metrics_table import METRICS
from tests.ops.prometheus import (
    ALERTS,
    RULES,
    RULES_FILE,
    Prometheus,
    backfill,
    expanded,
    promtool,
)

STEP_S: Final = 60
TROUBLE_S: Final = 1.75 * 3_600
"""When the trouble begins."""
END_S: Final = 4 * 3_600
BEGAN_S: Final = (time.time() - END_S) // STEP_S * STEP_S
NODES: Final = ("a", "b", "c")
GIB: Final = float(1 << 30)
DAY_S: Final = 86_400.0

Labels: TypeAlias = frozenset[tuple[str, str]]
Sample: TypeAlias = tuple[str, Labels]
Samples: TypeAlias = dict[Sample, float]


def of(name: str, instance: str, **labels: str) -> Sample:
    return name, frozenset({"instance": instance, **labels}.items())


def quiet(at_s: float) -> Samples:
    """Ten messages a second in one topic; node a leads."""
    done, topic = 10.0 * at_s, {"namespace": "default", "topic": "t"}
    group = {**topic, "group": "g"}
    out: Samples = {}
    for node in NODES:
        out |= {
            of("up", node): 1.0,
            of("delaylog_info", node, version="1"): 1.0,
            of("delaylog_reload_failed", node, source="tls"): 0.0,
            of("delaylog_certificate_expires_timestamp_seconds", node, source="tls"): BEGAN_S
            + 60 * DAY_S,
            of("delaylog_backup_timestamp_seconds", node): BEGAN_S,
            of("delaylog_problems_total", node, face="http", code="unauthorized"): 2.0,
            of("delaylog_problems_total", node, face="http", code="forbidden"): 0.0,
            of("delaylog_problems_total", node, face="http", code="not_ready"): done,
            of("delaylog_resp_failed_logins_total", node): 0.0,
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
            of("delaylog_cluster_majority", node): 1.0,
            of("delaylog_cluster_role", node, role="quarantined"): 0.0,
            of("delaylog_cluster_role", node, role="leader"): float(node == "a"),
            of("delaylog_log_end_position", node): 100 * at_s,
            of("delaylog_cluster_commit_position", node): 100 * at_s,
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
        of("delaylog_cluster_gate_age_seconds", "a"): 0.03,
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


def moving(trouble: Trouble) -> Trouble:
    """Another node leads every four minutes. What only the leader tells, nobody tells at the first
    scrape of the next one.
    """
    of_leader = ("delaylog_oldest_due_age_seconds", "delaylog_ready_messages")

    def change(samples: Samples, passed_s: float) -> None:
        trouble(samples, passed_s)
        turn, since_s = divmod(passed_s, 240)
        for name, labels in [sample for sample in samples if sample[0] in of_leader]:
            value = samples.pop((name, labels))
            if since_s:
                leader = NODES[int(turn) % len(NODES)]
                samples[name, frozenset((dict(labels) | {"instance": leader}).items())] = value

    return change


def fresh(samples: Samples, passed_s: float) -> None:
    """A folder that was made when the trouble began takes its reserve and first segments."""
    for node in NODES:
        free = of("delaylog_disk_free_bytes", node)
        samples[free] = 2.0 * GIB - min(passed_s / 120, 1.0) * 0.4 * GIB - passed_s * 10_000


def before_fresh(samples: Samples) -> None:
    for node in NODES:
        del samples[of("delaylog_disk_free_bytes", node)]


def gone(*nodes: str) -> Trouble:
    """Nodes are down: Prometheus has no samples of them but this one."""

    def change(samples: Samples, passed_s: float) -> None:
        for sample in list(samples):
            if dict(sample[1])["instance"] in nodes:
                del samples[sample]
        samples.update({of("up", node): 0.0 for node in nodes})

    return change


def both(*troubles: Trouble) -> Trouble:
    def change(samples: Samples, passed_s: float) -> None:
        for trouble in troubles:
            trouble(samples, passed_s)

    return change


def late(share: float) -> Trouble:
    return adds("delaylog_ready_lateness_seconds_bucket", 0.0, -10 * share)


def filling(samples: Samples, passed_s: float) -> None:
    """A gibibyte a minute."""
    samples[of("delaylog_disk_free_bytes", "a")] -= GIB * passed_s / 60


QUIET: Final = "none"
TROUBLES: Final[dict[str, tuple[Trouble, set[str]]]] = {
    "late messages": (late(0.2), {"DelaylogLateFast", "DelaylogLateSlow"}),
    "some late messages": (late(0.014), {"DelaylogLateSlow"}),
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
    "nobody takes messages, leaders change": (
        moving(waits(delivered=False)),
        {"DelaylogConsumerStuck"},
    ),
    "all nodes are down": (gone(*NODES), {"DelaylogDown", "DelaylogNodeDown"}),
    "a node is down": (
        both(gone("b"), sets("delaylog_cluster_missing_voters", 1.0)),
        {"DelaylogNodeDown", "DelaylogVoterMissing"},
    ),
    "two nodes are down": (
        both(
            gone("a", "b"),
            sets("delaylog_cluster_missing_voters", 2.0),
            sets("delaylog_cluster_leader_known", 0.0),
            sets("delaylog_cluster_majority", 0.0),
        ),
        {
            "DelaylogNodeDown",
            "DelaylogVoterMissing",
            "DelaylogNoLeader",
            "DelaylogMajorityLost",
        },
    ),
    "a leader whose gate is shut": (
        sets("delaylog_cluster_gate_age_seconds", 30.0),
        {"DelaylogNothingCommitted"},
    ),
    "a leader that commits nothing": (
        sets("delaylog_cluster_commit_position", 100 * TROUBLE_S),
        {"DelaylogNothingCommitted"},
    ),
    "a reload fails": (sets("delaylog_reload_failed", 1.0, "b"), {"DelaylogReloadFailed"}),
    "a certificate ends within days": (
        sets("delaylog_certificate_expires_timestamp_seconds", BEGAN_S + 7 * DAY_S, "c"),
        {"DelaylogCertificateEndsSoon"},
    ),
    "a certificate ends tomorrow": (
        sets("delaylog_certificate_expires_timestamp_seconds", BEGAN_S + DAY_S, "c"),
        {"DelaylogCertificateEndsSoon", "DelaylogCertificateEnds"},
    ),
    "the newest backup is old": (
        sets("delaylog_backup_timestamp_seconds", BEGAN_S - DAY_S),
        {"DelaylogBackupOld"},
    ),
    "another node was backed up": (
        sets("delaylog_backup_timestamp_seconds", BEGAN_S - DAY_S, "a", "b"),
        set(),
    ),
    "a client with a wrong token": (
        adds("delaylog_problems_total", 0.0, 0.1, code="unauthorized"),
        {"DelaylogLoginsRefused"},
    ),
    "a client that lacks a right": (
        adds("delaylog_problems_total", 0.0, 0.1, code="forbidden"),
        {"DelaylogLoginsRefused"},
    ),
    "a Redis client with a wrong password": (
        adds("delaylog_resp_failed_logins_total", 0.0, 0.1),
        {"DelaylogLoginsRefused"},
    ),
    "a quarantined node": (
        sets("delaylog_cluster_role", 1.0, "b", role="quarantined"),
        {"DelaylogQuarantined"},
    ),
    "consumers are behind": (waits(delivered=True), {"DelaylogConsumerSlow"}),
    "a dead letter": (
        adds("delaylog_ended_total", 1.0, state="dead"),
        {"DelaylogDeadLetters"},
    ),
    "an open target": (
        sets("delaylog_push_targets", 1.0, "a", state="open"),
        {"DelaylogPushTargetOpen"},
    ),
    "a fresh folder": (fresh, set()),
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
        adds("delaylog_cluster_follower_lag_seconds_bucket", 0.0, -40, instance="a"),
        {"DelaylogFollowerLate"},
    ),
    "a follower that is late at times": (
        adds("delaylog_cluster_follower_lag_seconds_bucket", 0.0, -10, instance="a"),
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


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, set[Labels]]]]:
    """By trouble, the alerts that fire at some time, with their labels."""
    folder = tmp_path_factory.mktemp("alerts")
    backfill(folder, lines())
    prometheus = Prometheus(folder)
    try:
        yield _fired(prometheus)
    finally:
        prometheus.stop()


def lines() -> Iterator[str]:
    """The samples of all troubles, and of none."""
    for name, (trouble, _) in {QUIET: (lambda samples, passed_s: None, set()), **TROUBLES}.items():
        for at_s in range(0, END_S + 1, STEP_S):
            samples = quiet(at_s)
            if at_s >= TROUBLE_S:
                trouble(samples, at_s - TROUBLE_S)
            elif name == "a fresh folder":
                before_fresh(samples)
            for (metric, labels), value in samples.items():
                shown = ",".join(f'{key}="{text}"' for key, text in sorted(labels))
                yield f'{metric}{{job="delaylog {name}",{shown}}} {value} {BEGAN_S + at_s:.0f}'


def _fired(prometheus: Prometheus) -> dict[str, dict[str, set[Labels]]]:
    out: dict[str, dict[str, set[Labels]]] = {name: {} for name in (QUIET, *TROUBLES)}
    for rule in RULES:
        if "record" in rule:
            continue
        # From an hour on: before, counters and windows begin.
        found = prometheus.ask(
            "query_range",
            query=expanded(rule),
            start=BEGAN_S + 3_600,
            end=BEGAN_S + END_S,
            step=STEP_S,
        )
        for series in found["result"]:
            if longest_s(series["values"]) >= seconds(rule.get("for", "0s")):
                labels = dict(series["metric"])
                labels.pop("__name__", None)
                job = labels.pop("job").removeprefix("delaylog ")
                out[job].setdefault(rule["alert"], set()).add(frozenset(labels.items()))
    return out


def longest_s(values: list[tuple[float, str]]) -> float:
    """The longest time in which an expression held at each step."""
    longest = began = last = float(values[0][0])
    longest = 0.0
    for at_s, _ in values:
        if at_s - last > STEP_S:
            began = at_s
        last = at_s
        longest = max(longest, last - began)
    return longest


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3_600}[text[-1]]


def test_nothing_fires_in_quiet_times(fired: Any) -> None:
    assert fired[QUIET] == {}


def test_each_alert_has_a_trouble() -> None:
    assert set().union(*(alerts for _, alerts in TROUBLES.values())) == ALERTS


@pytest.mark.parametrize("name", TROUBLES)
def test_the_alert_of_a_trouble_fires(fired: Any, name: str) -> None:
    assert set(fired[name]) == TROUBLES[name][1]


def test_what_concerns_a_cluster_is_one_alert(fired: Any) -> None:
    """All nodes count it, or another one leads."""
    group = frozenset({("namespace", "default"), ("topic", "t"), ("group", "g")})
    assert fired["a dead letter"]["DelaylogDeadLetters"] == {group}
    moved = fired["nobody takes messages, leaders change"]
    assert moved["DelaylogConsumerStuck"] == {group}
    for name in ("DelaylogNoLeader", "DelaylogMajorityLost", "DelaylogVoterMissing"):
        assert fired["two nodes are down"][name] == {frozenset()}


def test_prometheus_accepts_the_rules() -> None:
    checked = promtool("check", "rules", RULES_FILE)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


def test_prometheus_accepts_the_names_of_all_metrics() -> None:
    """Its rules for names and units, also of metrics that few nodes have."""
    text = "".join(
        f"# HELP {row.name} {row.text}\n# TYPE {row.name} {row.kind}\n{sample(row)}\n"
        for row in METRICS.values()
    )
    checked = promtool("check", "metrics", stdin=text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def sample(row: Any) -> str:
    labels = ",".join(f'{label}="x"' for label in row.labels)
    if row.kind != "histogram":
        return f"{row.name}{{{labels}}} 1"
    comma = "," if labels else ""
    return (
        f'{row.name}_bucket{{{labels}{comma}le="+Inf"}} 1\n'
        f"{row.name}_count{{{labels}}} 1\n{row.name}_sum{{{labels}}} 1"
    )
