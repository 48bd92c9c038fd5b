"""The programs of examples/spark/lakehouse: what the broker has, once.

Loads are repeated, and killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from delaylog.storage.layout import hour_name
from pyspark_delaylog.jobs.main import main
from tests.broker.engine.host import HOUR, START_MS, Host, Message
from tests.programs import run_program
from tests.spark.lakehouse import Found, load, partitions, read, recipes
from tests.spark.real.real_broker import RealBroker
from tests.spark.session import ROOT

TOPICS = ("007", "7")
"""Names that are one number."""
ROWS = 20
FIRST_HOUR = hour_name(START_MS // HOUR)


@dataclass(frozen=True)
class Archived:
    """A broker's folder, its archive after two runs of the job, and how many messages it has."""

    folder: Path
    first: Path
    second: Path
    acked: dict[str, int]


@pytest.fixture(scope="module")
def archived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    """Two hours, the first with dead letters; these are replayed on the next day, in a third."""
    base = tmp_path_factory.mktemp("archived")
    names = (
        "spark.sql.session.timeZone",
        "spark.sql.parquet.outputTimestampType",
        "spark.sql.sources.partitionColumnTypeInference.enabled",
    )
    settings = {name: spark.conf.get(name) for name in names}
    host = Host(base / "data")
    for host.topic_name in TOPICS:
        host.configure(max_retry=0, ended_keep_ms=1_000 * HOUR)
    letters = work_an_hour(host, dead=1) + work_an_hour(host)
    archive_ended_hours(host, base / "archive")
    shutil.copytree(base / "archive", base / "first")
    host.advance(24 * HOUR)
    for host.topic_name, letter in zip(TOPICS, letters, strict=True):
        host.replay([letter.any_id])
    work_an_hour(host)
    host.send(5, delay=50 * HOUR)
    forget(base / "archive", FIRST_HOUR)
    archive_ended_hours(host, base / "archive")
    host.close()
    with RealBroker(base, "--archive-hold", "on") as broker:
        acked = {topic: broker.counts(topic)["acked"] for topic in TOPICS}
    yield Archived(base / "data", base / "first", base / "archive", acked)
    for name, value in settings.items():
        assert value is not None
        spark.conf.set(name, value)


def work_an_hour(host: Host, dead: int = 0) -> list[Message]:
    """Messages of each topic are acknowledged, but for so many; returns these."""
    letters = []
    for host.topic_name in TOPICS:
        host.send([b"x" * (size + 1) for size in range(ROWS)])
        host.advance(10)
        got = host.receive(100)
        host.nack(got[:dead])
        host.ack(got[dead:])
        letters += got[:dead]
    host.advance(HOUR)
    return letters


def archive_ended_hours(host: Host, out: Path) -> None:
    """By the command, which sets up the session that it runs in."""
    host.advance(2 * HOUR)
    host.checkpoint(2)
    assert main(["archive", str(host.folder), str(out)]) == 0


def forget(archive: Path, hour: str) -> None:
    """Have an hour archived again, as `--release` does for one that has changed."""
    manifest = archive / "_manifest.json"
    said = json.loads(manifest.read_text())
    del said["hours"][hour]
    manifest.write_text(json.dumps(said))


def rows_of(hours: int, dead: dict[int, str]) -> Found:
    """Rows of these hours; `dead` names the topic's letters by the size of their body."""
    found: Found = Counter()
    for topic in TOPICS:
        for size in range(1, ROWS + 1):
            found[topic, "acked", size] = hours - (size in dead)
            if size in dead:
                found[topic, dead[size], size] = 1
    return found


@pytest.mark.parametrize("way", ["parquet", "delta", "iceberg"])
def test_every_message_is_in_the_table_once(
    spark: SparkSession,
    archived: Archived,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """Two incremental loads, each repeated, the second killed before its mark or commit."""
    names, archive, lake = recipes(), tmp_path / "archive", tmp_path / "lake"
    before = rows_of(2, dead={1: "dead"})
    shutil.copytree(archived.first, archive)
    for _ in range(2):
        load(way, names, archive, lake, spark)
        assert read(way, lake, spark) == before
    shutil.rmtree(archive)
    shutil.copytree(archived.second, archive)
    if way == "parquet":
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", cut)
            with pytest.raises(OSError, match="cut off"):
                load(way, names, archive, lake, spark)
    else:
        program = ROOT / "tests" / "spark" / "lakehouse.py"
        died = run_program(sys.executable, program, way, archive, lake, env=os.environ)
        assert died.returncode == -signal.SIGKILL, died.stderr
    if way == "delta":
        assert read(way, lake, spark) == before
    for _ in range(2):
        load(way, names, archive, lake, spark)
        found = read(way, lake, spark)
        assert found == rows_of(3, dead={})
    assert partitions(way, lake) == (2 if way == "iceberg" else 2 * len(TOPICS))
    for topic, count in archived.acked.items():
        assert sum(n for key, n in found.items() if key[0] == topic) == count == 3 * ROWS


def cut(*_: Any) -> None:
    raise OSError("cut off")


def test_files_of_an_archive_have_timestamps_that_tables_take(archived: Archived) -> None:
    """Not INT96, which Spark writes by default."""
    file = next(archived.second.glob("utc_hour=*/*.parquet"))
    kinds = {column.name: column.physical_type for column in pq.ParquetFile(file).schema}
    assert kinds["deliver_at"] == kinds["ended_at"] == "INT64"


def test_waiting_messages_are_a_snapshot_of_each_day(
    spark: SparkSession, archived: Archived, tmp_path: Path
) -> None:
    """A repeat on the same day replaces it."""
    for day in ("2026-11-26", "2026-11-26"):
        recipes()["save_waiting"](spark, str(archived.folder), tmp_path / "waiting", day)
    waiting = recipes()["read_parquet"](spark, tmp_path / "waiting")
    found = waiting.groupBy("day", "topic").count().collect()
    assert [tuple(row) for row in found] == [("2026-11-26", "7", 5)]
