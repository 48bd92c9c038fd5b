"""`delaylog dump` of every file of a folder that a broker has left.

Damage is made by changing bytes of the files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.engine import Engine, Setup
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.cli.conftest import dump
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.engine.staging import Transactions
from tests.broker.verify.damaged_folder import flip
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
    flip(log, log.stat().st_size * 8 - 1)
    done = run_warm("dump", log)
    assert done.returncode == 1
    assert b"no whole frame" in done.stdout.splitlines()[-1]
    assert run_warm("dump", folder / "lock").returncode == 2
    assert run_warm("dump", folder / "log" / "5.log").returncode == 2


# ---------------- `delaylog dump` of what people wrote: records, ids, backup.json, the crash trace


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
        shutil.copy(folder / "ids" / name, tmp_path / name)
        flip(tmp_path / name, at * 8)
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


# ------------------------------------- `delaylog dump` of files of schedules: definitions and rows


@pytest.fixture
def scheduled(tmp_path: Path) -> Path:
    """A folder with two schedules, of which one was paused."""
    host = ScheduleHost(tmp_path / "data")
    host.put("a", b"secret", cron="0 9 * * *", zone="Europe/Berlin")
    host.put("b", b"secret", interval_ms=7_200_000)
    host.pause_one("b", "why")
    host.checkpoint(2)
    host.close()
    return tmp_path / "data"


def test_definitions_and_rows_of_schedules(scheduled: Path) -> None:
    """A line for each, without bodies; a record that is cut short is an error."""
    [path] = scheduled.glob("schedules/*.definitions")
    first, second = dump(path)
    assert (first["schedule"], first["zone"], first["note"]) == ("a", "Europe/Berlin", None)
    assert (second["schedule"], second["interval_ms"], second["note"]) == ("b", 7_200_000, "why")
    assert "secret" not in str(first)
    path.write_bytes(path.read_bytes()[:-1])
    assert dump(path, 1) == [
        first,
        {"offset": second["offset"], "error": "no whole record from here on"},
    ]
    [path] = scheduled.glob("schedules/*.rows")
    rows = dump(path)
    assert [row["slot"] for row in rows] == [0, 1]
    assert [row["number"] for row in rows] == [first["number"], second["number"]]
    assert [row["flags"] for row in rows] == [2, 3]
    assert rows[1]["n"] == 1
    path.write_bytes(path.read_bytes()[:-1])
    assert dump(path, 1)[-1] == {"offset": 0, "error": "the file ends within a row"}


# ------------------------- `delaylog dump` shows what is staged, decided, published and remembered


NOW_MS = 1_700_000_000_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(OsFileSystem(), str(tmp_path / "data"), Setup(random=Random(1)), now_ms=NOW_MS)
    yield made
    made.close()


def test_transactions(engine: Engine, tmp_path: Path) -> None:
    """What is staged, decided, published and remembered."""
    txn = Transactions(engine)
    for name in ("open", "going", "done", "dropped"):
        txn.begin(name, NOW_MS)
        txn.stage(name, [b"a", b"b"], NOW_MS, part=3)
    txn.abort("dropped", NOW_MS)
    txn.commit("done", NOW_MS, (3, 0, 2))
    engine.run_inline(engine.state.until_committed())
    txn.publish(NOW_MS)
    txn.commit("going", NOW_MS, (3, 0, 2))
    engine.run_inline(engine.upkeep.checkpoint(lambda: NOW_MS))
    engine.state.log.write_pending()
    (log,) = (tmp_path / "data/log").iterdir()
    frames = dump(log)
    assert not any("error" in line for line in frames)
    ops = [line["op"] for line in frames if line["kind"] == "TXN"]
    assert ops == ["begin", "part"] * 4 + ["abort", "commit", "commit"]
    (published,) = [line for line in frames if line["kind"] == "PUBLISH"]
    assert (published["txn"], published["first"], published["stop"]) == (3, 0, 2)
    assert published["results"]["created"] == 2
    (checkpoint,) = dump(max((tmp_path / "data").glob("checkpoint-*")))
    saved = checkpoint["transactions"]
    assert [(one["id"], one["parts"], one["rows"]) for one in saved["open"]] == [("open", 1, 2)]
    assert [(one["id"], one["published"]) for one in saved["unpublished"]] == [("going", 0)]
    ended = {one["id"]: one["state"] for one in saved["ended"]}
    assert ended == {"done": "committed", "dropped": "aborted"}
