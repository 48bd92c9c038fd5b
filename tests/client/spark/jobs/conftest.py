"""Spark's part of an archive, writing an hour, stood in for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delaylog.storage.layout import hour_name
from pyspark_delaylog.jobs import archive


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hours that were written, in order."""
    out: list[str] = []

    def write(_spark: Any, _options: Any, _output: Path, hours: list[int]) -> dict[str, Any]:
        out.extend(hour_name(hour) for hour in hours)
        return {hour_name(hour): {"rows": 1, "checksum": "0", "files": []} for hour in hours}

    monkeypatch.setattr(archive, "_archive", write)
    return out
