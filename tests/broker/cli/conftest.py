"""What tests of the commands share."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.starts.warm import as_text, run_warm


@pytest.fixture
def run(broker: Any) -> Any:
    """Runs the command against the broker."""

    def call(*words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        return as_text(run_warm(*words, "--url", broker.url, stdin=stdin))

    return call
