"""The broker's claims: created by number, read in ranges, renewed and settled.

Every call is idempotent, even across processes: a claim with a given name contains the same
messages until it is settled or its lease ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pyspark_delaylog.broker_http import ARROW_TYPE, BrokerHttp
from pyspark_delaylog.errors import RefusedError
from pyspark_delaylog.options import Options

GONE: Final = 410
"""The claim has ended."""
ENDED: Final = frozenset({404, GONE})
"""The claim has ended, perhaps so long ago that the broker has forgotten it (404)."""


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

        RefusedError with GONE if it has ended, with 404 if the group does not exist.
        """
        shape = {"max": rows_max, **self._lease, **self._group}
        return int(self._http.json("POST", self._path(claim), shape)["n"])

    def rows(self, claim: Claim, first: int, end: int) -> list[Any]:
        """Return the rows [first, end) as record batches."""
        query: dict[str, str | int] = {"from": first, "to": end, **self._group}
        path = self._path(claim, "rows")
        wire = self._http.exchange("GET", path, None, {"Accept": ARROW_TYPE}, query)
        with pa.ipc.open_stream(wire) as stream:
            return list(stream)

    def extend(self, claim: Claim) -> bool:
        """Renew the lease. False if the claim has ended."""
        return self._settle(claim, "extend", {**self._lease, **self._group})

    def ack(self, claim: Claim) -> bool:
        """Acknowledge all messages. False if the claim has ended: they are delivered again."""
        return self._settle(claim, "ack", dict(self._group))

    def release(self, claim: Claim) -> bool:
        """Release the messages."""
        return self._settle(claim, "release", dict(self._group))

    def ready(self) -> int:
        """The number of messages that are ready to be claimed: none if there is no topic yet.

        RefusedError with 404 if the group does not exist.
        """
        query: dict[str, str | int] = {"delay_buckets": "false", **self._group}
        stats = self._http.json("GET", self._http.of_topic(self._topic, "stats"), query=query)
        return int(stats["counts"]["ready"])

    def _settle(self, claim: Claim, verb: str, shape: dict[str, Any]) -> bool:
        try:
            self._http.json("POST", self._path(claim, verb), shape)
        except RefusedError as error:
            if error.status in ENDED:
                return False
            raise
        return True

    def _path(self, claim: Claim, *rest: str) -> str:
        return self._http.of_topic(self._topic, "claims", claim.name, *rest)
