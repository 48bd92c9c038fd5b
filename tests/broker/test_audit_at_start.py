"""The audit log of a real broker: it is opened at each start, and ends with the broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.broker.conftest import Broker
from tests.starts.warm import PROGRAM


def test_each_start_is_a_line_and_the_folder_is_sound(
    start_broker: Callable[..., Broker],
) -> None:
    broker = start_broker()
    broker.await_metric("delaylog_audit_failing", 0)
    assert broker.stop() == 0
    broker.start()
    assert broker.stop() == 0
    found = [(line["call"], line["outcome"], line["node"]) for line in broker.audit_lines()]
    assert found == [("audit", "started", 0)] * 2
    (path,) = (Path(broker.data_dir) / "audit").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    ran = [PROGRAM, "verify", "--json", str(broker.data_dir)]
    assert json.loads(subprocess.run(ran, check=True, capture_output=True).stdout)["notes"] == []


def test_without_audit_there_is_no_folder(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker("--audit", "off")
    assert broker.stop() == 0
    assert not (Path(broker.data_dir) / "audit").exists()
