"""Messages of a topic as a stream: each micro-batch is one claim.

The one rule: a claim is acknowledged in `commit`, and nowhere else, so what a batch had not
finished comes again: at least once. Spark commits a batch when it plans the next one; until then
the claim is renewed on every trigger, and its lease has to outlast a restart.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.claims import ENDED, Claim, Claims
from pyspark_delaylog.deliveries import broker_now_ms
from pyspark_delaylog.errors import DataLossError, OptionError, RefusedError
from pyspark_delaylog.options import CLAIM_ROWS_MAX, Options
from pyspark_delaylog.schema import source_schema

IDLE_S: Final = 0.1
"""Spark asks an idle source every 10 ms; the broker is asked so often."""
ENDED_CLAIMS_MAX: Final = 1_000
"""Numbers passed over at once, of claims that ended before their batch was planned."""

log = logging.getLogger("pyspark_delaylog")

Offset = dict[str, Any]
"""{"epoch": of the stream, "claim": number of the last one planned, "rows": how many it holds}"""


class RowRange(InputPartition):
    """Rows [first, end) of a claim."""

    def __init__(self, claim: Claim, first: int, end: int) -> None:
        super().__init__((claim.name, first, end))
        self.claim = claim
        self.first = first
        self.end = end


class DelaylogClaimReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("delaylog")`."""

    def __init__(
        self,
        options: Options,
        schema: StructType,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if options.topic is None:
            raise OptionError("option topic: missing; a stream reads the messages of one topic")
        self._options = options
        self._schema = source_schema(schema)
        self._http = BrokerHttp(options)
        self._claims = Claims(options, self._http)
        self._monotonic = monotonic
        self._renewed_s: dict[Claim, float] = {}
        self._idle_until_s = float("-inf")
        self._passed = 0
        """The last number that is used up although no batch had it: it was empty, or has ended."""
        self._left: int | None = None
        """With availableNow: how many rows are still to be read."""

    # On the driver

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """A new stream; its epoch is kept in the checkpoint."""
        broker_now_ms(self._http)
        return {"epoch": uuid.uuid4().hex, "claim": 0, "rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """As the option says."""
        most = self._options.messages_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Messages come and go while they are read; as many as are ready now are read."""
        self._left = self._claims.ready()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Claims what is ready. Asked again with the same start, it finds the same claim."""
        last = _claim(start)
        if last.number:
            self._renew(last)
        rows_max = (
            min(limit.max_rows, CLAIM_ROWS_MAX)
            if isinstance(limit, ReadMaxRows)
            else (CLAIM_ROWS_MAX)
        )
        if self._left is not None:
            rows_max = min(rows_max, self._left)
        if rows_max <= 0 or self._monotonic() < self._idle_until_s:
            return start
        first = max(last.number, self._passed) + 1
        for number in range(first, first + ENDED_CLAIMS_MAX):
            claim = Claim(last.epoch, number)
            try:
                rows = self._claims.make(claim, rows_max)
            except RefusedError as error:
                if error.status not in ENDED:
                    raise
                # Its lease ended before a batch was planned: its messages are ready again.
                self._passed = number
                continue
            if rows == 0:
                # Were it kept, it would be empty for ever.
                self._claims.release(claim)
                self._passed = number
                self._idle_until_s = self._monotonic() + IDLE_S
                return start
            self._renewed_s[claim] = self._monotonic()
            if self._left is not None:
                self._left -= rows
            return {"epoch": last.epoch, "claim": number, "rows": rows}
        return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The claim of `end` in ranges. The one of `start` was the batch before."""
        rows = int(end["rows"])
        if start == end or rows == 0:
            return []
        count = min(rows, self._options.partitions_min)
        cuts = [rows * at // count for at in range(count + 1)]
        claim = _claim(end)
        return [RowRange(claim, first, last) for first, last in pairwise(cuts)]

    def commit(self, end: Offset) -> None:
        """The batch that read this claim is done."""
        claim = _claim(end)
        if claim.number == 0:
            return
        if not self._claims.ack(claim):
            log.warning(
                "claim %s had ended before its batch was done, so its %s messages come again; "
                "raise the option leaseMs",
                claim.name,
                end["rows"],
            )
        self._renewed_s.pop(claim, None)

    def stop(self) -> None:
        """Nothing is acknowledged here: whether the last batch is done, only its commit says."""
        self._http.close()

    # In a task

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a range, page by page, as often as it is asked."""
        assert isinstance(partition, RowRange)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        try:
            for first in range(partition.first, partition.end, self._options.batch_rows):
                end = min(first + self._options.batch_rows, partition.end)
                try:
                    self._renew(partition.claim)
                    batches = self._claims.rows(partition.claim, first, end)
                except RefusedError as error:
                    if error.status not in ENDED:
                        raise
                    self._lost(partition.claim, first, partition.end)
                    return
                for batch in batches:
                    columns = [batch.column(field.name).cast(field.type) for field in wanted]
                    yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        finally:
            self._http.close()

    def _renew(self, claim: Claim) -> None:
        """Well before the lease ends, and not at every trigger."""
        now_s = self._monotonic()
        renewed_s = self._renewed_s.get(claim, float("-inf"))
        if now_s - renewed_s < self._options.lease_ms / 4_000:
            return
        self._renewed_s[claim] = now_s
        if not self._claims.extend(claim):
            log.warning("claim %s cannot be renewed, it has ended", claim.name)

    def _lost(self, claim: Claim, first: int, end: int) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"claim {claim.name} of topic {self._options.topic!r} has ended, its rows {first} "
                f"to {end - 1} cannot be read in this batch; the broker delivers these messages "
                "again. Raise the option leaseMs, and set failOnDataLoss=false once to go on"
            )
        log.warning("claim %s has ended: rows %d to %d are skipped", claim.name, first, end - 1)


def _claim(offset: Offset) -> Claim:
    return Claim(str(offset["epoch"]), int(offset["claim"]))
