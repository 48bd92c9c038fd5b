"""A host with schedules for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.engine.host import START_MS
from tests.broker.engine.schedules.rig import ScheduleHost


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ScheduleHost]:
    """A host just behind a minute."""
    made = ScheduleHost(tmp_path / "folder", START_MS + 1)
    yield made
    made.close()
