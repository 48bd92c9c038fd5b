"""`bench`: an empty server and a folder, for a job system to work with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.redis.job_systems.workers import JOBS, Bench
from tests.redis.servers import RedisServer


@pytest.fixture
def bench(endpoint: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Also where this process finds the modules of jobs/, which read the environment."""
    bench = Bench(endpoint, tmp_path)
    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(JOBS)
    return bench
