"""What a reader asks of a folder: options, columns, filters, and how rows are packed into tasks."""

from __future__ import annotations

import pytest

from delaylog.storage.layout import hour_name
from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.segments.options import parse_options
from tests.broker.engine.host import HOUR, Host
from tests.client.spark.segments.folder_table import START_HOUR, rows, tasks


def test_rows_are_packed_into_tasks_by_size_and_each_comes_once(host: Host) -> None:
    """Thirty small hours and a hot one of ten flushes."""
    for _ in range(10):
        host.send(2_000, delay=[30_000 + j for j in range(2_000)])
        host.flush()
        host.send(300, delay=[(j % 30 + 1) * HOUR for j in range(300)])
    host.checkpoint()
    for count in (1, 2, 5, 64):
        parts = tasks(host.folder, numPartitions=str(count))
        assert 1 <= len(parts) <= count
        refs = [row["ref"] for part in parts for row in part]
        assert len(refs) == len(set(refs)) == 23_000
        if count == 5:
            assert max(map(len, parts)) <= 2 * min(map(len, parts))
            assert len({row["hour"] for row in parts[0]}) == 1, "the hot hour is split"
            assert len({row["hour"] for row in parts[-1]}) > 5, "small hours share a task"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startHour": hour_name(START_HOUR + 1)}, {"b", "c", "u1"}),
        ({"endHour": hour_name(START_HOUR + 1)}, {"a"}),
        ({"startHour": "2021-05-03T01:00:00Z", "endHour": "2021-05-03T02"}, {"b", "u1"}),
        ({"topic": "u"}, {"u1"}),
        ({"topic": "t,u", "state": "waiting"}, {"b", "c", "u1"}),
        ({"state": "ready"}, {"a"}),
        ({"namespace": "elsewhere"}, set()),
        ({"group": "nobody"}, set()),
    ],
)
def test_options_choose_rows(host: Host, options: dict[str, str], expected: set[str]) -> None:
    host.send(3, delay=[1, HOUR, 2 * HOUR], ids=list("abc"))
    host.send(1, delay=HOUR, ids=["u1"], topic="u")
    host.advance(1)
    host.checkpoint()
    assert {row["id"] for row in rows(host.folder, includeText="true", **options)} == expected


def test_only_columns_that_are_asked_for_are_made(host: Host) -> None:
    host.send(3, delay=HOUR)
    host.checkpoint()
    wanted = ["state", "hour", "topic"]
    found = rows(host.folder, columns=", ".join(wanted))
    assert [list(row) for row in found] == [wanted] * 3
    with pytest.raises(OptionError, match="there is no 'value', only hour"):
        rows(host.folder, columns="value")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pth": "x"}, "unknown option 'pth'; there are path"),
        ({}, "path is missing"),
        ({"path": "x", "pushFilters": "true"}, "pushFilters: there is none.*startHour and endHour"),
        ({"path": "x", "startHour": "noon"}, "startHour must be"),
        ({"path": "x", "numPartitions": "0"}, "numPartitions"),
        ({"path": "x", "includeBody": "yes"}, "includeBody: 'yes' is not one of true, false"),
        ({"path": "x", "onCorrupt": "maybe"}, "onCorrupt"),
        ({"path": "x", "state": "asleep,waiting"}, "state must be of .*, not asleep$"),
        ({"path": "x", "topic": "a,,b"}, "topic has an empty name: 'a,,b'"),
        ({"path": "x", "columns": "hour,hour"}, "columns names one twice"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        parse_options(options)
