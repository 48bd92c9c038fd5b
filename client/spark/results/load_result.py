"""LoadResult: what one load, or one micro-batch of a stream, has added.

Counts are those of published rows, so they are complete once `published` equals `rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LACKING = {
    "kept": "kept, since a message with the same id lives",
    "rejected": "rejected, since a message with the same id lives",
    "ended": "ended by a purge or a deleted topic",
}
"""Results of rows that add no message, in words."""


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

    @property
    def added(self) -> int:
        """The published rows that are messages of this load now."""
        if self.state == "already":
            return 0
        return self.results.get("created", 0) + self.results.get("replaced", 0)

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
        if self.published < self.rows and self.state == "committed":
            said = [f"{self.rows:,} rows committed, {self.published:,} of them published so far"]
        if self.shortfall:
            said.append(self.shortfall)
        if self.put_aside:
            said.append(f"{self.put_aside:,} put aside")
        if self.repeated_calls:
            said.append(f"{self.repeated_calls:,} calls repeated")
        return f"{name}: {'; '.join(said)}"
