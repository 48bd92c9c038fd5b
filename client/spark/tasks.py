"""Identifies the current task and query in a Python worker of Spark.

A missing value is an error, never a default. The properties for query and batch are not a public
interface of Spark; if they disappear, a stream must stop rather than send duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from pyspark_delaylog.errors import TransactionError

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one partition."""

    part: int
    attempt: int
    """Unique within a Spark application. The producer name makes it globally unique."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a streaming query. It keeps its identity when it is repeated."""

    query_id: str
    number: int


def this_task() -> Task:
    """The current task."""
    context = _context()
    return Task(context.partitionId(), context.taskAttemptId())


def this_batch() -> Batch:
    """The micro-batch of the current task."""
    context = _context()
    query_id, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if not query_id or number is None or not str(number).isdigit():
        raise TransactionError(
            f"Spark does not say which batch of which query this is ({QUERY_ID}={query_id!r}, "
            f"{BATCH_ID}={number!r}), so a repeated batch could not be told from a new one; this "
            "version of Spark is not supported by the streaming sink"
        )
    return Batch(str(query_id), int(number))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise TransactionError("a writer was called outside of a Spark task")
    return context
