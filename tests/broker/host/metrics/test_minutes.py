"""The file of minutes: the bytes of a slot, the ring, and what a broker writes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.host.metrics.minutes import (
    FILE,
    HEAD,
    LATE_MAX,
    SLOT_BYTES,
    SLOTS,
    MinuteRow,
    decode_row,
    encode_row,
    read_rows,
    write_row,
)

ROW = MinuteRow(
    minute=29_000_000,
    run=1_740_000_000_000,
    sent=5,
    delivered=4,
    ready=2,
    ready_late=[1, 0, 2],
    late=[["t", "m", 900, 1_740_000_000_900]],
)


def test_the_bytes_of_a_slot() -> None:
    """Purpose: an older release's file stays readable. Method: its head, and a round trip."""
    slot = encode_row(ROW)
    assert len(slot) == SLOT_BYTES
    assert slot[:4] == b"DLMN"
    assert HEAD.unpack_from(slot)[2] == len(slot.rstrip(b"\0")) - HEAD.size
    assert slot[12:21] == b"\xde\x00\x10\xa6minute"[:9]
    assert decode_row(slot) == ROW


@pytest.mark.parametrize("at", [0, 5, 9, 30])
def test_a_damaged_slot_is_absent(at: int) -> None:
    slot = bytearray(encode_row(ROW))
    slot[at] ^= 1
    assert decode_row(bytes(slot)) is None
    assert decode_row(bytes(SLOT_BYTES)) is decode_row(b"") is None


def test_long_names_of_late_messages_are_left_out() -> None:
    late = [["t" * 200, "m" * 100, 900, 1], ["u" * 300, "m" * 100, 800, 1], ["v" * 400, "m", 7, 1]]
    found = decode_row(encode_row(replace(ROW, late=late)))
    assert found is not None
    assert 1 <= len(found.late) < 3
    assert found.late == late[: len(found.late)]


def test_a_week_later_a_row_is_replaced(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for minute in (ROW.minute + 1, ROW.minute, ROW.minute + SLOTS):
        write_row(folder, replace(ROW, minute=minute))
    found = read_rows(folder, 0, 1 << 40)
    assert [row.minute - ROW.minute for row in found] == [1, SLOTS]
    assert read_rows(folder, ROW.minute, ROW.minute + 1) == []
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_two_parts_of_a_minute_are_added(tmp_path: Path) -> None:
    """A restart within a minute loses nothing; figures at its end are those of the newer part."""
    folder = str(tmp_path)
    write_row(folder, replace(ROW, late=ROW.late * LATE_MAX, disk_full=True))
    write_row(folder, replace(ROW, run=7, ready=9, ready_late=[0, 0, 1, 4]))
    (found,) = read_rows(folder, 0, 1 << 40)
    assert (found.run, found.sent, found.ready, found.disk_full) == (7, 10, 9, True)
    assert found.ready_late == [1, 0, 3, 4]
    assert len(found.late) == LATE_MAX


def test_a_broker_writes_its_minutes(start_broker: Any, tmp_path: Path) -> None:
    """Purpose: the row of a stop has what happened. Method: a late message, then SIGTERM, twice."""
    broker = start_broker(folder=tmp_path)
    ready = 'delaylog_ready_messages{group="default",namespace="default",topic="t"}'
    for _ in range(2):
        sent = broker.post("/v1/topics/t/messages", {"body": "x"})
        broker.await_metric(ready, 1)
        time.sleep(0.03)
        broker.post("/v1/topics/t/receive", {})
        assert broker.stop() == 0
        broker.start()
    (file,) = tmp_path.rglob(FILE)
    rows = read_rows(str(file.parent), 0, 1 << 40)
    assert sum(row.sent for row in rows) == sum(row.delivered for row in rows) == 2
    assert sum(sum(row.ready_late) for row in rows) == 2
    assert all(row.leading for row in rows)
    late = [each for row in rows for each in row.late]
    assert sent["id"] in [each[1] for each in late]
    assert all(each[0] == "t" and each[2] >= 30 for each in late)
