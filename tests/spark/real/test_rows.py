"""What the broker makes of single rows: every field arrives, and every refusal names its row.

Tasks are played without Spark, since only the rows matter here. A row that the broker refuses is
put aside and the others are loaded, or the load fails with the row and the column in the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_delaylog import tasks
from pyspark_delaylog.errors import RefusedError, RowError
from pyspark_delaylog.options import Options
from pyspark_delaylog.writers import DelaylogBatchWriter
from tests.client.spark.batches import HEADERS, batch_of, ids_of
from tests.client.spark.task_context import SCHEMA, Spark, run_task
from tests.spark.real.real_broker import RealBroker

ROWS = 20
US = pa.timestamp("us", tz="UTC")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with RealBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Spark:
    played = Spark()
    monkeypatch.setattr(tasks, "TaskContext", played)
    return played


def load(real: RealBroker, played: Spark, batch: Any, **given: str) -> DelaylogBatchWriter:
    options = Options.parse({"endpoint": real.url, "topic": "t", "retryWaitMs": "1", **given})
    topic = [] if options.topic else [StructField("topic", StringType())]
    writer = DelaylogBatchWriter(options, StructType([*SCHEMA.fields, *topic]))
    writer.commit([run_task(writer, played, 0, 0, [batch])])
    return writer


def with_one(kind: Any, good: Any, wrong: Any) -> Any:
    """A column whose fourth value is wrong."""
    return pa.array([good, good, good, wrong] + [good] * (ROWS - 4), kind)


REFUSED: dict[str, tuple[str, Any, Any, Any, str]] = {
    "a key too long": ("key", pa.string(), "k", "k" * 256, "255 bytes"),
    "an id too long": ("id", pa.string(), "i", "i" * 256, "255 bytes"),
    "a time over the horizon": ("deliver_at", US, 0, 2**52, "horizon"),
    "a time of the year 100,000": ("deliver_at", US, 0, 31 * 10**17, "microseconds"),
    "a body too large": ("value", pa.string(), "b", "b" * (5 << 20), "4194304 bytes"),
    "a body larger than a request": ("value", pa.string(), "b", "b" * (70 << 20), "bytes"),
    "too many tags": ("tags", pa.list_(pa.string()), ["x"], ["x"] * 17, "tags"),
    "a tag too long": ("tags", pa.list_(pa.string()), ["x"], ["x" * 65], "tags"),
    "a null tag": ("tags", pa.list_(pa.string()), ["x"], [None], "null"),
    "headers too large": (
        "headers",
        HEADERS,
        None,
        [{"key": "k", "value": b"x" * 20_000}],
        "16384 bytes",
    ),
    "headers with a null": ("headers", HEADERS, None, [{"key": "k", "value": None}], "null"),
    "a lifetime out of bounds": ("ttl_ms", pa.int64(), 5, -7, "ttl_ms"),
    "too many retries": ("max_retry", pa.int32(), 5, 70_000, "max_retry"),
    "a priority out of bounds": ("priority", pa.int32(), 5, -(2**31), "priority"),
    "an unknown mode": ("merge", pa.string(), "keep", "join", "merge"),
    "a backoff out of bounds": (
        "backoff",
        pa.struct([("factor", pa.float64())]),
        {"factor": 2.0},
        {"factor": 0.5},
        "factor",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_row_that_is_refused_is_put_aside(shared: RealBroker, played: Spark, case: str) -> None:
    name, kind, good, wrong, reason = REFUSED[case]
    topic = f"refused-{list(REFUSED).index(case)}"
    ids = ids_of(0, ROWS)
    columns = {name: with_one(kind, good, wrong)}
    if name == "id":
        columns = {"id": pa.array([*ids[:3], wrong, *ids[4:]])}
    batch = batch_of(ids, **columns)
    whole = "value" if name == "value" else name
    with pytest.raises(RowError, match=rf"column '{whole}' of the row with id .*onError"):
        load(shared, played, batch, topic=topic)
    load(shared, played, batch, topic=topic, onError="deadLetter", txnAppId=topic)
    shared.settled(topic)
    assert sorted(shared.ids(topic)) == [*ids[:3], *ids[4:]]
    (letter,) = shared.get(f"/v1/topics/{topic}.rejected/messages")["messages"]
    said = shared.get(f"/v1/topics/{topic}.rejected/messages/{letter['id']}")["headers"]
    assert reason in said["delaylog-rejected-reason"]
    assert said["delaylog-rejected-id"] == columns.get("id", batch.column("id"))[3].as_py()[:300]


def test_a_past_time_is_due_at_once(shared: RealBroker, played: Spark) -> None:
    times = pa.array([0, 10**15, 10**15 + 1, 1_770_000_000_000_000], pa.int64()).cast(US)
    load(shared, played, batch_of(ids_of(0, 4), deliver_at=times), topic="past", txnAppId="past")
    committed_at_ms = shared.settled("past")["decided_at_ms"]
    assert sum(shared.counts("past").values()) == 4
    for each in ids_of(0, 4):
        message = shared.get(f"/v1/topics/past/messages/{each}")
        assert message["deliver_at_ms"] == committed_at_ms


def test_parts_of_many_topics_over_the_limit_fail_with_advice(
    tmp_path: Path, played: Spark
) -> None:
    batch = batch_of(ids_of(0, 3), topic=pa.array(["a", "b", "c"]))
    parts_max = "delaylog.broker.engine.transactions.commands.STAGED_PARTS_MAX"
    with RealBroker(tmp_path, constants={parts_max: 2}) as real:
        said = r'parts are staged already.*all open loads.*df\.repartition\("topic"\)'
        with pytest.raises(RefusedError, match=said):
            load(real, played, batch, topic="", retryForMs="0")
