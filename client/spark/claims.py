"""The broker's claims: created by number, read in ranges, renewed and settled.

Every call is idempotent, even across processes: a claim with a given name contains the same
messages until it is settled or its lease ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pyspark_delaylog.broker_http import ARROW_TYPE, BrokerHttp
from pyspark_delaylog.errors import DelaylogError, RefusedError
from pyspark_delaylog.options import Options

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
