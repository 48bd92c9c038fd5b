"""The dashboard and the rules of ops/: every expression parses, and every metric in it exists."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest

from delaylog.broker.cluster.watch.member_watch import BOUNDS as FOLLOWER_BOUNDS
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.watch.histogram import BOUNDS_MS
from delaylog.broker.host.watch.lateness import BOUNDS as LOOP_BOUNDS
from delaylog.broker.host.watch.metrics_table import METRICS
from delaylog.broker.host.watch.timings import DISK_BOUNDS
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.table import ALL
from delaylog.contract.members import Shape
from tests.ops.prometheus import RULES, RULES_FILE, promtool

OPS: Final = Path(__file__).parents[2] / "ops"
DASHBOARD: Final = json.loads((OPS / "grafana" / "delaylog.json").read_text())
TARGETS: Final = {
    f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "5m")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}
RECORDED: Final = {rule["record"] for rule in RULES if "record" in rule}
LATE_BOUNDS_S: Final = [bound / 1_000 for bound in BOUNDS_MS]
BOUNDS_S: Final = {
    "delaylog_ready_lateness_seconds": LATE_BOUNDS_S,
    "delaylog_lateness_seconds": LATE_BOUNDS_S,
    "delaylog_loop_lag_seconds": LOOP_BOUNDS,
    "delaylog_fsync_seconds": DISK_BOUNDS,
    "delaylog_cluster_follower_lag_seconds": FOLLOWER_BOUNDS,
}
REPLICATED: Final = {
    "delivered_total",
    "ended_total",
    "leased_messages",
    "living_messages",
    "parked_messages",
    "ready_messages",
    "sent_total",
}
NOT_OURS: Final = {
    "up",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
}


def selectors(node: Any) -> list[Any]:
    """All selectors of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        return [node]
    if isinstance(node, promql_parser.MatrixSelector):
        return [node.vector_selector]
    out = []
    for name in ("expr", "lhs", "rhs", "param"):
        child = getattr(node, name, None)
        if child is not None:
            out += selectors(child)
    for child in getattr(node, "args", None) or ():
        out += selectors(child)
    return out


def check(expression: str) -> None:
    """The metrics, and the labels that selectors ask for, are those of the table."""
    found = selectors(promql_parser.parse(expression))
    assert found
    for selector in found:
        name = selector.name
        if name in RECORDED or name in NOT_OURS:
            continue
        plain = re.sub("_(bucket|count|sum)$", "", name)
        row = METRICS.get(name) or METRICS.get(plain)
        assert row is not None, name
        assert (row.kind == "histogram") == (plain != name), name
        for matcher in selector.matchers.matchers:
            assert matcher.name in (*row.labels, "job", "le"), (name, matcher.name)
            if matcher.name == "le":
                assert float(matcher.value) in BOUNDS_S[plain], (name, matcher.value)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_rule(rule: dict[str, Any]) -> None:
    check(rule["expr"])
    if "alert" in rule:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_panel(target: str) -> None:
    check(TARGETS[target])


@pytest.mark.parametrize("target", TARGETS)
def test_a_panel_counts_a_cluster_once(target: str) -> None:
    """Each node has the counts of all messages: the greatest one is taken before sums."""
    for each in REPLICATED & set(re.findall("delaylog_([a-z_]+)", TARGETS[target])):
        assert re.search(rf"max by \([^)]*\) \((rate\()?delaylog_{each}", TARGETS[target])


def test_an_expression_with_an_unknown_metric_is_refused() -> None:
    with pytest.raises(AssertionError, match="delaylog_sents_total"):
        check("sum(rate(delaylog_sents_total[5m])) > 1")
    with pytest.raises(AssertionError, match="colour"):
        check('delaylog_sent_total{colour="red"}')


def test_each_alert_is_described() -> None:
    """docs/WATCH.md says what to do."""
    page = (OPS.parent / "docs" / "WATCH.md").read_text()
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    assert {name for name in alerts if f"`{name}`" not in page} == set()


def test_panels_do_not_overlap() -> None:
    """Grafana would move them."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def members(call: ApiCall) -> tuple[Any, ...]:
    """The declared parameters of a call, and the members of its body."""
    shape = None if call.takes is None else call.takes.shape
    return (*call.query, *(shape.members if isinstance(shape, Shape) else ()))


def test_the_times_of_calls_leave_out_long_polls() -> None:
    """Purpose: the panel shows slow calls, and not how long consumers wait for messages."""
    (expression,) = (each for name, each in TARGETS.items() if name.startswith("Time of calls"))
    (left_out,) = re.findall(r'call!~"([^"]*)"', expression)
    waits = {
        call.name
        for call in ALL
        if call.streams or any(each.name == "wait_ms" for each in members(call))
    }
    # It takes the members of a receive, and does not wait.
    waits.remove("peek")
    assert {"receive", "getTail"} <= waits
    assert {name for name in waits if not re.fullmatch(left_out, name)} == set()


def test_a_disk_counts_as_full_from_where_sends_are_refused() -> None:
    (rule,) = (rule for rule in RULES if rule.get("alert") == "DelaylogDiskFullSoon")
    assert rule["expr"].endswith(f"< {Limits().disk_reserve_bytes >> 20} * 1024 * 1024")


def test_prometheus_accepts_the_documented_configuration(tmp_path: Path) -> None:
    """With files where it names some; `test_alerts_live.py` scrapes with a token and TLS."""
    page = (OPS.parent / "docs" / "WATCH.md").read_text()
    blocks = re.findall("```yaml\n(.*?)```", page, re.DOTALL)
    (text,) = (block for block in blocks if "scrape_configs" in block)
    named = re.findall(r"/etc/prometheus/([a-z.-]+)", text)
    for name in named:
        (tmp_path / name).write_text("")
    shutil.copy(RULES_FILE, tmp_path / "delaylog-rules.yaml")
    config = tmp_path / "prometheus.yaml"
    config.write_text(text.replace("/etc/prometheus", str(tmp_path)))
    checked = promtool("check", "config", config)
    assert checked.returncode == 0, checked.stderr + checked.stdout
    assert {"delaylog-ca.pem", "delaylog.token", "delaylog-rules.yaml"} == set(named)
