"""The driver is killed by -9 in the middle of its loads; another driver runs them again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.client.spark.misbehaving_server import Call
from tests.spark.frames import ids_of, messages, parquet
from tests.spark.real.driver import BATCH_LOAD, BATCH_ROWS, STREAM_APP, start_stream
from tests.spark.real.fault_proxy import FaultProxy
from tests.spark.real.real_broker import RealBroker
from tests.spark.session import ROOT
from tests.spark.test_batch_sink import sink
from tests.spark.test_stream_sink import committed_batches
from tests.waiting import await_that

WAIT_S = 120


def test_a_driver_that_is_killed_loses_and_doubles_nothing(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """By kill -9, while a batch load is between chunks and a stream between its two commits.

    The stream's second commit is carried out, and its answer withheld until the driver is dead. Run
    again from here, each of them goes on.
    """
    source = parquet(spark, tmp_path, 6_000, 3)
    committed, dead = threading.Event(), threading.Event()

    def withhold(call: Call, status: int) -> None:
        if call.path.endswith(f"/{STREAM_APP}.1/commit"):
            assert status == 200
            committed.set()
            dead.wait(WAIT_S)

    with FaultProxy(real.url) as proxy, driver(proxy.url, source, tmp_path) as process:
        proxy.answering = withhold
        try:
            assert committed.wait(WAIT_S), (tmp_path / "driver.log").read_text()
            wait_until(lambda: real.sent("batch", BATCH_LOAD) > 1_000, tmp_path)
            assert real.transaction(BATCH_LOAD)["state"] == "open"
            assert committed_batches(tmp_path) == [0], "Spark has noted what it was not told"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        finally:
            dead.set()
    sink(messages(spark, 0, BATCH_ROWS, 2), real, topic="batch", txnAppId=BATCH_LOAD).save()
    found = real.settled(BATCH_LOAD)
    assert (found["rows"], found["discarded_rows"] > 0) == (BATCH_ROWS, True)
    real.assert_holds(ids_of(0, BATCH_ROWS), "batch")
    assert start_stream(spark, real.url, source, tmp_path).awaitTermination(WAIT_S)
    assert committed_batches(tmp_path) == [0, 1, 2]
    assert sum(real.settled(f"{STREAM_APP}.{number}")["rows"] for number in range(3)) == 6_000
    real.assert_holds(ids_of(0, 6_000), "stream")


@contextmanager
def driver(endpoint: str, source: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of its own, with its JVM in a process group of their own."""
    command: list[Any] = [sys.executable, "-m", "tests.spark.real.driver", endpoint, source, folder]
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def wait_until(look: Callable[[], bool], folder: Path) -> None:
    await_that(look, (folder / "driver.log").read_text, seconds=WAIT_S, pause_s=0.05)
