"""The end of a load: the broker is killed around the commit, or Spark forgets that it was made.

The rows have no ids, so nothing but the transaction can tell a repeated row from a new one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.client.spark.misbehaving_server import Call, Fault
from tests.spark.frames import messages, stored
from tests.spark.real.fault_proxy import FaultProxy
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink
from tests.spark.test_stream_sink import committed_batches, run

ROWS = 60_000
"""More than a load waits for: `save()` returns when the commit is answered."""


@pytest.mark.parametrize("moment", ["before it", "behind it", "after the load"])
def test_a_broker_that_is_killed_around_the_commit_has_the_load_once(
    spark: SparkSession, real: RealBroker, moment: str
) -> None:
    """Before it: all is staged. Behind it: the answer is lost too. After: while it publishes."""
    killed: list[str] = []

    def crash(call: Call, when: str) -> None:
        if call.path.endswith("/load/commit") and moment == when and not killed:
            killed.append(when)
            real.kill()
            real.start()

    def lose(call: Call) -> Fault | None:
        lost = call.path.endswith("/load/commit") and moment == "behind it" and not killed
        return Fault(lose_answer=True) if lost else None

    with FaultProxy(real.url) as proxy:
        proxy.fault = lose
        proxy.asking = lambda call: crash(call, "before it")
        proxy.answering = lambda call, status: crash(call, "behind it")
        sink(messages(spark, 0, ROWS).drop("id"), proxy, txnAppId="load").save()
        commits = len(proxy.called("POST", "/load/commit"))
    if moment == "after the load":
        real.kill()
        real.start()
    else:
        assert killed == [moment]
    assert commits == (2 if moment == "behind it" else 1)
    assert real.settled("load")["rows"] == ROWS
    assert_holds_bodies(spark, real)


def test_a_batch_whose_note_is_lost_is_not_sent_again(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """Spark's own note of the last micro-batch is deleted, as by a crash before it was written."""
    source = str(tmp_path / "input")
    messages(spark, 0, ROWS, 2).drop("id").write.parquet(source)
    run(spark, source, real, tmp_path)
    for note in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        note.unlink()
    assert committed_batches(tmp_path) == [0]
    run(spark, source, real, tmp_path)
    assert committed_batches(tmp_path) == [0, 1]
    assert_holds_bodies(spark, real)


def assert_holds_bodies(spark: SparkSession, real: RealBroker) -> None:
    """Each body of the input once, by what the broker has on disk."""
    real.stop()
    found = stored(spark, real.data_dir).selectExpr("cast(value as string) as body").collect()
    assert sorted(row.body for row in found) == sorted(f"body of {n}" for n in range(ROWS))
