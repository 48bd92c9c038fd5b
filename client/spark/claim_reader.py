"""The messages of a topic as a stream: each micro-batch is one claim.

A claim is acknowledged only in `commit`, so messages of an unfinished batch are delivered again: at
least once. Spark commits a batch when it plans the next one. Until then every trigger may renew the
claim, and its lease must outlast a restart. When there is nothing left to claim, one empty batch is
planned to cause this commit. Otherwise the last claim would stay open while no messages arrive, and
would block other messages with the same keys.
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
from pyspark_delaylog.claims import ENDED, GONE, Claim, Claims
from pyspark_delaylog.deliveries import broker_now_ms
from pyspark_delaylog.errors import DataLossError, OptionError, RefusedError
from pyspark_delaylog.options import CLAIM_ROWS_MAX, Options
from pyspark_delaylog.schema import source_schema

IDLE_S: Final = 0.1
"""Shortest interval of calls for an idle stream; Spark asks the source every 10 ms."""
ENDED_CLAIMS_MAX: Final = 1_000
"""The most consecutive numbers to skip, of claims that ended before their batch was planned."""

log = logging.getLogger("pyspark_delaylog")

Offset = dict[str, Any]
"""{"epoch": of the stream, "claim": number of the last planned claim, "rows": its size}

With 0 rows it is the offset after an empty batch, whose claim is finished."""


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
        """The last number that was used by a claim without a batch: it was empty, or has ended."""
        self._was_empty = False
        """Whether the topic was empty. At first False: an earlier run may have made a claim."""
        self._left: int | None = None
        """With availableNow: the number of rows still to read."""

    # On the driver

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The offset of a new stream. Its epoch is stored in the checkpoint."""
        broker_now_ms(self._http)
        return {"epoch": uuid.uuid4().hex, "claim": 0, "rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit given by the options."""
        most = self._options.messages_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the number of messages that are ready now."""
        self._left = self._claims.ready()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Claim ready messages. Called again with the same start, it returns the same claim."""
        last = _claim(start)
        if start["rows"]:
            self._renew(last)
        rows_max = CLAIM_ROWS_MAX
        if isinstance(limit, ReadMaxRows):
            rows_max = min(rows_max, limit.max_rows)
        if self._left is not None:
            rows_max = min(rows_max, self._left)
        if self._monotonic() < self._idle_until_s:
            return start
        if rows_max > 0 and (not self._was_empty or self._claims.ready()):
            found = self._claimed(last, rows_max)
            if found is not None:
                return found
        if start["rows"]:
            return {**start, "rows": 0}
        self._idle_until_s = self._monotonic() + IDLE_S
        return start

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How many messages wait to be claimed, for the progress of the query."""
        return {"ready": self._claims.ready()}

    def _claimed(self, last: Claim, rows_max: int) -> Offset | None:
        """The offset after the next claim that is not empty."""
        first = max(last.number, self._passed) + 1
        for number in range(first, first + ENDED_CLAIMS_MAX):
            claim = Claim(last.epoch, number)
            try:
                rows = self._claims.make(claim, rows_max)
            except RefusedError as error:
                if error.status != GONE:
                    raise
                # Its lease ended before its batch was planned, so its messages are ready again.
                self._passed = number
                continue
            self._was_empty = rows == 0
            if rows == 0:
                # An empty claim would stay empty, so release it.
                self._claims.release(claim)
                self._passed = number
                return None
            self._renewed_s[claim] = self._monotonic()
            if self._left is not None:
                self._left -= rows
            return {"epoch": last.epoch, "claim": number, "rows": rows}
        return None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Split the claim of `end` into ranges. `start` is the previous batch."""
        rows = int(end["rows"])
        if start == end or rows == 0:
            return []
        count = min(rows, self._options.partitions_min)
        cuts = [rows * at // count for at in range(count + 1)]
        claim = _claim(end)
        return [RowRange(claim, first, last) for first, last in pairwise(cuts)]

    def commit(self, end: Offset) -> None:
        """Acknowledge the claim of a finished batch."""
        claim = _claim(end)
        if not end["rows"]:
            return
        if not self._claims.ack(claim):
            log.warning(
                "claim %s had ended before its batch was done, so its %s messages are delivered "
                "again; raise the option leaseMs",
                claim.name,
                end["rows"],
            )
        self._renewed_s.pop(claim, None)

    def stop(self) -> None:
        """Acknowledge nothing: only `commit` shows that a batch is done."""
        self._http.close()

    # In a task

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a range page by page. It can be repeated."""
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
        """Renew the claim once a quarter of its lease has passed."""
        now_s = self._monotonic()
        renewed_s = self._renewed_s.get(claim, float("-inf"))
        if now_s - renewed_s < self._options.lease_ms / 4_000:
            return
        self._renewed_s[claim] = now_s
        # If the claim has ended, reading or acknowledging it will show that.
        self._claims.extend(claim)

    def _lost(self, claim: Claim, first: int, end: int) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"claim {claim.name} of topic {self._options.topic!r} has ended, its rows {first} "
                f"to {end - 1} cannot be read in this batch; the broker delivers these messages "
                "again. Raise the option leaseMs, and set failOnDataLoss=false once to continue"
            )
        log.warning("claim %s has ended: rows %d to %d are skipped", claim.name, first, end - 1)


def _claim(offset: Offset) -> Claim:
    return Claim(str(offset["epoch"]), int(offset["claim"]))
