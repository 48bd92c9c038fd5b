"""LoadResult: what one load, or one micro-batch of a stream, has added; and how the driver is told.

The rows and the bytes are known at the commit. Which rows are new messages is known once they are
published, so the other counts are those of published rows: `complete` says whether that is all.

Spark commits in a Python process of its own, whose log and memory the program does not share. The
result therefore goes to that process's standard error, which Spark shows with the driver's, and to
files in the driver's folder of Spark files, which both processes know and Spark removes at its end:
one for the last load, and one for each name that a program has given.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark import SparkFiles

from pyspark_delaylog.errors import DelaylogError, PartialLoadError

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
        from pyspark_delaylog.publication import refreshed

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


# ------------------------------------------------------------- telling the person at the driver

FILE: Final = "delaylog-last-result.json"
OF_NAME: Final = "delaylog-result-{}.json"

_RUN: Final = re.compile(r"\.r\d+\Z")
"""What follows the name of a load whose first runs failed."""

log = logging.getLogger("pyspark_delaylog")


def report(result: LoadResult, *, fail_on_partial: bool) -> None:
    """Log and keep a result. Raises PartialLoadError if asked to and rows are missing."""
    _keep(result)
    if result.shortfall and fail_on_partial:
        raise PartialLoadError(
            f"{result} (option failOnPartial); what was added stays. Give rows new ids, choose "
            "their merge mode, or use another txnAppId for other data"
        )
    if result.batch is None:
        # Of a stream only warnings are seen, not a line a micro-batch.
        make_audible(logging.INFO)
    # A batch that was committed before is Spark's recovery, or other rows after the loss of a
    # checkpoint: a person has to know.
    repeated = result.state == "already"
    loud = result.shortfall or result.put_aside or repeated or result.is_mostly_past
    log.log(logging.WARNING if loud else logging.INFO, "%s", result)


def last_result(name: str | None = None) -> LoadResult | None:
    """The result of the load or micro-batch that this Spark application committed last.

    `name`: of the loads with this `txnAppId`, or of the stream with this `txnAppId` or query id.
    None before the first one. Call it on the driver; DelaylogError if this process has no driver,
    as with Spark Connect.
    """
    folder = _folder()
    if folder is None:
        raise DelaylogError(
            "there is no Spark driver in this process; ask the broker instead, by "
            "GET /v1/transactions/NAME with the txnAppId as the name"
        )
    # Sessions with files of their own have a folder below that of the application.
    file = FILE if name is None else OF_NAME.format(_RUN.sub("", name))
    kept = [path for path in (folder / file, *folder.glob(f"*/{file}")) if path.exists()]
    if not kept:
        return None
    newest = max(kept, key=lambda path: path.stat().st_mtime_ns)
    return LoadResult(**json.loads(newest.read_text()))


def _keep(result: LoadResult) -> None:
    folder = _folder()
    if folder is None:
        return
    # A generated name would leave a file for each load, which nobody asks for.
    named = result.batch is not None or not result.name.startswith(GENERATED)
    files = (FILE, OF_NAME.format(_load_of(result))) if named else (FILE,)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            made = folder / f".{file}.{os.getpid()}"
            made.write_text(json.dumps(asdict(result)))
            made.replace(folder / file)
    except OSError as error:
        log.warning("last_result() will not show this load: %s", error)


def _load_of(result: LoadResult) -> str:
    """The name of a load without the number of its run, and without that of its micro-batch."""
    name = _RUN.sub("", result.name)
    return name if result.batch is None else name.rpartition(".")[0] or name


def _folder() -> Path | None:
    """The folder of Spark files of the driver; None without a driver."""
    try:
        return Path(SparkFiles.getRootDirectory())
    except AssertionError:
        return None


def make_audible(level: int = logging.NOTSET) -> None:
    """Show lines of this level and above, unless this process configures logging itself.

    Without a level, those of the root logger are shown: warnings, where nothing configures it. A
    level that is set once stays, so only a caller that wants to be more talkative sets one.
    """
    if log.level == logging.NOTSET:
        log.setLevel(level)
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s delaylog: %(message)s"))
        log.addHandler(handler)
