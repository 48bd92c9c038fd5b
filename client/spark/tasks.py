"""Which task of which query this is, as Spark tells it in a Python worker.

The one rule: what is missing is an error and never a default. The names of the query and its
batch are no public interface of Spark; should they go, a stream must stop, not send twice.
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
    """Unique within a Spark application; that it is unique beyond it, the producer sees to."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a streaming query, the same however often it is run again."""

    query_id: str
    number: int


def this_task() -> Task:
    """The task that runs here."""
    context = _context()
    return Task(context.partitionId(), context.taskAttemptId())


def this_batch() -> Batch:
    """The micro-batch that the task belongs to."""
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
