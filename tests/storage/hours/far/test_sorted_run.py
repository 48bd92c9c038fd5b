"""Files of the far tier: their exact bytes, and that no changed bit passes for good.

A change of format is always deliberate: folders of every release open for ever.
"""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.errors import CorruptionError
from delaylog.storage.hours.far.run_stack import OpenRuns
from delaylog.storage.hours.far.sorted_run import RunFacts, RunRows, SortedRun, hour_key, write_run
from delaylog.storage.hours.state_seal import sealed
from delaylog.storage.layout import INDEX_ENTRY, STATE_ENTRY, Int64Array, RowArray
from tests.storage.fake_disk import FakeDisk, FakeFile
from tests.storage.hours.hour_model import noted_reads

HOUR = 450_100
KEYS = np.array([hour_key(HOUR) + 7, hour_key(HOUR + 900) + 1], np.int64)
RECORDS = b"id-akeybodyid-btwo"


def some_rows() -> RowArray:
    rows = np.zeros(2, INDEX_ENTRY)
    rows["offset"], rows["size"], rows["global_index"] = [0, 11], [11, 7], [7, 1]
    rows["deliver_at"] = [HOUR * 3_600_000 + 5, (HOUR + 900) * 3_600_000]
    rows["sent_position"], rows["topic"], rows["id_size"] = [300, 500], 3, 4
    rows["key_size"] = [3, 0]
    return rows


def some_states() -> RowArray:
    entries = np.zeros(2, STATE_ENTRY)
    entries["state"], entries["cause"], entries["time"] = [7, 8], [5, 8], 1_620_000_000_000
    entries["forward"] = [0, 1 << 40]
    return sealed(entries)


def written(keys: Int64Array, rows: RowArray, records: bytes) -> tuple[FakeDisk, RunFacts]:
    disk = FakeDisk()
    disk.mkdir("far")
    return disk, write_run(disk, "far/5.run", 5, RunRows(keys, rows, records), (300, 500))


ROWS_RUN = (
    # header
    "444c524e01007000020000000000000012000000000000002c01000000000000f401000000000000"
    "7ed140631132bd03a55177ca000000000000000000000000"
    # keys
    "0700000034de060001000000b8e10600"
    # rows
    "00000000000000000b0000000000000007000000000000000572fb44790100000000000000000000"
    "00000000000000002c01000000000000000000000000000000000000000000000000000000000000"
    "03000000000000000000000000000000040003000000000000000000000000000b00000000000000"
    "0700000000000000010000000000000000ec19067a01000000000000000000000000000000000000"
    "f4010000000000000000000000000000000000000000000000000000000000000300000000000000"
    "000000000000000004000000000000000000000000000000"
    # block
    "af98ff97c171baa80000000000000000"
    # records
    "69642d616b6579626f647969642d6274776f"
)
STATES_RUN = (
    # header
    "444c524e01002000020000000000000000000000000000002c01000000000000f401000000000000"
    "7ed14063473669e4e3194967000000000000000000000000"
    # keys
    "0700000034de060001000000b8e10600"
    # states
    "07050000992e743e00000000000000000048862f79010000000000000000000008080000c6e61817"
    "00000000000000000048862f790100000000000000010000"
    # block
    "3f637dd1000000000000000000000000"
)


def test_the_bytes_of_a_run_of_rows() -> None:
    disk, facts = written(KEYS, some_rows(), RECORDS)
    assert disk.content("far/5.run").hex() == ROWS_RUN
    assert facts == RunFacts(5, 2, 18, int(KEYS[0]), int(KEYS[1]), 300, 500)


def test_the_bytes_of_a_run_of_states() -> None:
    disk, facts = written(KEYS, some_states(), b"")
    assert disk.content("far/5.run").hex() == STATES_RUN
    assert facts.log_size == 0


def check(run: SortedRun, keys: Int64Array) -> None:
    """The run has the rows and records of these tests."""
    at = run.find(keys)
    rows = run.rows(at)
    assert rows.tobytes() == some_rows().tobytes()
    sizes = rows["size"].astype(np.int64)
    assert run.records(at, rows["offset"].astype(np.int64), sizes) == RECORDS


def test_what_was_written_is_read() -> None:
    disk = FakeDisk()
    disk.mkdir("far")
    disk.put("far/5.run", bytes.fromhex(ROWS_RUN))
    run = SortedRun(
        disk, "far/5.run", INDEX_ENTRY, RunFacts(5, 2, 18, int(KEYS[0]), int(KEYS[1]), 300, 500)
    )
    check(run, KEYS)
    assert run.find(KEYS + 1).tolist() == [-1, -1]
    run.close()


def read_all(disk: FakeDisk, facts: RunFacts) -> None:
    run = SortedRun(disk, "far/5.run", INDEX_ENTRY, facts)
    run.rows(np.arange(facts.rows))
    run.check_records(0)


def test_every_changed_byte_is_found() -> None:
    raw = bytes.fromhex(ROWS_RUN)
    facts = RunFacts(5, 2, 18, int(KEYS[0]), int(KEYS[1]), 300, 500)
    for at in range(len(raw)):
        disk = FakeDisk()
        disk.mkdir("far")
        disk.put("far/5.run", raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])
        if 52 <= at < 64:
            continue  # Unused bytes of the header.
        with pytest.raises(CorruptionError):
            read_all(disk, facts)


def test_runs_without_a_file_are_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = noted_reads(monkeypatch, FakeFile, "pread", lambda size, _: size)
    disk = FakeDisk()
    disk.mkdir("far")
    facts = [
        write_run(disk, f"far/{k}.run", k, RunRows(KEYS + k, some_rows(), RECORDS), (300, 500))
        for k in range(3)
    ]
    runs = OpenRuns(disk, "far", files_max=1)

    def look(number: int) -> None:
        check(runs.get(facts[number], INDEX_ENTRY), KEYS + number)

    for number in (0, 1, 2):
        look(number)
    reads.clear()
    for number in (0, 1, 2):
        look(number)
    # Rows and records of each.
    assert len(reads) == 6
    runs.close()
