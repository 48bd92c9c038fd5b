"""`delaylog cluster` against a broker that runs alone; three nodes have tests of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    "words", [("status",), ("members",), ("doctor",), ("handover", "--to", "2")]
)
def test_without_a_cluster(run: Any, words: tuple[str, ...]) -> None:
    done = run("cluster", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("delaylog: 404 unknown: this broker runs alone")


def test_as_json(run: Any) -> None:
    done = run("cluster", "status", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads(done.stderr)["error"]["code"] == "unknown"


def test_wrong_words(run: Any) -> None:
    assert run("cluster", "leave").returncode == 2
