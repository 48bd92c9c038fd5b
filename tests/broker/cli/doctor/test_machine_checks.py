"""Each check of a machine: a sound one passes, each fault is found; and this one is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.doctor.machine_checks import (
    CHECKS,
    SYNCS,
    Machine,
    examine_machine,
    look,
)

SOUND = Machine([0.002] * SYNCS, 1_000_000, clock_synchronised=True)


@pytest.mark.parametrize("facts", [{}, {"free_inodes": None}, {"clock_synchronised": None}])
def test_a_sound_machine(facts: dict[str, Any]) -> None:
    found = examine_machine(replace(SOUND, **facts))
    assert [(each.check, each.mark) for each in found] == [(name, "ok") for name, _, _ in CHECKS]


@pytest.mark.parametrize(
    ("check", "facts", "text"),
    [
        ("machine disk", {"syncs_s": [0.03] * SYNCS}, "a sync takes 30 ms"),
        ("machine disk", {"syncs_s": [0.001] * 31 + [2.0]}, "the longest of 32 took 2.0 s"),
        ("machine files", {"free_inodes": 5}, "room for 5 more files"),
        ("machine clock", {"clock_synchronised": False}, "nothing synchronises"),
    ],
)
def test_a_fault(check: str, facts: dict[str, Any], text: str) -> None:
    (found,) = [each for each in examine_machine(replace(SOUND, **facts)) if each.mark != "ok"]
    assert (found.check, found.mark) == (check, "warn")
    assert text in found.text
    assert found.advice


def test_this_machine_is_measured(tmp_path: Path) -> None:
    found = look(str(tmp_path))
    assert len(found.syncs_s) == SYNCS
    assert min(found.syncs_s) > 0
    assert found.clock_synchronised in (None, False, True)
