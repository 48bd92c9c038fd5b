"""The format `delaylog-segments` in Spark: found by its name, filtered, packed into tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.storage.layout import hour_name
from tests.broker.engine.host import HOUR, START_MS, Host

START_HOUR = START_MS // HOUR
MODULE = "pyspark_delaylog.segments"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """24 hours of two topics; the first hour is acknowledged, with one dead letter."""
    host = Host(tmp_path_factory.mktemp("broker") / "data")
    host.configure(max_retry=0, ended_keep_ms=1_000 * HOUR)
    due = [k % 24 * HOUR + 60_000 + k for k in range(4_800)]
    host.send(
        [b"body %d" % k for k in range(4_800)], delay=due, ids=[f"i{k}" for k in range(4_800)]
    )
    host.send(240, delay=[k % 24 * HOUR for k in range(240)], topic="u")
    host.advance(70_000)
    got = host.receive(10_000)
    assert len(got) == 200
    host.nack(got[:1])
    host.ack(got[1:])
    host.checkpoint()
    yield host.folder
    host.close()


def load(spark: Any, folder: Path, **options: Any) -> Any:
    return spark.read.format("delaylog-segments").options(**options).load(str(folder))


def test_the_format_is_found_and_a_folder_is_a_table(spark: Any, folder: Path) -> None:
    frame = load(spark, folder)
    counts = {
        (row["topic"], row["state"]): row["count"]
        for row in frame.groupBy("topic", "state").count().collect()
    }
    assert counts == {
        ("t", "acked"): 199,
        ("t", "dead"): 1,
        ("t", "waiting"): 4_600,
        ("u", "ready"): 10,
        ("u", "waiting"): 230,
    }
    assert dict(frame.dtypes)["deliver_at"] == "timestamp"


def test_bodies_come_when_they_are_asked_for(spark: Any, folder: Path) -> None:
    frame = load(spark, folder, includeBody=True, topic="t", numPartitions=3)
    found = {row["id"]: bytes(row["value"]) for row in frame.select("id", "value").collect()}
    assert found == {f"i{k}": b"body %d" % k for k in range(4_800)}
    assert {name for name, _ in frame.dtypes} >= {"key", "tags", "headers", "value"}
    assert frame.where("size(tags) = 0 and size(headers) = 0 and key is null").count() == 4_800


def test_hours_are_packed_into_as_many_tasks_as_asked_for(spark: Any, folder: Path) -> None:
    for count in (1, 2, 7):
        parts = load(spark, folder, numPartitions=count).rdd.glom().map(len).collect()
        assert len(parts) == count
        assert sum(parts) == 5_040
        assert max(parts) < 2 * 5_040 / count


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("push", [True, False])
def test_filters_say_the_same_pushed_or_not(spark: Any, folder: Path, push: bool) -> None:
    """By default one DataFrame serves many queries; with pushed filters each has its own."""
    hour = f"timestamp_millis({(START_HOUR + 3) * HOUR})"
    due = f"timestamp_millis({START_MS + 3 * HOUR + 60_000 + 1_000})"
    at, by = spark.sql(f"select {hour}, {due}").first()
    tests: dict[str, Callable[[Any], bool]] = {
        f"hour = {hour}": lambda row: row["hour"] == at,
        f"hour > {hour} and topic = 'u'": lambda row: row["hour"] > at and row["topic"] == "u",
        f"deliver_at < {due} and state in ('waiting', 'dead')": lambda row: (
            row["deliver_at"] < by and row["state"] in ("waiting", "dead")
        ),
        "state = 'dead' or topic = 'u'": lambda row: row["state"] == "dead" or row["topic"] == "u",
        "attempts = 1 and namespace = 'default'": lambda row: row["attempts"] == 1,
    }
    frame = load(spark, folder, numPartitions=2)
    whole = frame.collect()
    for text, test in tests.items():
        asked = load(spark, folder, numPartitions=2, pushFilters=True) if push else frame
        found = [row["ref"] for row in asked.where(text).collect()]
        assert sorted(found) == sorted(row["ref"] for row in whole if test(row)), text
    asked = load(spark, folder, pushFilters=push)
    plan = asked.where(f"hour >= {hour}")._jdf.queryExecution().executedPlan().toString()
    assert (">=" not in plan) == push, "whether the filter is done by the source"


def test_a_mistake_is_said_before_anything_runs(spark: Any, folder: Path) -> None:
    with pytest.raises(Exception, match="unknown option 'starthoure'"):
        load(spark, folder, startHoure="x").count()
    with pytest.raises(Exception, match="not a broker's data folder"):
        load(spark, folder / "hours").count()


def test_rot_fails_the_job_and_names_the_file(spark: Any, tmp_path: Path) -> None:
    host = Host(tmp_path / "data")
    host.send(10, delay=HOUR)
    host.checkpoint()
    path = host.folder / "hours" / hour_name(START_HOUR + 1) / "delay.index"
    raw = bytearray(path.read_bytes())
    raw[200] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Exception, match=r"delay\.index at byte 0: 10 rows that are not"):
        load(spark, host.folder).count()
    found = load(spark, host.folder, onCorrupt="skip").collect()
    assert Counter(row["state"] for row in found) == {"damaged": 10}
    host.close()
