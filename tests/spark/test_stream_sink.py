"""The streaming sink in a real Spark: micro-batches, failures, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import ids_of, parquet

ROWS = 8_000
FILES = 4


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four files, a micro-batch each."""
    return parquet(spark, tmp_path_factory.mktemp("stream"), ROWS, FILES)


def run(
    spark: SparkSession,
    source: str,
    broker: FakeBroker,
    folder: Path,
    kind: str = "delaylog",
    **given: Any,
) -> StreamingQuery:
    """All that is there, then the query ends."""
    frame = (
        spark.readStream.schema(spark.read.parquet(source).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
    )
    query = (
        frame.writeStream.format(kind)
        .options(
            **{"endpoint": broker.url, "topic": "t", "retryWaitMs": 1, "batchSize": 500, **given}
        )
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return query


def committed_batches(folder: Path) -> list[int]:
    """What Spark has noted as done."""
    names = [path.name for path in (folder / "checkpoint" / "commits").iterdir()]
    return sorted(int(name) for name in names if name.isdigit())


@pytest.mark.parametrize("delivery", ["staged", "direct"])
def test_every_file_is_a_batch_and_every_row_is_sent_once(
    spark: SparkSession, broker: FakeBroker, source: str, tmp_path: Path, delivery: str
) -> None:
    query = run(spark, source, broker, tmp_path, delivery=delivery)
    assert sorted(broker.ids("t")) == ids_of(0, ROWS)
    names = {f"{query.id}.{number}" for number in range(FILES)}
    assert set(broker.transactions) == (names if delivery == "staged" else set())
    assert sum(progress.sink.numOutputRows for progress in query.recentProgress) == ROWS


def test_a_new_checkpoint_doubles_unless_the_application_has_a_name(
    spark: SparkSession, broker: FakeBroker, source: str, tmp_path: Path
) -> None:
    for number in range(2):
        run(spark, source, broker, tmp_path / str(number), txnAppId="app")
    assert sorted(broker.ids("t")) == ids_of(0, ROWS)
    assert set(broker.transactions) == {f"app.{number}" for number in range(FILES)}
    run(spark, source, broker, tmp_path / "other")
    assert len(broker.ids("t")) == 2 * ROWS


def test_what_is_wrong_ends_the_query_at_once(
    spark: SparkSession, broker: FakeBroker, source: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="option batchSize"):
        run(spark, source, broker, tmp_path, batchSize="many")
    assert broker.calls == []
