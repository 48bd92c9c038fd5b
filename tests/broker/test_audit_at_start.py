"""The audit log of a real broker: it is opened at each start, and ends with the broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from delaylog.broker.host.audit.files import file_name
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
    found = [(line["n"], line["outcome"], line["node"]) for line in broker.audit_lines()]
    assert found == [(1, "file_begun", 0), (2, "started", 0), (3, "started", 0)]
    path = Path(broker.data_dir) / "audit" / file_name(1)
    assert path.stat().st_mode & 0o777 == 0o600
    ran = [PROGRAM, "verify", "--json", str(broker.data_dir)]
    assert json.loads(subprocess.run(ran, check=True, capture_output=True).stdout)["notes"] == []
    path.write_text(path.read_text().replace('"node":0', '"node":1'))
    report = json.loads(subprocess.run(ran, check=False, capture_output=True).stdout)
    assert [each["path"] for each in report["damage"]] == [f"audit/{file_name(1)}"] * 3


def test_without_audit_there_is_no_folder(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker("--audit", "off")
    assert broker.stop() == 0
    assert not (Path(broker.data_dir) / "audit").exists()
