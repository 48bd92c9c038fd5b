"""Every planted fault still has its place in the product, and is an edit that can be imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.faults import FAULTS, Fault
from tests.planted.run import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=[each.name for each in FAULTS])
def test_it_can_be_planted(fault: Fault) -> None:
    text = fault.planted((ROOT / fault.path).read_text())
    compile(text, fault.path, "exec")
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert f"def {name}" in Path(ROOT, path).read_text()


def test_names_are_unique() -> None:
    assert len({each.name for each in FAULTS}) == len(FAULTS) >= 120


def test_many_bring_a_mended_fault_back() -> None:
    assert sum(bool(each.fixes) for each in FAULTS) >= 50
