"""Three nodes whose messages are delivered by hand."""

from __future__ import annotations

import pytest

from tests.replication.parts import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
