"""Spark's tasks, played: what Spark would say of them is set by the test."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from pyspark_delaylog import tasks
from pyspark_delaylog.transactions import Staged

SCHEMA = StructType(
    [
        StructField("id", StringType()),
        StructField("value", StringType()),
        StructField("deliver_at", TimestampType()),
    ]
)


class Spark:
    """Stands in for TaskContext."""

    part, attempt = 0, 0
    properties: dict[str, str | None]

    def __init__(self) -> None:
        self.properties = {tasks.QUERY_ID: "q", tasks.BATCH_ID: "0"}

    def get(self) -> Spark:
        return self

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.part

    def taskAttemptId(self) -> int:  # noqa: N802 - Spark's name
        return self.attempt

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self.properties[name]


def run_task(
    writer: Any, spark: Spark, part: int, attempt: int, batches: Iterator[Any] | list[Any]
) -> Staged:
    """As in a Python worker: of a copy."""
    spark.part, spark.attempt = part, attempt
    message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
    assert isinstance(message, Staged)
    return pickle.loads(pickle.dumps(message))  # type: ignore[no-any-return]
