"""`delaylog dump` of every file of a folder that a broker has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.cli.conftest import dump
from tests.starts.warm import run_warm

KINDS = ("SEND", "LEASE", "SETTLE", "MOVE")


def dumped(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of all files of a name."""
    return [line for file in folder.rglob(name) for line in dump(file)]


def test_dump(start_broker: Any) -> None:
    """Every file of a folder that holds a bit of everything."""
    broker = start_broker()
    folder = Path(broker.data_dir)
    path = "/v1/topics/t"
    broker.post(
        f"{path}/messages", [{"body": "x", "delay_ms": 3_600_000, "id": f"m{k}"} for k in range(3)]
    )
    broker.post(f"{path}/messages", [{"body": "y", "id": "now"}, {"body": "z", "id": "again"}])
    got = broker.post(f"{path}/receive", {"wait_ms": 20_000, "max": 2})["messages"]
    broker.post(f"{path}/ack", {"receipts": [got[0]["receipt"]]})
    broker.post(f"{path}/nack", {"receipts": [got[1]["receipt"]], "delay_ms": 60_000})
    broker.call("POST", f"{path}/messages:cancel", {"filter": {"tag": "none", "key": "é"}})
    assert broker.stop() == 0
    (log,) = (folder / "log").iterdir()
    frames = dump(log)
    kinds = [line["kind"] for line in frames]
    assert [kind for kind in kinds if kind in KINDS] == ["SEND", "SEND", "LEASE", "SETTLE", "MOVE"]
    assert not any("error" in line for line in frames)
    begun = next(line for line in frames if line["kind"] == "JOB")
    assert (begun["action"], begun["filter"]) == ("cancel", {"tag": "none", "key": "é"})
    positions = [line["position"] for line in frames]
    assert positions == sorted(set(positions))
    assert len(dumped(folder, "delay.index")) == 6
    states = [line["state"] for line in dumped(folder, "state")]
    assert sorted(s for s in states if s != "NONE") == ["ACKED", "MOVED"]
    for name in ("extents", "second.index", "tick"):
        assert dumped(folder, name), name
    (checkpoint,) = dump(max(folder.glob("checkpoint-*")))
    assert [item["name"] for item in checkpoint["topics"]] == ["t"]
    raw = bytearray(log.read_bytes())
    raw[-1] ^= 1
    log.write_bytes(raw)
    done = run_warm("dump", log)
    assert done.returncode == 1
    assert b"no whole frame" in done.stdout.splitlines()[-1]
    assert run_warm("dump", folder / "lock").returncode == 2
    assert run_warm("dump", folder / "log" / "5.log").returncode == 2
