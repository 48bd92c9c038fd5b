"""`delaylog cluster` against a broker that runs alone; three nodes have tests of their own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.cli.conftest import error_of


@pytest.mark.parametrize(
    "words", [("status",), ("members",), ("doctor",), ("handover", "--to", "2")]
)
def test_without_a_cluster(run: Any, words: tuple[str, ...]) -> None:
    done = run("cluster", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("delaylog: 404 unknown: this broker runs alone")
    assert error_of(run("cluster", *words, "--json"))["code"] == "unknown"


def test_wrong_words(run: Any) -> None:
    assert run("cluster", "leave").returncode == 2
