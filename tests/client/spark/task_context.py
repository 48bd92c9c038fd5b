"""A fake TaskContext of Spark, whose answers the test sets, and the run of a writer's task."""

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
    """A fake of `pyspark.TaskContext`."""

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
    """Run a task on pickled copies, as Spark's Python workers do; returns its commit message."""
    spark.part, spark.attempt = part, attempt
    message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
    assert isinstance(message, Staged)
    return pickle.loads(pickle.dumps(message))  # type: ignore[no-any-return]
