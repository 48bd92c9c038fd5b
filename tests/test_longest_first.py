"""Files of tests run in the order of their recorded durations."""

from __future__ import annotations

import json

from tests import longest_first


def test_every_recorded_file_exists() -> None:
    paths = json.loads(longest_first.RECORD.read_text())
    assert [path for path in paths if not (longest_first.ROOT / path).exists()] == []
