"""The recorder's exact lines, many processes at once, and the merge of their files."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from delaylog.broker.history import (
    HistoryRecorder,
    body_hash,
    check_files,
    open_history,
    parse_line,
)
from delaylog.broker.history.model import PLURALS, Call, ScheduleCall
from delaylog.broker.history.recorder import CallFields, ForkedRecorder

pytestmark = pytest.mark.processes


def test_the_exact_lines(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryRecorder(path, client="c1") as recorder:
        recorder.call("send", 1, 2, True, id="a", due=5, expires=None, body="b")
        recorder.call("ack", 3, 4, None, id="a", lease="L")
        recorder.call("deliver", 3, 4, False)
        recorder.call("send", 5, 6, True, ids=["x", "y"], due=7, bodies=["p", "q"])
        recorder.mark("kill", 8)
        recorder.mark("failover", 9, until=11, planned=True)
        recorder.mark("group", 10, group="g")
    assert path.read_text().splitlines() == [
        '{"t0":1,"t1":2,"op":"send","ok":true,"id":"a","due":5,"body":"b","client":"c1"}',
        '{"t0":3,"t1":4,"op":"ack","ok":null,"id":"a","lease":"L","client":"c1"}',
        '{"t0":3,"t1":4,"op":"deliver","ok":false,"client":"c1"}',
        '{"t0":5,"t1":6,"op":"send","ok":true,"ids":["x","y"],"due":7,"bodies":["p","q"],'
        '"client":"c1"}',
        '{"mark":"kill","t":8}',
        '{"mark":"failover","t":9,"until":11,"planned":true}',
        '{"mark":"group","t":10,"group":"g"}',
    ]
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            parse_line(line, file="h", line=number)


def test_its_fields_are_those_of_the_format() -> None:
    judged = {*Call._fields, *ScheduleCall._fields} - {"t0", "t1", "op", "ok"}
    judged |= set(PLURALS.values())
    assert set(CallFields.__annotations__) == judged | {"node"}, "one more is for people"


def test_a_clock_that_stepped_back_inside_a_call_makes_no_unreadable_line(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path / "h.jsonl") as recorder:
        recorder.call("send", 10, 3, True, id="a")
    assert json.loads((tmp_path / "h.jsonl").read_bytes())["t1"] == 10


def test_lines_wait_in_the_buffer_until_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    recorder = HistoryRecorder(path, buffer_bytes=100)
    recorder.call("ack", 1, 2, True, id="a")
    assert path.read_bytes() == b""
    recorder.call("ack", 1, 2, True, id="b" * 60)
    assert path.read_bytes().count(b"\n") == 2
    recorder.call("ack", 1, 2, True, id="c")
    recorder.flush()
    assert path.read_bytes().count(b"\n") == 3
    recorder.call("ack", 1, 2, True, id="d")
    recorder.mark("end", 9)
    assert path.read_bytes().count(b"\n") == 5
    recorder.close()
    recorder.close()


def test_a_later_recorder_appends(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    for name in ("a", "b"):
        with HistoryRecorder(path, client="client") as recorder:
            recorder.call("ack", 1, 2, True, id=name)
    assert path.read_bytes().count(b"\n") == 2


CLIENT = """
import os, sys, threading
from delaylog.broker.history import HistoryRecorder

folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
path = f"{folder}/{name}-{os.getpid()}.jsonl"
with HistoryRecorder(path, client=name, buffer_bytes=1_000) as recorder:
    def record(thread):
        for number in range(count):
            recorder.call("send", number, number + 1, True, id=f"{name}-{thread}-{number}")
    threads = [threading.Thread(target=record, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_processes_and_threads_lose_and_mix_nothing(tmp_path: Path) -> None:
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT, str(tmp_path), name, "500"])
        for name in ("a", "b", "c")
    ]
    assert [client.wait() for client in clients] == [0, 0, 0]
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 3
    report = check_files(paths)
    assert report.ids == report.items == 3 * 3 * 500


def test_a_forked_child_may_not_write_its_parents_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = HistoryRecorder(tmp_path / "h.jsonl")
    recorder.call("ack", 1, 2, True, id="a")
    with monkeypatch.context() as child:
        # Without a fork under a test runner.
        child.setattr(os, "getpid", lambda: 1)
        with pytest.raises(ForkedRecorder, match="belongs to process"):
            recorder.flush()
    recorder.close()
    assert (tmp_path / "h.jsonl").read_bytes().count(b"\n") == 1


def test_a_packed_history_reads_as_a_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl.gz"
    with gzip.open(path, "wb") as lines:
        lines.write(b'{"mark":"end","t":5}\n')
    with open_history(path) as unpacked:
        assert unpacked.read() == b'{"mark":"end","t":5}\n'


def test_the_hash_of_a_body_is_pinned() -> None:
    assert body_hash(b"") == "e4a6a0577479b2b4"
    assert body_hash(b"reminder") == body_hash(b"reminder") != body_hash(b"reminder ")
