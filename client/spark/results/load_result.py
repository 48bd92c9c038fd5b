"""LoadResult: what one load, or one micro-batch of a stream, has added.

The rows and the bytes are known at the commit. Which rows are new messages is known once they are
published, so the other counts are those of published rows: `complete` says whether that is all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

LACKING = {
    "kept": "kept, since a message with the same id lives",
    "rejected": "rejected, since a message with the same id lives",
    "ended": "ended by a purge or a deleted topic",
}
"""Results of rows that add no message, in words."""
GENERATED = "spark-"
"""How the name of a load without a txnAppId begins."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The counts of a load."""

    name: str
    """The transaction; with delivery=direct, the name of the load."""
    state: str
    """`committed`; `already`: committed by an earlier run; `sent`: by delivery=direct."""
    rows: int
    """Rows of the DataFrame, rows put aside included."""
    put_aside: int = 0
    """Rows that went to the dead-letter topic."""
    past: int = 0
    """Rows that were due over a minute before the load began: consumers receive them at once."""
    bytes: int = 0
    """Bytes of request bodies."""
    repeated_calls: int = 0
    published: int = 0
    """Rows that consumers can see, or that were kept or rejected."""
    results: Mapping[str, int] = field(default_factory=dict)
    """Published rows by result: created, kept, replaced, rejected, ended."""
    committed_at_ms: int | None = None
    """When the broker committed the transaction, in Unix ms."""
    published_at_ms: int | None = None
    """When the driver saw that all rows are published, in Unix ms by its own clock."""
    batch: int | None = None
    """The number of the micro-batch of a stream."""
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options with which `refresh` reaches the broker, except the token."""

    @property
    def complete(self) -> bool:
        """Whether all rows are published, so that the counts stay as they are."""
        return self.published >= self.rows

    def refresh(self, *, wait: bool = False, **options: str) -> LoadResult:
        """The result of the same load by now; with `wait`, once all rows are published.

        `options` are those of the sink, beside those of the load: `token`, if the load has one.
        Raises BrokerError, and TransactionError if the publication stalls.
        """
        from pyspark_delaylog.results.refreshing import refreshed

        return self if self.complete else refreshed(self, wait=wait, options=options)

    def counted(self, found: Mapping[str, Any], now_ms: int) -> LoadResult:
        """The result with the counts of its transaction, as the broker has described it."""
        counted = replace(
            self,
            rows=found["rows"],
            published=found["published"],
            results=found.get("results", {}),
            committed_at_ms=found.get("decided_at_ms"),
        )
        if counted.complete and self.state != "already":
            return replace(counted, published_at_ms=now_ms)
        return counted

    @property
    def added(self) -> int:
        """The published rows that are messages of this load now."""
        if self.state == "already":
            return 0
        return self.results.get("created", 0) + self.results.get("replaced", 0)

    @property
    def is_mostly_past(self) -> bool:
        """Whether over half of the rows are past, which is often a mistake of units or zones."""
        return 2 * self.past > self.rows

    @property
    def shortfall(self) -> str:
        """Why fewer messages were added than the DataFrame has rows; empty if none is missing."""
        if self.state == "already":
            # A repeated micro-batch is Spark's own recovery.
            return "" if self.batch is not None else "an earlier run of this name has added them"
        lacking = [
            f"{count:,} {words}"
            for name, words in LACKING.items()
            if (count := self.results.get(name, 0))
        ]
        return ", ".join(lacking)

    def __str__(self) -> str:
        """One line for a person."""
        name = self.name if self.batch is None else f"{self.name} (batch {self.batch})"
        said = [f"{self.added:,} of {self.rows:,} rows added"]
        if not self.complete and self.state == "committed":
            said = [
                f"{self.rows:,} rows committed, {self.published:,} of them published so far",
                "last_result().refresh(wait=True) gives the counts of all",
            ]
        if self.shortfall:
            said.append(self.shortfall)
        elif self.state == "already":
            said.append("this batch was committed before, so none of its rows was sent")
        if self.past:
            said.append(f"{self.past:,} due at once, since their time is past")
        if self.put_aside:
            said.append(f"{self.put_aside:,} put aside")
        if self.repeated_calls:
            said.append(f"{self.repeated_calls:,} calls repeated")
        return f"{name}: {'; '.join(said)}"
