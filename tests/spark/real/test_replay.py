"""A consuming stream whose driver is killed between the output of a batch and its commit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.frames import ids_of, messages
from tests.spark.real.consumer import outputs, write_batch
from tests.spark.real.real_broker import RealBroker
from tests.spark.session import ROOT
from tests.spark.test_batch_sink import sink
from tests.spark.test_consuming_stream import consume
from tests.spark.test_stream_sink import committed_batches
from tests.waiting import await_that

ROWS = 3_000
WAIT_S = 240


def run_consumer(real: RealBroker, folder: Path, *, dies_at: int, lease_ms: int) -> int:
    """The exit status of a driver of its own, whose output is appended to `driver.log`."""
    words: list[Any] = [sys.executable, "-m", "tests.spark.real.consumer", real.url, folder]
    with (folder / "driver.log").open("ab") as log:
        return subprocess.run(
            [*words, str(dies_at), str(lease_ms)],
            check=False,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=WAIT_S,
        ).returncode


@pytest.mark.drill
def test_a_batch_that_was_written_and_not_committed_is_replayed_with_the_same_rows(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """So an output that goes by the batch's number has each message once."""
    due = messages(spark, 0, ROWS).withColumn("deliver_at", f.timestamp_millis(f.lit(0)))
    sink(due, real, delivery="direct").save()
    died = run_consumer(real, tmp_path, dies_at=1, lease_ms=600_000)
    assert died == -signal.SIGKILL, (tmp_path / "driver.log").read_text()
    before = outputs(tmp_path)
    assert list(before) == ["batch-0", "batch-1"]
    assert committed_batches(tmp_path) == [0], "the kill fell between output and commit"
    assert real.counts("t")["acked"] == 1_000
    seen: list[int] = []

    def each(frame: object, number: int) -> None:
        seen.append(number)
        write_batch(tmp_path, frame, number)

    consume(spark, real, tmp_path, each)
    assert seen[0] == 1, "the batch is replayed"
    after = outputs(tmp_path)
    assert after["batch-1"] == before["batch-1"], "with the rows of its claim"
    assert sorted(row for rows in after.values() for row in rows) == ids_of(0, ROWS)
    assert real.counts("t") == {"acked": ROWS}


def test_a_nightly_job_that_crashed_reads_everything_in_the_next_nights(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """Its driver is killed, its lease ends, and the broker restarts. Nobody changes the job."""
    due = messages(spark, 0, ROWS).withColumn("deliver_at", f.timestamp_millis(f.lit(0)))
    sink(due, real, delivery="direct").save()
    assert run_consumer(real, tmp_path, dies_at=1, lease_ms=40_000) == -signal.SIGKILL
    before = outputs(tmp_path)
    await_that(lambda: real.counts("t") == {"acked": 1_000, "ready": 2_000}, seconds=WAIT_S)
    real.kill()
    real.start()
    for _ in range(2):
        status = run_consumer(real, tmp_path, dies_at=-1, lease_ms=600_000)
        log = (tmp_path / "driver.log").read_text()
        assert status == 0, log
    after = outputs(tmp_path)
    assert after["batch-1"] == [], "its rows come in later batches"
    rows = [row for name, rows in after.items() for row in rows]
    assert sorted(rows) == ids_of(0, ROWS)
    assert before["batch-1"] in after.values()
    assert real.counts("t") == {"acked": ROWS}
    said = "with 1,000 messages has ended: its lease (option leaseMs) ran out"
    assert log.count("WARNING delaylog: claim ") == log.count(said) == 1
