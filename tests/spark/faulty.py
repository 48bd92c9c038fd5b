"""The sinks with a fault that happens on purpose, as formats of their own.

What is to fail is said by options of the test's, which the sinks never see. A fault that happens
once leaves a file behind, since tasks and the driver run in other processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_delaylog.source import DelaylogSource
from pyspark_delaylog.writers import DelaylogBatchWriter, DelaylogStreamWriter

FAIL_ATTEMPTS = "faulty.attempts"
"""So many attempts at each task fail after two batches."""
CRASH_FILE = "faulty.crash"
"""The commit fails once, behind the broker's commit; the file says that it did."""
DAWDLE_S = "faulty.dawdle"
"""The first attempt at the last task rests this long after two batches."""
LAST = 3
"""Of four tasks: speculation needs others to be done before."""


class Faults:
    """What shall happen to this load."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.fail_attempts = int(options.get(FAIL_ATTEMPTS, "0"))
        self.dawdle_s = float(options.get(DAWDLE_S, "0"))
        self.crash_file = options.get(CRASH_FILE)

    def batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(iterator):
            if number == 2 and context.attemptNumber() < self.fail_attempts:
                raise RuntimeError("this task fails on purpose")
            if number == 2 and context.attemptNumber() == 0 and context.partitionId() == LAST:
                time.sleep(self.dawdle_s)
            yield batch

    def crash(self) -> None:
        if self.crash_file is not None and not Path(self.crash_file).exists():
            Path(self.crash_file).touch()
            raise RuntimeError("the driver crashes on purpose")


class FaultyBatchWriter(DelaylogBatchWriter):
    faults: Faults

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(self.faults.batches(iterator))


class FaultyStreamWriter(DelaylogStreamWriter):
    faults: Faults

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(self.faults.batches(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        super().commit(messages, batchId)
        if batchId == 1:
            self.faults.crash()


class FaultySource(DelaylogSource):
    """`format("delaylog-faulty")`."""

    @classmethod
    def name(cls) -> str:
        return "delaylog-faulty"

    def writer(self, schema: StructType, overwrite: bool) -> FaultyBatchWriter:
        writer = FaultyBatchWriter(self._parsed(), schema)
        writer.faults = Faults(self.options)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        writer = FaultyStreamWriter(self._parsed(), schema)
        writer.faults = Faults(self.options)
        return writer
