"""What tests of the commands share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = str(Path(sys.executable).parent / "delaylog")


@pytest.fixture
def run(broker: Any) -> Any:
    """Runs the command against the broker."""

    def call(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *map(str, words), "--url", broker.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call
