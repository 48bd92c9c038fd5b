"""The core without each leaf: a program and some of its tests run where the leaf is missing.

The package is a tree of links to the one that is tested, in which the leaf's folders are missing.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import delaylog
from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.operations import HANDLERS
from delaylog.broker.engine.push.commands import put_target
from delaylog.broker.engine.push.targets import Target
from delaylog.broker.host.settings import OPTIONS, ConfigError, read_sources
from delaylog.broker.host.watch.metrics_table import METRICS
from delaylog.broker.leaves import FOLDERS
from delaylog.broker.process.exit_codes import ExitCode
from delaylog.broker.process.leaves import leaves, needed
from tests.broker.engine.host import Host
from tests.broker.engine.keyspace_work import put, snapshot
from tests.programs import run_program

ROOT = Path(__file__).parents[3]
PACKAGE = Path(delaylog.__file__).parent
LEAVES = {
    "camellia": ("broker/camellia",),
    "dashboard": ("broker/ui",),
    "drills": ("broker/drills",),
    "history": ("broker/history", "broker/drills"),
    "push": ("broker/push",),
    "Redis endpoint": ("broker/resp", "broker/keyspace"),
    "streams": ("broker/streams",),
    "Spark": ("client/spark", "client/spark_segments"),
    "job systems": ("client/job_systems",),
    "queues of Dyno and RMQ": ("client/queues",),
}
"""The folders that are missing without each leaf. The drills check the histories they record."""
TESTS = (
    "tests/wheel/test_few_entries.py",
    "tests/storage/test_checkpoint.py",
    "tests/broker/engine/test_hold.py",
    "tests/broker/embedded/test_queue.py",
)


def link(source: Path, place: Path, missing: tuple[str, ...]) -> None:
    """Make a folder like `source`, with links, but for what is missing below it."""
    place.mkdir()
    for each in source.iterdir():
        within = [path for path in missing if f"{path}/".startswith(f"{each.name}/")]
        if each.name in within:
            continue
        if within:
            link(each, place / each.name, tuple(path.partition("/")[2] for path in within))
        else:
            (place / each.name).symlink_to(each.resolve())


@pytest.fixture
def without(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a program that sees a package without a leaf."""
    link(PACKAGE, tmp_path / "delaylog", LEAVES[request.param])
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "DELAYLOG_EFFORT": "0.02"}


def test_every_leaf_is_tested() -> None:
    assert {leaf.name for leaf in leaves()} <= LEAVES.keys()
    folders = {path for paths in LEAVES.values() for path in paths}
    assert folders == {*runpy.run_path(str(ROOT / "tools/count_lines.py"))["LEAVES"]}
    declared = {path.removeprefix("broker/") for path in folders if path.startswith("broker/")}
    # It has no declaration: the engine asks for it.
    assert declared - {"keyspace"} == set(FOLDERS)


async def test_a_call_of_a_missing_leaf_is_refused_by_the_name_of_the_leaf() -> None:
    ctx: Any = None
    with pytest.raises(Problem, match="has no streams; run: pip install"):
        await HANDLERS["stream"](ctx)


def test_the_tables_of_the_core_have_the_rows_of_all_leaves() -> None:
    options = [option for leaf in leaves() for option in leaf.options]
    metrics = [row.name for leaf in leaves() for row in leaf.metrics]
    assert (len(options), len(metrics)) == (6, 13)
    assert {*options} <= {*OPTIONS}
    assert {*metrics} <= METRICS.keys()


def test_an_error_names_the_leaf_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.broker.process.leaves.installed", lambda: ())
    with pytest.raises(ImportError, match="has no dashboard; run: pip install"):
        needed("dashboard")


@pytest.mark.parametrize(
    "variable", ["DELAYLOG_RESP", "DELAYLOG_RESP_FSYNC", "DELAYLOG_PUSH_PORTS"]
)
def test_a_variable_of_a_missing_leaf_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """As a flag or a key of the file is: a broker that ignored it would lack its listener."""
    monkeypatch.setattr("delaylog.broker.leaves.installed", lambda: ())
    with pytest.raises(ConfigError, match=f"{variable}: this installation .* has no (Redis|push)"):
        read_sources({}, {variable: "127.0.0.1:6379"})
    read_sources({}, {variable: "", "DELAYLOG_RESPITE": "x", "DELAYLOG_PUSHED": "x"})


@pytest.mark.processes
@pytest.mark.parametrize("without", LEAVES, indirect=True)
def test_core_serves_without_a_leaf(without: dict[str, str], tmp_path: Path) -> None:
    program = Path(__file__).with_name("without_a_leaf.py")
    done = run_program(sys.executable, "-P", program, tmp_path, env=without)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 500


@pytest.mark.processes
@pytest.mark.parametrize("without", LEAVES, indirect=True)
def test_tests_of_the_core_pass_without_a_leaf(without: dict[str, str]) -> None:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS)
    done = run_program(sys.executable, *words, env=without, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout


def of_redis(host: Host) -> None:
    put(host.engine, host.now_ms, b"key", b"value")
    host.sync()


def of_redis_in_a_checkpoint(host: Host) -> None:
    of_redis(host)
    host.checkpoint()
    host.send(1)


def of_redis_in_a_snapshot(host: Host) -> None:
    of_redis(host)
    assert snapshot(host.engine)
    host.checkpoint()


def of_push(host: Host) -> None:
    target = Target("https://example.com/", ("whsec_" + "a" * 32,))
    put_target(host.engine.state, host.topic, host.topic.default, target, host.now_ms)
    host.sync()


def kept_in(folder: Path) -> dict[str, bytes]:
    """The log, the checkpoints and the snapshots of a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    named = {path.relative_to(folder).as_posix(): path for path in paths}
    kept = ("log/", "checkpoint", "keyspace/")
    return {name: path.read_bytes() for name, path in named.items() if name.startswith(kept)}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("without", "data"),
    [
        ("Redis endpoint", of_redis),
        ("Redis endpoint", of_redis_in_a_checkpoint),
        ("Redis endpoint", of_redis_in_a_snapshot),
        ("push", of_push),
    ],
    indirect=["without"],
)
def test_a_folder_with_data_of_a_missing_leaf_is_refused(
    without: dict[str, str],
    data: Callable[[Host], None],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The error names the leaf and what installs it, and the folder stays as it is: with the leaf
    it opens again.
    """
    folder = tmp_path / "data"
    host = Host(folder)
    host.send(1)
    data(host)
    host.close()
    before = kept_in(folder)
    words = ("-m", "delaylog.broker", "serve", "--data-dir", folder, "--http", "127.0.0.1:0")
    done = run_program(sys.executable, "-P", *words, env=without)
    assert done.returncode == ExitCode.CONFIGURATION, done.stderr
    name = request.node.callspec.params["without"]
    end = json.loads(done.stderr.splitlines()[-1])
    assert end["message"].startswith("the folder has ")
    assert f"has no {name}; run: pip install" in end["message"]
    assert kept_in(folder) == before
    host.open()
    assert len(host.receive(10)) == 1 + (data is of_redis_in_a_checkpoint)
    host.close()


@pytest.mark.processes
@pytest.mark.parametrize("without", ["Redis endpoint"], indirect=True)
def test_options_of_a_missing_leaf_are_unknown(without: dict[str, str], tmp_path: Path) -> None:
    words = ("serve", "--data-dir", tmp_path / "data", "--resp", "127.0.0.1:0")
    done = run_program(sys.executable, "-P", "-m", "delaylog.broker", *words, env=without)
    assert done.returncode == ExitCode.CONFIGURATION
    assert "there is no option --resp" in done.stderr
