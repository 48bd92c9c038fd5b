"""A bad day between Spark and the real broker: busy, lost answers, failing tasks, late chunks.

The broker is asked directly what it holds; Spark reaches it through a proxy that misbehaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.client.spark.misbehaving_server import Call
from tests.spark.faulty import CRASH_FILE, FAIL_ATTEMPTS, FaultySource
from tests.spark.frames import ids_of, messages, parquet
from tests.spark.real.fault_proxy import FaultProxy
from tests.spark.real.mishaps import Mishaps
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink
from tests.spark.test_stream_sink import committed_batches, run

ROWS = 12_000
BATCH = 600
"""Rows a batch of the fixture `small_batches`: two of them are sent before a task fails."""


@pytest.fixture
def proxy(spark: SparkSession, real: RealBroker) -> Iterator[FaultProxy]:
    spark.dataSource.register(FaultySource)
    with FaultProxy(real.url) as proxy:
        yield proxy


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("delivery", ["staged", "direct"])
def test_busy_and_lost_answers_and_failed_tasks_lose_and_double_nothing(
    spark: SparkSession, real: RealBroker, proxy: FaultProxy, delivery: str
) -> None:
    """Each task's first attempt fails after two batches; then the whole load is run again."""
    proxy.fault = mishaps = Mishaps()
    frame = messages(spark, 0, ROWS, 2)
    options = {"delivery": delivery, "txnAppId": "load", "batchSize": BATCH // 2}
    sink(frame, proxy, FaultySource.name(), **options).option(FAIL_ATTEMPTS, "1").save()
    staged = delivery == "staged"
    assert mishaps.met == {"busy", "lost", *(["commit"] if staged else [])}
    if staged:
        assert real.settled("load")["discarded_rows"] >= 2 * BATCH, "no task has failed"
    real.assert_holds(ids_of(0, ROWS))
    sent = len(proxy.called("POST", "/parts"))
    sink(frame, proxy, **options).save()
    assert len(proxy.called("POST", "/parts")) == sent, "a committed load is not sent again"
    real.assert_holds(ids_of(0, ROWS))


@pytest.mark.usefixtures("small_batches")
def test_a_stream_through_all_of_it_at_once(
    spark: SparkSession, real: RealBroker, proxy: FaultProxy, tmp_path: Path
) -> None:
    """Its driver fails between the broker's commit of a batch and Spark's note of it."""
    source = parquet(spark, tmp_path, 6_000, 3)
    faults = {CRASH_FILE: str(tmp_path / "crashed"), FAIL_ATTEMPTS: "1", "batchSize": BATCH // 2}
    proxy.fault = mishaps = Mishaps()
    with pytest.raises(StreamingQueryException, match="crashes on purpose"):
        run(spark, source, proxy, tmp_path, FaultySource.name(), **faults)
    assert committed_batches(tmp_path) == [0]
    sent = len(proxy.calls)
    query = run(spark, source, proxy, tmp_path, FaultySource.name(), **faults)
    assert not [call for call in proxy.calls[sent:] if call.path.endswith(f"{query.id}.1/parts")]
    assert mishaps.met == {"busy", "lost", "commit"}
    assert committed_batches(tmp_path) == [0, 1, 2]
    assert sum(real.settled(f"{query.id}.{number}")["rows"] for number in range(3)) == 6_000
    real.assert_holds(ids_of(0, 6_000))


@pytest.mark.usefixtures("small_batches")
def test_chunks_that_come_too_late_are_refused(
    spark: SparkSession, real: RealBroker, proxy: FaultProxy
) -> None:
    """Of a task that goes on after its load has ended, whether by an abort or a commit."""
    frame = messages(spark, 0, 6_000, 2)
    failing = sink(frame, proxy, FaultySource.name(), txnAppId="load").option(FAIL_ATTEMPTS, "9")
    with pytest.raises(Exception, match="fails on purpose"):
        failing.save()
    assert_too_late(proxy, proxy.called("POST", "/load/parts")[0], "aborted")
    assert real.counts("t") == {}
    sink(frame, proxy, txnAppId="load").save()
    assert_too_late(proxy, proxy.called("POST", "/load.r1/parts")[0], "committed")
    assert real.settled("load.r1")["rows"] == 6_000
    real.assert_holds(ids_of(0, 6_000))


def assert_too_late(proxy: FaultProxy, chunk: Call, state: str) -> None:
    """The same chunk again, the attempt's next one, and one of another attempt."""
    for change in ({}, {"number": "9999"}, {"attempt": "9999"}):
        status, _, body = proxy.carry(replace(chunk, query=chunk.query | change))
        assert status == 410, body
        assert f'"state":"{state}"' in body.decode().replace(" ", "")
