"""Files of tests run in the order of their recorded durations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import longest_first


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """A record of three files, of which the last is gone."""
    record = tmp_path / "durations.json"
    seconds = {"tests/test_longest_first.py": 5, "tests/conftest.py": 9, "tests/gone.py": 7}
    monkeypatch.setattr(longest_first, "RECORD", record)
    monkeypatch.setattr(longest_first, "_SECONDS", seconds)
    return seconds


def test_a_test_has_the_seconds_of_its_file(recorded: Any) -> None:
    found = [
        longest_first.seconds_of(test_id)
        for test_id in (
            "tests/conftest.py::test_x[1::2]",
            "tests/conftest.py",
            "tests/new.py::test",
        )
    ]
    assert found == [9, 9, 0]


def test_a_record_forgets_files_that_are_gone_or_quick(recorded: Any) -> None:
    longest_first.record({"tests/conftest.py": 1.2, "tests/effort.py": 11.6})
    kept = json.loads(longest_first.RECORD.read_text())
    assert list(kept.items()) == [("tests/effort.py", 12), ("tests/test_longest_first.py", 5)]


def test_every_recorded_file_exists() -> None:
    paths = json.loads(longest_first.RECORD.read_text())
    assert [path for path in paths if not (longest_first.ROOT / path).exists()] == []
