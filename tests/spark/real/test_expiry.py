"""What ends by itself at the real broker: the lease of a claim, and an open transaction.

Nothing here depends on how fast the machine is: a call is withheld at a proxy until the broker
says that the time is over.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.client.spark.misbehaving_server import Call
from tests.spark.frames import ids_of, messages, parquet
from tests.spark.real.fault_proxy import FaultProxy
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink
from tests.spark.test_consuming_stream import consume
from tests.spark.test_stream_sink import committed_batches, run
from tests.waiting import await_that

READY = 1_000
"""Messages of a claim: as many as `consume` takes at once."""
ROWS = 12_000
WAIT_S = 60


def until(look: Callable[[], bool], what: str) -> None:
    await_that(look, lambda: f"it never came: {what}", seconds=WAIT_S, pause_s=0.05)


class Withheld:
    """The first call that is meant goes on when its time is over; `deed` brings that nearer."""

    def __init__(
        self,
        meant: Callable[[Call], bool],
        over: Callable[[], bool],
        deed: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self._meant, self._over, self._deed = meant, over, deed
        self._lock = threading.Lock()
        self.done = False

    def __call__(self, call: Call) -> None:
        with self._lock:
            if self.done or not self._meant(call):
                return
            self.done = True
        self._deed(call)
        until(self._over, "its end")


# --------------------------------------------------------------------------- claims


class Batches:
    """A query's work: it notes what it read, and how much was acknowledged when it had."""

    def __init__(self, real: RealBroker) -> None:
        self._real = real
        self.read: list[list[str]] = []
        self.acked: list[int] = []

    def __call__(self, frame: Any, number: int) -> None:
        self.read.append(sorted(row.id for row in frame.collect()))
        self.acked.append(self._real.counts("t").get("acked", 0))


@pytest.fixture
def ready(spark: SparkSession, real: RealBroker) -> RealBroker:
    """A broker with messages that are due."""
    frame = messages(spark, 0, READY).withColumn("deliver_at", f.timestamp_millis(f.lit(0)))
    sink(frame, real, delivery="direct").save()
    until(lambda: real.counts("t") == {"ready": READY}, "the time when they are due")
    return real


def stop(frame: Any, number: int) -> None:
    raise RuntimeError("stopped on purpose")


def test_a_query_that_rested_longer_than_its_lease_goes_on_or_fails(
    spark: SparkSession, ready: RealBroker, tmp_path: Path
) -> None:
    """As it is told; nothing is acknowledged before it was read. The broker restarts meanwhile."""
    with pytest.raises(StreamingQueryException, match="stopped on purpose"):
        consume(spark, ready, tmp_path, stop, leaseMs=1_000)
    until(lambda: ready.counts("t") == {"ready": READY}, "the end of the lease")
    ready.kill()
    ready.start()
    batches = Batches(ready)
    said = r"the 1,000 rows of claim \S+ of topic 't' cannot be read: its lease \(option leaseMs\)"
    with pytest.raises(StreamingQueryException, match=said):
        consume(spark, ready, tmp_path, batches, onExpiredClaim="fail")
    assert batches.read == []
    assert ready.counts("t") == {"ready": READY}, "nothing is acknowledged, nothing is held"
    for _ in range(2):
        consume(spark, ready, tmp_path, batches)
    assert batches.read == [[], ids_of(0, READY), []], "the lost batch, and its messages again"
    assert batches.acked == [0, 0, READY]
    assert ready.counts("t") == {"acked": READY}


@pytest.mark.parametrize("how", ["purge", "drop", "pause", "older folder", "older checkpoint"])
def test_a_query_goes_on_whatever_ended_its_claim(
    spark: SparkSession, ready: RealBroker, tmp_path: Path, how: str
) -> None:
    """Messages that the broker has are read, and no other ones are waited for."""
    checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"
    # The older checkpoint names a claim whose rows are read and acknowledged before its lease ends.
    lease_ms = 600_000 if how == "older checkpoint" else 1_000
    with pytest.raises(StreamingQueryException, match="stopped on purpose"):
        consume(spark, ready, tmp_path, stop, leaseMs=lease_ms)
    topic, left = f"{ready.url}/v1/topics/t", 0
    if how == "older folder":
        # A backup from before the claim, or its like: a folder that never knew it.
        ready.kill()
        shutil.rmtree(ready.data_dir)
        ready.start()
    elif how == "older checkpoint":
        shutil.copytree(checkpoint, older)
        consume(spark, ready, tmp_path, Batches(ready))
        assert ready.counts("t") == {"acked": READY}
        shutil.rmtree(checkpoint)
        older.rename(checkpoint)
    else:
        until(lambda: ready.counts("t") == {"ready": READY}, "the end of the lease")
    if how == "purge":
        requests.post(f"{topic}/purge", json={"force": True}, timeout=30).raise_for_status()
    elif how == "drop":
        requests.delete(f"{topic}?force=true", timeout=30).raise_for_status()
    elif how == "pause":
        requests.post(f"{topic}/pause", json={}, timeout=30).raise_for_status()
        left = READY
    batches = Batches(ready)
    consume(spark, ready, tmp_path, batches)
    assert [len(read) for read in batches.read] == [0] * len(batches.read)
    if how == "pause":
        requests.post(f"{topic}/resume", json={}, timeout=30).raise_for_status()
    more = messages(spark, READY, READY + 10)
    sink(more.withColumn("deliver_at", f.timestamp_millis(f.lit(0))), ready).save()
    until(lambda: ready.counts("t").get("ready", 0) == left + 10, "the time when they are due")
    consume(spark, ready, tmp_path, batches)
    assert sorted(row for read in batches.read for row in read) == ids_of(READY - left, READY + 10)
    assert "ready" not in ready.counts("t")


def test_of_a_claim_that_ends_while_it_is_read_nothing_is_acknowledged(
    spark: SparkSession, ready: RealBroker, tmp_path: Path
) -> None:
    """Half of it was read. All of it comes again."""

    def end_soon(call: Call) -> None:
        extend = f"{ready.url}{call.path.removesuffix('/rows')}/extend"
        requests.post(extend, json={"lease_ms": 1}, timeout=30).raise_for_status()

    batches = Batches(ready)
    options = {"minPartitions": 1, "batchSize": READY // 4}
    with FaultProxy(ready.url) as proxy:
        proxy.asking = withheld = Withheld(
            lambda call: call.path.endswith("/rows") and call.query["from"] == str(READY // 2),
            lambda: ready.counts("t") == {"ready": READY},
            end_soon,
        )
        consume(spark, proxy, tmp_path, batches, **options)
    assert withheld.done
    assert [len(read) for read in batches.read] == [READY // 2, 0]
    assert ready.counts("t") == {"ready": READY}
    consume(spark, ready, tmp_path, batches, **options)
    assert batches.read[2:] == [ids_of(0, READY), []]
    assert batches.acked == [0, 0, 0, READY]
    assert ready.counts("t") == {"acked": READY}


# --------------------------------------------------------------------------- transactions


def is_middle_chunk(call: Call) -> bool:
    return call.path.endswith("/parts") and (call.query["part"], call.query["number"]) == ("2", "3")


def is_commit(call: Call) -> bool:
    return call.path.endswith("/load/commit")


ENDED = {
    is_middle_chunk: r"transaction load has ended \(expired\).*option txnTtlMs",
    is_commit: r"transaction load cannot be committed.*\(expired\); no row is visible",
}


@pytest.mark.parametrize("again", ["load", "other"])
@pytest.mark.parametrize("meant", ENDED)
def test_a_load_that_outlasts_its_transaction_fails_whole_and_can_be_run_again(
    spark: SparkSession, real: RealBroker, meant: Callable[[Call], bool], again: str
) -> None:
    """Its rows take longer than `txnTtlMs`; under its name, or another one."""
    # Python's workers may take seconds to start, which is not what is to be seen here.
    sink(messages(spark, 0, 4), real, topic="warm").save()
    frame = messages(spark, 0, ROWS)
    with FaultProxy(real.url) as proxy:
        proxy.asking = withheld = Withheld(
            meant, lambda: real.transaction("load")["state"] == "expired"
        )
        with pytest.raises(Exception, match=ENDED[meant]):
            sink(frame, proxy, txnAppId="load", txnTtlMs=4_000).save()
    assert withheld.done
    assert real.transaction("load")["state"] == "expired"
    assert (real.counts("t"), real.ids("t")) == ({}, [])
    for _ in range(2):
        sink(frame, real, txnAppId=again).save()
    assert real.settled("load.r1" if again == "load" else "other")["rows"] == ROWS
    real.assert_holds(ids_of(0, ROWS))


def test_a_stream_whose_transaction_expired_sends_that_batch_again(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    source = parquet(spark, tmp_path, 6_000, 3)

    def end_soon(call: Call) -> None:
        shape = {"transaction": "app.1", "ttl_ms": 1}
        requests.post(f"{real.url}/v1/transactions", json=shape, timeout=30).raise_for_status()

    with FaultProxy(real.url) as proxy:
        proxy.asking = withheld = Withheld(
            lambda call: call.path.endswith("/app.1/commit"),
            lambda: real.transaction("app.1")["state"] == "expired",
            end_soon,
        )
        with pytest.raises(StreamingQueryException, match=r"app\.1 cannot be committed"):
            run(spark, source, proxy, tmp_path, txnAppId="app")
    assert withheld.done
    assert committed_batches(tmp_path) == [0]
    run(spark, source, real, tmp_path, txnAppId="app")
    assert committed_batches(tmp_path) == [0, 1, 2]
    assert sum(real.settled(f"app.{each}")["rows"] for each in ("0", "1.r1", "2")) == 6_000
    real.assert_holds(ids_of(0, 6_000))
