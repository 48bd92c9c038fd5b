"""What tests of the commands share."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.starts.warm import as_text, run_warm


def rows(done: subprocess.CompletedProcess[Any]) -> list[Any]:
    """The JSON lines of a command that worked."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def error_of(done: subprocess.CompletedProcess[Any], status: int = 1) -> dict[str, Any]:
    """The error object of a command with --json that failed: the one line of standard error."""
    assert (done.returncode, len(done.stdout)) == (status, 0)
    (line,) = done.stderr.splitlines()
    members: dict[str, Any] = json.loads(line)
    assert list(members) == ["error"]
    error: dict[str, Any] = members["error"]
    assert {"code", "message"} <= error.keys()
    return error


def dump(path: Path, status: int = 0) -> list[dict[str, Any]]:
    """The lines of a dump that ends with this status."""
    done = run_warm("dump", path)
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def run(broker: Any) -> Any:
    """Runs the command against the broker."""

    def call(*words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        return as_text(run_warm(*words, "--url", broker.url, stdin=stdin))

    return call
