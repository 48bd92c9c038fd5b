"""The bench of what a request costs: its floor answers what its clients ask, and its arithmetic."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

BENCH: Final = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports modules of the bench, which know one another by bare names that tests use too."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCH)):
            del sys.modules[name]


@pytest.mark.processes
def test_floor_serves_the_life_of_a_message_and_the_commands_of_redis(
    bench: Any, tmp_path: Path
) -> None:
    brokers = bench("broker_process").Brokers(["no broker"], tmp_path)
    with bench("cost").floor(brokers) as server:
        asked = ("lone-cycle", server.port, server.process_id, 0.2)
        done = bench("workers").run_apart(bench("cost_load").measure, *asked)
        assert done.value.operations > 0
        ask, port = bench("redis_peer").ask, server.port_of("resp")
        assert ask(port, b"SET", b"key", b"value") == b"OK"
        assert ask(port, b"GET", b"key") == b"value"
        assert ask(port, b"GET", b"other") is None
        assert len(ask(port, b"DL.SEND", b"topic", b"1000", b"body")) == 16


def test_figures_are_medians_and_a_ratio_is_of_rounds_in_turns(bench: Any) -> None:
    """The second round ran on a machine half as fast: the ratio does not see it."""
    cost = bench("cost")
    floor = [cost.Window(100, 1.0, user_s, 0.001, []) for user_s in (0.001, 0.003, 0.001)]
    mine = [cost.Window(100, 2.0, user_s, 0.002, [1.0, 9.0]) for user_s in (0.002, 0.006, 0.003)]
    assert cost.ratio(mine, floor) == pytest.approx(2.0)
    found = cost.figures(mine)
    assert found["rate"] == 50
    assert (found["user_us"], found["system_us"]) == pytest.approx((30, 20))
    assert found["p50_ms"] == 5.0
    assert "p50_ms" not in cost.figures(floor)
