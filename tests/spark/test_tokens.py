"""No token in what a real Spark shows or keeps: plans, explain, the UI's store, event logs, errors.

The session of these tests writes an event log, so it is one of its own, in its own process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.session import ROOT, prepare_environment

SECRET = "s3cret-of-the-test"
PROGRAM = Path(__file__).with_name("showing.py")


def test_a_token_is_shown_nowhere(tmp_path: Path, broker: FakeBroker) -> None:
    prepare_environment()
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(0o600)
    broker.token = SECRET
    broker.ready["t"] = []
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path, broker.url],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert len(broker.rows("t")) == 40
    assert done.stdout.count("refused:") == 2
    # The line of a load; batches of streams have one only if it is a warning.
    lines = [line for line in done.stderr.splitlines() if line.startswith("INFO delaylog: ")]
    assert [line.endswith(": 20 of 20 rows added") for line in lines] == [True, True]
    assert "StreamingQuery" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    kept = [each for each in tmp_path.rglob("*") if each.is_file() and each != path]
    assert any("events" in each.parts for each in kept)
    assert [each for each in kept if SECRET.encode() in each.read_bytes()] == []
