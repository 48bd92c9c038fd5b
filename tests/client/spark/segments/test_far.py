"""Messages due days and months ahead, whose hours have no folders yet, as rows of the table.

Method: an engine sends, cancels and moves messages across the border of the far tier; the table is
held against what the engine answers for each id. Damage is done to one run at a time.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from delaylog.storage.layout import RUN_HEADER_SIZE, hour_name
from pyspark_delaylog.segments.errors import DamagedError, SegmentError
from pyspark_delaylog.segments.folder import read_folder
from pyspark_delaylog.segments.options import parse_options
from pyspark_delaylog.segments.plan import plan
from pyspark_delaylog.segments.slice_reader import Reading
from tests.broker.engine.host import HOUR, Host
from tests.broker.verify.damaged_folder import flip
from tests.client.spark.segments.folder_table import rows, tasks

DAY = 24 * HOUR


def send_far(host: Host) -> list[str]:
    """Near and far messages, some of which have changed."""
    ids = [f"m{number}" for number in range(40)]
    delays = [HOUR, 3 * DAY, 90 * DAY + 7 * HOUR, 400 * DAY] * 10
    host.send(40, delay=delays, ids=ids)
    host.flush()
    host.cancel(["m1", "m6"])
    host.reschedule(["m2"], host.now_ms + 5 * DAY)
    host.reschedule(["m3"], host.now_ms + HOUR)
    host.reschedule(["m4"], host.now_ms + 200 * DAY)
    host.checkpoint()
    host.cancel(["m7"])
    host.send(2, delay=[2 * HOUR, 30 * DAY], ids=["late0", "late1"])
    host.checkpoint()
    return [*ids, "late0", "late1"]


def runs(host: Host) -> list[Path]:
    return sorted((host.folder / "hours" / "far").iterdir())


def test_far_rows_are_in_the_table_with_their_states(host: Host) -> None:
    ids = send_far(host)
    assert len(runs(host)) >= 2
    found = {row["id"]: row for row in rows(host.folder, includeBody="true")}
    assert sorted(found) == sorted(ids)
    for name, shown in zip(ids, host.find(ids), strict=True):
        assert shown is not None
        row = found[name]
        assert row["state"] == shown.state.name.lower(), name
        due_ms = int(row["deliver_at"].timestamp() * 1000)
        assert row["hour"].timestamp() * 1000 == due_ms // HOUR * HOUR, name
    assert {found[name]["state"] for name in ("m1", "m6", "m7")} == {"cancelled"}
    assert found["m39"]["value"] == b"39"


def test_the_hours_of_a_query_and_its_tasks_split_the_far_rows(host: Host) -> None:
    ids = send_far(host)
    border = (host.now_ms + 100 * DAY) // HOUR * HOUR
    name = hour_name(border // HOUR)
    before = rows(host.folder, includeText="true", endHour=name)
    behind = rows(host.folder, includeText="true", startHour=name)
    assert all(row["hour"].timestamp() * 1000 >= border for row in behind)
    assert len(before) > len(behind) > 0
    assert sorted(row["id"] for row in before + behind) == sorted(ids)
    parts = tasks(host.folder, includeText="true", numPartitions="4")
    assert len(parts) > 1
    assert sorted(row["id"] for part in parts for row in part) == sorted(ids)


def test_an_hour_that_came_near_is_read_from_its_folder(host: Host) -> None:
    ids = send_far(host)
    host.advance(2 * DAY + HOUR)
    host.far_work()
    host.checkpoint()
    found = rows(host.folder, includeText="true")
    assert Counter(row["id"] for row in found) == Counter(ids)


def test_a_restarted_host_and_a_moved_row(host: Host) -> None:
    ids = send_far(host)
    host.restart()
    host.checkpoint()
    assert sorted(row["id"] for row in rows(host.folder, includeText="true")) == sorted(ids)
    moved = rows(host.folder, includeText="true", includeMoved="true", state="moved")
    assert sorted(row["id"] for row in moved) == ["m2", "m3", "m4"]


@pytest.mark.parametrize("where", ["header", "keys", "rows"])
def test_a_damaged_run_is_an_error_or_skipped(host: Host, where: str) -> None:
    ids = send_far(host)
    run = max(runs(host), key=lambda path: path.stat().st_size)
    flip(run, {"header": 8, "keys": RUN_HEADER_SIZE + 3, "rows": run.stat().st_size // 2}[where])
    with pytest.raises(DamagedError, match=run.name):
        rows(host.folder, includeBody="true")
    found = rows(host.folder, includeBody="true", onCorrupt="skip")
    states = Counter(row["state"] for row in found)
    assert states["damaged"] > 0
    whole = [row["id"] for row in found if row["state"] != "damaged"]
    assert len(whole) == len(set(whole)) < len(ids)
    assert rows(host.folder, state="cancelled", onCorrupt="skip") is not None


def test_a_run_that_was_replaced_meanwhile_is_an_error_that_says_so(host: Host) -> None:
    send_far(host)
    asked = parse_options({"path": str(host.folder)})
    folder = read_folder(asked.path)
    host.send(1, delay=9 * DAY, ids=["more"])
    host.checkpoint()
    for run in runs(host):
        run.unlink()
    reading = Reading(folder, asked)
    with pytest.raises(SegmentError, match="read again"):
        _ = [list(reading.batches(task)) for task in plan(folder, asked)]
