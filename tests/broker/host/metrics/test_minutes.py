"""The file of minutes: the bytes of a slot, the ring, and what a broker writes."""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from crc32c import crc32c

from delaylog.broker.engine.late.latest import LATEST_MAX
from delaylog.broker.host.metrics.minutes import (
    FILE,
    HEAD,
    MAGIC,
    SLOT_BYTES,
    SLOTS,
    LateMessage,
    MinuteRow,
    UntakenGroup,
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
    late=[LateMessage("t", "m", 900, 1_740_000_000_900, "ns", "g", [["paused", 900]])],
    untaken=[UntakenGroup("ns", "t", "g", "paused")],
)


def slot_of(members: dict[str, Any]) -> bytes:
    packed = msgpack.packb(members)
    size = struct.pack("<I", len(packed))
    return HEAD.pack(MAGIC, crc32c(size + packed), len(packed)) + packed


def test_the_bytes_of_a_slot() -> None:
    """Purpose: an older release's file stays readable. Method: its head, and a round trip."""
    slot = encode_row(ROW)
    assert len(slot) == SLOT_BYTES
    assert slot[:4] == b"DLMN"
    assert HEAD.unpack_from(slot)[2] == len(slot.rstrip(b"\0")) - HEAD.size
    assert slot[12:21] == b"\xde\x00\x11\xa6minute"[:9]
    assert decode_row(slot) == ROW


@pytest.mark.parametrize("at", [0, 5, 9, 30])
def test_a_damaged_slot_is_absent(at: int) -> None:
    slot = bytearray(encode_row(ROW))
    slot[at] ^= 1
    assert decode_row(bytes(slot)) is None
    assert decode_row(bytes(SLOT_BYTES)) is decode_row(b"") is None


def test_long_names_of_late_messages_are_left_out() -> None:
    late = [
        LateMessage(letter * 200, "m" * 100, ms, 1, "default", "default", [["paused", ms]])
        for letter, ms in (("t", 900), ("u", 800), ("v", 7))
    ]
    found = decode_row(encode_row(replace(ROW, late=late)))
    assert found is not None
    assert 1 <= len(found.late) < 3
    assert found.late == late[: len(found.late)]
    assert found.untaken == ROW.untaken
    names = [UntakenGroup("n" * 100, "t" * 200, "g" * 100, "paused")] * 3
    found = decode_row(encode_row(replace(ROW, untaken=names)))
    assert found is not None
    assert found.late == []
    assert 1 <= len(found.untaken) < 3


def test_rows_of_other_releases_are_read() -> None:
    """Purpose: an upgrade or a downgrade loses no minutes. Method: fewer and more members."""
    members = {"minute": 5, "run": 1, "late": [["t", "m", 900, 7]]}
    old = decode_row(slot_of(members))
    assert old == MinuteRow(5, 1, late=[LateMessage("t", "m", 900, 7)])
    late = [["t", "m", 900, 7, "ns", "g", [], "more"]]
    new = decode_row(slot_of({**members, "late": late, "unheard": 3}))
    assert new == MinuteRow(5, 1, late=[LateMessage("t", "m", 900, 7, "ns", "g", [])])


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
    write_row(folder, replace(ROW, late=ROW.late * LATEST_MAX, disk_full=True))
    write_row(folder, replace(ROW, run=7, ready=9, ready_late=[0, 0, 1, 4]))
    (found,) = read_rows(folder, 0, 1 << 40)
    assert (found.run, found.sent, found.ready, found.disk_full) == (7, 10, 9, True)
    assert found.ready_late == [1, 0, 3, 4]
    assert len(found.late) == LATEST_MAX


def test_a_broker_writes_its_minutes(start_broker: Any, tmp_path: Path) -> None:
    """Purpose: the row of a stop has what happened. Method: a late message, then SIGTERM, twice."""
    broker = start_broker(folder=tmp_path)
    ready = 'delaylog_ready_messages{group="default",namespace="default",topic="t"}'
    for _ in range(2):
        sent = broker.post("/v1/topics/t/messages", {"body": "x"})
        broker.await_metric(ready, 1)
        time.sleep(0.03)
        (message,) = broker.post("/v1/topics/t/receive", {})["messages"]
        broker.post("/v1/topics/t/ack", {"receipts": [message["receipt"]]})
        assert broker.stop() == 0
        broker.start()
    (file,) = tmp_path.rglob(FILE)
    rows = read_rows(str(file.parent), 0, 1 << 40)
    assert sum(row.sent for row in rows) == sum(row.delivered for row in rows) == 2
    assert sum(sum(row.ready_late) for row in rows) == 2
    assert all(row.leading for row in rows)
    late = [each for row in rows for each in row.late]
    assert sent["id"] in [each.message_id for each in late]
    assert all(each[4:6] == ("default", "default") and each.late_ms >= 30 for each in late)
    assert all(each.causes[0][0] == "no_consumers" for each in late)
