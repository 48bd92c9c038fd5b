"""`delaylog dump` of what people wrote: records, ids, backup.json, the crash trace.

The folder is a real broker's; damage is made by changing bytes of its files.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cli.conftest import dump
from tests.starts.warm import run_warm


@pytest.fixture(scope="module")
def folder(start_broker: Any) -> Path:
    """A folder that was served: three messages of one hour, one of them with everything."""
    broker = start_broker()
    path = "/v1/topics/t/messages"
    full = {"body": "pay", "id": "a/b", "key": "k", "tags": ["x", "y"], "headers": {"h": "v"}}
    for message in (full, {"body": "plain"}, {"body_base64": "/w==", "id": "raw"}):
        assert broker.call("POST", path, {**message, "delay_ms": 7_200_000}).status == 200
    assert broker.stop() == 0
    found: Path = broker.data_dir
    return found


def test_records(folder: Path) -> None:
    """A line a row: id, key, tags, headers and body, whatever it is."""
    (log,) = folder.glob("hours/*/delay.log")
    full, plain, raw = dump(log)
    assert (full["row"], full["id"], full["key"], full["tags"]) == (1, "a/b", "k", ["x", "y"])
    assert (full["headers"], full["body"]) == ({"h": "v"}, "pay")
    assert (plain["id"][0], plain["key"], plain["body"]) == ("~", None, "plain")
    assert (raw["id"], raw["body_base64"]) == ("raw", "/w==")


def test_records_that_are_cut_or_no_text(folder: Path, tmp_path: Path) -> None:
    """What cannot be read is an error on its line, and the rest is shown."""
    (log,) = folder.glob("hours/*/delay.log")
    for name in ("delay.log", "delay.index"):
        shutil.copy(log.with_name(name), tmp_path / name)
    bytes_there = bytearray(log.read_bytes())
    bytes_there[0] = 0xFF
    (tmp_path / "delay.log").write_bytes(bytes_there[:-1])
    lines = dump(tmp_path / "delay.log", 1)
    assert ["error" in line for line in lines] == [True, False, True]
    (tmp_path / "delay.index").unlink()
    dump(tmp_path / "delay.log", 2)


def test_ids(folder: Path, tmp_path: Path) -> None:
    """The log's position and both ids; a flipped bit is an error."""
    (stored,) = dump(folder / "ids" / "index")
    assert stored["position"] > 0
    (run,) = stored["runs"]
    source = folder / "ids" / run["run"]
    lines = dump(source)
    assert [sorted(line) for line in lines] == [["key", "ref"]] * run["ids"]
    assert run["ids"] == 2
    raw = source.read_bytes()
    for name, at, count in ((run["run"], 70, 3), (run["run"], 9, 1), ("index", 9, 1)):
        flipped = bytearray((folder / "ids" / name).read_bytes())
        flipped[at] ^= 1
        (tmp_path / name).write_bytes(flipped)
        lines = dump(tmp_path / name, 1)
        assert (len(lines), "error" in lines[-1]) == (count, True), name
    (tmp_path / run["run"]).write_bytes(raw[:20])
    (line,) = dump(tmp_path / run["run"], 1)
    assert "error" in line


def test_plain_files(folder: Path, tmp_path: Path) -> None:
    """The manifest of a backup as it is; a crash trace by its lines; an empty one has none."""
    place = tmp_path / "backup"
    assert run_warm("backup", folder, place).returncode == 0
    (manifest,) = dump(place / "backup.json")
    assert manifest["rows"] == 3
    assert [line.get("empty") for line in dump(place / "tick")] == [None, True]
    assert dump(folder / "crash") == []
    (tmp_path / "crash").write_text("Fatal\n  here\n")
    assert [line["text"] for line in dump(tmp_path / "crash")] == ["Fatal", "  here"]


def test_a_manifest_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "backup.json").write_text("{")
    dump(tmp_path / "backup.json", 1)


def test_runs_of_far_hours(start_broker: Any, tmp_path: Path) -> None:
    """A line a row with its record, and a line a state; the checkpoint names runs and hours."""
    broker = start_broker()
    path = "/v1/topics/t/messages"
    for name, days in (("a", 3), ("b", 90), ("c", 400)):
        message = {"body": f"pay {name}", "id": name, "delay_ms": days * 86_400_000}
        assert broker.call("POST", path, message).status == 200
    assert broker.call("DELETE", f"{path}/b").status == 200
    assert broker.stop() == 0
    runs = sorted(broker.data_dir.glob("hours/far/*.run"))
    by_kind = {next(iter(lines[0])): lines for lines in map(dump, runs)}
    rows, states = by_kind["rows"], by_kind["states"]
    assert [line["body"] for line in rows[1:]] == ["pay a", "pay b", "pay c"]
    assert [line["row"] for line in rows[1:]] == [1, 1, 1]
    (state,) = states[1:]
    assert (state["hour"], state["state"]) == (rows[2]["hour"], "CANCELLED")
    (line,) = dump(max(broker.data_dir.glob("checkpoint-*")))
    assert len(line["far"]["hours"]["counts"]) == 3
    assert line["hours"] == {}
    damaged = bytearray(max(runs, key=lambda run: run.stat().st_size).read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "1.run").write_bytes(damaged)
    lines = dump(tmp_path / "1.run", 1)
    assert ["error" in line for line in lines] == [False, True, True, True]
    (tmp_path / "2.run").write_bytes(damaged[:40])
    assert "error" in dump(tmp_path / "2.run", 1)[0]
