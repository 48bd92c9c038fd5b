"""Coroutine tests, with oracles whose wires can be cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coroutines import pytest_pyfunc_call
from tests.replication.raftos_oracle.cluster import Cluster

__all__ = ["cluster", "pytest_pyfunc_call", "size"]


@pytest.fixture
def size() -> int:
    """The number of nodes; a test may have another one."""
    return 3


@pytest.fixture
def cluster(tmp_path: Path, size: int) -> Cluster:
    return Cluster(tmp_path, size)
