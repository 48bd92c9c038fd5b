"""The batch sink with its commit left out, so that the bench asks for the commit itself.

Tasks send what they always send; the driver then only writes down which attempts have won. So a
probe of deliveries can run beside the commit and its publication, with Spark at rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from pyspark_delaylog.options import Options
from pyspark_delaylog.source import DelaylogSource
from pyspark_delaylog.transactions import Staged
from pyspark_delaylog.writers import DelaylogBatchWriter

WINNERS_FILE = "bench.winnersFile"
"""Spark's sinks let options with a dot pass."""


class HeldSource(DelaylogSource):
    """`format("delaylog-held")`."""

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return "delaylog-held"

    def writer(self, schema: StructType, overwrite: bool) -> HeldWriter:  # noqa: ARG002
        """The sink."""
        return HeldWriter(self._parsed(), schema, str(self.options[WINNERS_FILE]))


class HeldWriter(DelaylogBatchWriter):
    """Stages everything, and commits nothing."""

    def __init__(self, options: Options, schema: StructType, file: str) -> None:
        super().__init__(options, schema)
        self._file = file

    def commit(self, messages: list[Any]) -> None:
        """Write down the winners, as a commit names them."""
        winners = [
            {"producer": m.producer, "part": m.part, "attempt": m.attempt, "rows": m.rows}
            for m in messages
            if isinstance(m, Staged) and m.rows
        ]
        Path(self._file).write_text(json.dumps(winners))
