"""How fast an oracle finds a leader, and what it costs at rest: raftos beside PySyncObj.

The oracles run alone, three processes on loopback, without a broker around them: a broker adds its
own hand-over of the log (`years_cluster.py` has that). Both have the same timing: heartbeats every
50 ms, an election after 250 to 500 ms of silence. PySyncObj is measured where it is installed.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import signal
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from broker_process import Brokers
from election_nodes import NODES, ElectionNodes
from settings import Settings
from tables import Column, Table, Target, at_most, median, whole

import delaylog.replication

INSTALL: Final = "pip install pysyncobj==0.3.17"
# A node says within this time that its state has changed.
LOOK_MS: Final = 5
# At rest a look would cost more than the election.
LOOK_AT_REST_MS: Final = 1_000
QUIET_S: Final = 1.0
WARM_UP_S: Final = 5.0
# From a failure to a broker that serves again at most a second may pass; the rest is the log's.
FAIL_OVER_MS: Final = 1_000
NOT_CODE: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


def measure(brokers: Brokers, settings: Settings) -> Iterator[Table]:
    """Times to a leader, then processor time at rest and lines."""
    kinds = ["raftos"]
    if importlib.util.find_spec("pysyncobj") is not None:
        kinds.append("pysyncobj")
    yield _times(brokers, settings, kinds)
    yield _costs(brokers, settings, kinds)


def _times(brokers: Brokers, settings: Settings, kinds: list[str]) -> Table:
    table = Table(
        f"elections: three nodes, {settings.election_rounds} new clusters each, in turns",
        [
            Column("min ms", "least", whole),
            Column("median ms", "median", whole),
            Column("max ms", "most", whole),
        ],
        notes=[f"Times are read every {LOOK_MS} ms."],
    )
    if "pysyncobj" not in kinds:
        table.notes.append(f"PySyncObj is not installed, so only raftos was measured: {INSTALL}")
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(settings.election_rounds):
        for kind in kinds:
            with brokers.folder() as folder:
                rounds[kind].append(_round(kind, folder))
    for case in rounds[kinds[0]][0]:
        for kind in kinds:
            figures = _spread([each[case] for each in rounds[kind]])
            table.add(f"{case}, {kind}", figures, _targets(case, figures))
    return table


def _round(kind: str, folder: Path) -> dict[str, float]:
    """Milliseconds of each case, in one new cluster."""
    with ElectionNodes(kind, folder, look_ms=LOOK_MS) as nodes:
        begun = nodes.start()
        first = nodes.await_leader(since=begun)
        stopped = _quiet_leader(nodes)
        stopped_at = nodes.signal(stopped, signal.SIGSTOP)
        second = nodes.await_leader(since=stopped_at, but=stopped)
        time.sleep(QUIET_S)
        resumed_at = nodes.signal(stopped, signal.SIGCONT)
        killed = _quiet_leader(nodes)
        stale_until = nodes.led_until(stopped, since=resumed_at) or resumed_at
        killed_at = nodes.kill(killed)
        third = nodes.await_leader(since=killed_at, but=killed)
    return {
        "first leader": (first.at - begun) * 1000,
        "leader killed (-9)": (third.at - killed_at) * 1000,
        "leader stopped": (second.at - stopped_at) * 1000,
        "stopped one leads on when resumed": (stale_until - resumed_at) * 1000,
    }


def _quiet_leader(nodes: ElectionNodes) -> int:
    """The leader on which all agree, a while after they do."""
    nodes.await_agreement()
    time.sleep(QUIET_S)
    return nodes.await_agreement()


def _targets(case: str, figures: dict[str, Any]) -> list[Target]:
    if case.startswith("leader "):
        return [at_most(figures["most"], FAIL_OVER_MS, "1 s")]
    return []


def _costs(brokers: Brokers, settings: Settings, kinds: list[str]) -> Table:
    table = Table(
        f"elections, at rest: medians of {settings.election_rest_windows} windows of "
        f"{settings.election_rest_s:.0f} s; lines of code without comments and docstrings",
        [
            Column("leader CPU ms/s", "leader_cpu", lambda value: f"{value:.1f}"),
            Column("follower CPU ms/s", "follower_cpu", lambda value: f"{value:.1f}"),
            Column("lines of ours", "lines", whole),
            Column("lines of the library", "library_lines", whole),
        ],
    )
    for kind in kinds:
        with brokers.folder() as folder:
            table.add(kind, _at_rest(kind, folder, settings) | _lines(kind))
    return table


def _at_rest(kind: str, folder: Path, settings: Settings) -> dict[str, float]:
    leaders, followers = [], []
    with ElectionNodes(kind, folder, look_ms=LOOK_AT_REST_MS) as nodes:
        nodes.start()
        nodes.await_agreement()
        time.sleep(WARM_UP_S)
        for _ in range(settings.election_rest_windows):
            leader = nodes.await_agreement()
            before, begun = nodes.cpu_seconds(), time.monotonic()
            time.sleep(settings.election_rest_s)
            took_s = time.monotonic() - begun
            spent = nodes.cpu_seconds()
            if nodes.await_agreement() != leader:
                continue
            shares = {node: (spent[node] - before[node]) / took_s * 1000 for node in NODES}
            leaders.append(shares.pop(leader))
            followers += shares.values()
    return {"leader_cpu": median(leaders), "follower_cpu": median(followers)}


def _lines(kind: str) -> dict[str, int]:
    if kind == "raftos":
        ours = (Path(delaylog.replication.__file__).parent / "raftos_oracle").glob("*.py")
    else:
        ours = Path(__file__).parent.glob("pysyncobj_oracle.py")
    spec = importlib.util.find_spec(kind)
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent.glob("*.py")
    return {
        "lines": sum(code_lines(path.read_text()) for path in ours),
        "library_lines": sum(code_lines(path.read_text()) for path in library),
    }


def code_lines(source: str) -> int:
    """Lines of Python that hold more than a comment or a docstring."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            assert node.end_lineno is not None
            texts.update(range(node.lineno, node.end_lineno + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


def _spread(values: list[float]) -> dict[str, Any]:
    figures: dict[str, Any] = {"least": min(values), "most": max(values)}
    return figures | {"median": median(values), "values": values}
