"""Claims: the messages of a topic as a stream, in which each micro-batch is one claim.

The broker's claims are created by number, read in ranges, renewed and settled. Every call is
idempotent, even across processes: a claim with a given name contains the same messages until it is
settled or its lease ends.

A claim is acknowledged only in `commit`, so messages of an unfinished batch are delivered again: at
least once. Spark commits a batch when it plans the next one. Until then every trigger may renew the
claim. When there is nothing left to claim, one empty batch is planned to cause this commit.
Otherwise the last claim would stay open while no messages arrive, and would block other messages
with the same keys. After a pause that was longer than the lease, Spark repeats a batch whose claim
has ended: it then has no rows, since the broker delivers them in the claims of later batches.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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

from pyspark_delaylog.broker_http import ARROW_TYPE, BrokerHttp, check_may_consume
from pyspark_delaylog.deliveries import broker_now_ms
from pyspark_delaylog.errors import DelaylogError, ExpiredClaimError, OptionError, RefusedError
from pyspark_delaylog.load_result import make_audible
from pyspark_delaylog.options import CLAIM_ROWS_MAX, Options
from pyspark_delaylog.schema import source_schema

# --------------------------------------------------------------------------- calls about claims

GONE: Final = 410
"""The claim has ended, with its final state in the answer."""
OPEN: Final = "open"
"""With GONE: the claim lives, but some of its messages were settled one by one, and are removed."""
UNKNOWN: Final = "unknown"
"""How a claim ended of which the broker knows nothing (404)."""
ENDINGS: Final = {
    "expired": "its lease (option leaseMs) ran out, and its messages are delivered again",
    "released": "it was released, and its messages are delivered again",
    "purged": "its messages were purged, and are not delivered any more",
    "acked": "a later run than that of this checkpoint has acknowledged its messages, which are "
    "not delivered again",
    UNKNOWN: "the broker does not know it: its topic or group was dropped, or the broker was "
    "restored from a backup. Those of its messages that the broker has are delivered again",
}
"""What became of a claim, by how it ended, and of its messages."""

LOST: Final = frozenset({"purged", UNKNOWN})
"""Ends after which messages may be gone."""


class ClaimEndedError(DelaylogError):
    """The claim has ended; `how` is a key of ENDINGS."""

    def __init__(self, how: str) -> None:
        self.how = how if how in ENDINGS else UNKNOWN
        super().__init__(ENDINGS[self.how])


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of a stream. `epoch` identifies the stream and is stored in its checkpoint."""

    epoch: str
    number: int

    @property
    def name(self) -> str:
        """The name of the claim at the broker."""
        return f"spark.{self.epoch}.{self.number}"


class Claims:
    """Calls about the claims of one topic and group."""

    def __init__(self, options: Options, http: BrokerHttp) -> None:
        assert options.topic is not None, "the source checks it"
        self._http = http
        self._topic = options.topic
        self._group = {} if options.group is None else {"group": options.group}
        self._lease = {"lease_ms": options.lease_ms}

    def make(self, claim: Claim, rows_max: int) -> int:
        """Create a claim and return its size.

        ClaimEndedError if it has ended, RefusedError with 404 if the group does not exist.
        """
        shape = {"max": rows_max, **self._lease, **self._group}
        try:
            return int(self._http.json("POST", self._path(claim), shape)["n"])
        except RefusedError as error:
            if error.status == GONE:
                raise ClaimEndedError(str(error.state)) from None
            raise

    def rows(self, claim: Claim, first: int, end: int) -> list[Any]:
        """Return the rows [first, end) as record batches, without those that are removed.

        Raises ClaimEndedError.
        """
        query: dict[str, str | int] = {"from": first, "to": end, **self._group}
        path = self._path(claim, "rows")
        try:
            wire = self._http.exchange("GET", path, None, {"Accept": ARROW_TYPE}, query)
        except RefusedError as error:
            if error.status != GONE or error.state != OPEN:
                raise _ended_by(error) from None
            if end - first == 1:
                return []
            middle = (first + end) // 2
            return self.rows(claim, first, middle) + self.rows(claim, middle, end)
        with pa.ipc.open_stream(wire) as stream:
            return list(stream)

    def extend(self, claim: Claim) -> None:
        """Renew the lease. Raises ClaimEndedError."""
        self._settle(claim, "extend", {**self._lease, **self._group})

    def ack(self, claim: Claim) -> None:
        """Acknowledge all messages. Raises ClaimEndedError."""
        self._settle(claim, "ack", dict(self._group))

    def release(self, claim: Claim) -> None:
        """Release the messages. Raises ClaimEndedError."""
        self._settle(claim, "release", dict(self._group))

    def ready(self) -> int:
        """The number of messages that are ready to be claimed: none if there is no topic yet.

        RefusedError with 404 if the group does not exist.
        """
        query: dict[str, str | int] = {"delay_buckets": "false", **self._group}
        stats = self._http.json("GET", self._http.of_topic(self._topic, "stats"), query=query)
        return int(stats["counts"]["ready"])

    def _settle(self, claim: Claim, verb: str, shape: dict[str, Any]) -> None:
        try:
            self._http.json("POST", self._path(claim, verb), shape)
        except RefusedError as error:
            raise _ended_by(error) from None

    def _path(self, claim: Claim, *rest: str) -> str:
        return self._http.of_topic(self._topic, "claims", claim.name, *rest)


def _ended_by(error: RefusedError) -> ClaimEndedError | RefusedError:
    """The end of a claim that a refusal reports; other refusals are returned as they are."""
    if error.status == GONE:
        return ClaimEndedError(str(error.state))
    # The conflict is that of an ack after a release, or the reverse.
    if error.status == 409 and error.state in ENDINGS:
        return ClaimEndedError(str(error.state))
    return ClaimEndedError(UNKNOWN) if error.status == 404 else error


# ----------------------------------------------------------------------------------- the stream

IDLE_S: Final = 0.1
"""Shortest interval of calls for an idle stream; Spark asks the source every 10 ms."""
ENDED_CLAIMS_MAX: Final = 20_000
"""The most consecutive numbers to skip, of claims that ended before their batch was planned. They
are many if an old checkpoint was restored; the broker remembers 10,000."""

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
        self._ended: set[Claim] = set()
        """Claims that are known to have ended without an ack of this stream."""
        self._idle_until_s = float("-inf")
        self._passed = 0
        """The last number that was used by a claim without a batch: it was empty, or has ended."""
        self._was_empty = False
        """Whether the topic was empty. At first False: an earlier run may have made a claim."""
        self._left: int | None = None
        """With availableNow: the number of rows still to read."""

    # On the driver

    def check_broker(self) -> None:
        """Check address, token and rights when a query is planned."""
        check_may_consume(self._http, self._options)

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
            self._is_open(last, int(start["rows"]))
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
            except ClaimEndedError:
                # Its lease ended before its batch was planned, so its messages are ready again.
                self._passed = number
                continue
            self._was_empty = rows == 0
            if rows == 0:
                # An empty claim would stay empty, so release it.
                with suppress(ClaimEndedError):
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
        claim = _claim(end)
        if not self._is_open(claim, rows, before_tasks=True):
            return []
        count = min(rows, self._options.partitions_min)
        cuts = [rows * at // count for at in range(count + 1)]
        return [RowRange(claim, first, last) for first, last in pairwise(cuts)]

    def commit(self, end: Offset) -> None:
        """Acknowledge the claim of a finished batch."""
        claim = _claim(end)
        if not end["rows"]:
            return
        try:
            if claim not in self._ended:
                self._claims.ack(claim)
        except ClaimEndedError as error:
            self._note_end(claim, int(end["rows"]), error)
        self._renewed_s.pop(claim, None)
        self._ended.discard(claim)

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
                except ClaimEndedError as error:
                    said = f"rows {first} to {partition.end - 1} of {self._said(partition.claim)}"
                    if self._fails(error):
                        raise ExpiredClaimError(f"{said} cannot be read: {error}{_GO_ON}") from None
                    log.warning("%s are not in this batch: %s", said, error)
                    return
                for batch in batches:
                    columns = [batch.column(field.name).cast(field.type) for field in wanted]
                    yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        finally:
            self._http.close()

    def _renew(self, claim: Claim) -> None:
        """Renew the claim once a quarter of its lease has passed. Raises ClaimEndedError."""
        now_s = self._monotonic()
        renewed_s = self._renewed_s.get(claim, float("-inf"))
        if now_s - renewed_s < self._options.lease_ms / 4_000:
            return
        self._renewed_s[claim] = now_s
        self._claims.extend(claim)

    def _is_open(self, claim: Claim, rows: int, *, before_tasks: bool = False) -> bool:
        """Whether the claim lives, which is then renewed. Otherwise a person is told, once.

        Raises ExpiredClaimError instead, if the options say so and tasks would read the claim.
        """
        of_earlier_run = claim not in self._renewed_s
        try:
            if claim not in self._ended:
                self._renew(claim)
        except ClaimEndedError as error:
            if before_tasks and self._fails(error):
                said = f"the {rows:,} rows of {self._said(claim)} cannot be read"
                raise ExpiredClaimError(f"{said}: {error}{_GO_ON}") from None
            self._note_end(claim, rows, error)
            if self._left is not None and of_earlier_run:
                # Its messages may have become ready only after the query began.
                self._left = max(self._left, self._claims.ready())
        return claim not in self._ended

    def _fails(self, error: ClaimEndedError) -> bool:
        lost = self._options.fail_on_data_loss and error.how in LOST
        return lost or not self._options.redelivers

    def _note_end(self, claim: Claim, rows: int, error: ClaimEndedError) -> None:
        self._ended.add(claim)
        make_audible()
        log.warning("%s with %s messages has ended: %s", self._said(claim), f"{rows:,}", error)

    def _said(self, claim: Claim) -> str:
        return f"claim {claim.name} of topic {self._options.topic!r}"


_GO_ON: Final = (
    ". With onExpiredClaim=redeliver and failOnDataLoss=false, which are the defaults, the query "
    "goes on without them"
)


def _claim(offset: Offset) -> Claim:
    return Claim(str(offset["epoch"]), int(offset["claim"]))
