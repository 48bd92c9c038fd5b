"""The page of limits names each limit that can be configured, with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from delaylog.broker.engine.limits import Limits

PAGE: Final = (Path(__file__).parents[2] / "docs" / "LIMITS.md").read_text()
ROWS: Final = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
UNITS: Final = {
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "days": 86_400_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}


def defaults(cell: str) -> list[int]:
    """The numbers of a cell, in the unit of the limit."""
    return [
        int(digits.replace(",", "")) * UNITS.get(unit, 1)
        for digits, unit in re.findall(r"([0-9][0-9,]*)(?: ([A-Za-z]+))?", cell)
    ]


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_every_limit_stands_there_with_its_default(name: str) -> None:
    rows = [row for row in ROWS if f"`{name}`" in row[0]]
    assert any(getattr(Limits(), name) in defaults(row[1]) for row in rows), rows
