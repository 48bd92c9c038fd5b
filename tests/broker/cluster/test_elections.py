"""A member without raftos: it ends before it changes anything, and says the one command to run.

Method: the real command in a process where importing raftos fails. That the command works as it
stands is tested in an environment of its own (tests/test_distribution.py).
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from delaylog.broker.host.exit_codes import ExitCode
from delaylog.replication.errors import RaftosMissingError
from tests.programs import run_program

WITHOUT_RAFTOS = """
import sys
sys.modules["raftos"] = None
"""
SERVE = f"""{WITHOUT_RAFTOS}
from delaylog.broker.cli import main
sys.exit(main())
"""
ALONE = f"""{WITHOUT_RAFTOS}
from delaylog.broker.cluster.config import load_cluster
from delaylog.broker.cluster.elections import require_oracle
require_oracle(load_cluster(sys.argv[1], node="1"))
"""
SECRET = secrets.token_hex(32)


def cluster_file(folder: Path, *nodes: int) -> Path:
    """A cluster of these nodes; nothing of it is listened on."""
    lines = ['cluster = "test"']
    for node in nodes:
        lines += [f"[members.{node}]", f'peer = "127.0.0.1:{28_710 + node}"']
        lines += [f'http = "127.0.0.1:{28_720 + node}"']
    path = folder / "cluster.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return run_program(
        sys.executable,
        "-P",
        "-c",
        program,
        *words,
        env={**os.environ, "DELAYLOG_CLUSTER_SECRET": SECRET},
    )


@pytest.mark.parametrize("options", [["--new-cluster"], []])
def test_a_node_without_raftos_says_what_to_run(tmp_path: Path, options: list[str]) -> None:
    """One line, whether it is the first start or a later one, and the folder stays as it was."""
    data = tmp_path / "data"
    words = ["serve", "--data-dir", data, "--http", "127.0.0.1:0", "--node", "1", *options]
    ended = run(SERVE, *words, "--cluster", cluster_file(tmp_path, 1, 2, 3))
    assert ended.returncode == ExitCode.CONFIGURATION
    (line,) = ended.stderr.splitlines()
    assert (ended.stdout, json.loads(line)["message"]) == ("", str(RaftosMissingError("raftos")))
    assert {path.name for path in data.iterdir()} <= {"lock", "crash"}


def test_a_cluster_of_one_needs_no_raftos(tmp_path: Path) -> None:
    assert run(ALONE, cluster_file(tmp_path, 1)).returncode == 0
    several = run(ALONE, cluster_file(tmp_path, 1, 2, 3))
    assert "RaftosMissingError" in several.stderr
