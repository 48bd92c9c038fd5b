"""Tells the person at the driver what a load did.

Spark commits in a Python process of its own, whose log and memory the program does not share. The
result therefore goes to that process's standard error, which Spark shows with the driver's, and to
a file in the driver's folder of Spark files, which both processes know and Spark removes at its
end.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pyspark import SparkFiles

from pyspark_delaylog.errors import DelaylogError, PartialLoadError
from pyspark_delaylog.results.load_result import LoadResult

FILE: Final = "delaylog-last-result.json"

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
        _make_audible()
    # A batch that was committed before is Spark's recovery, or other rows after the loss of a
    # checkpoint: a person has to know.
    repeated = result.state == "already"
    loud = result.shortfall or result.put_aside or repeated or result.is_mostly_past
    log.log(logging.WARNING if loud else logging.INFO, "%s", result)


def last_result() -> LoadResult | None:
    """The result of the load or micro-batch that this Spark application committed last.

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
    kept = [path for path in (folder / FILE, *folder.glob(f"*/{FILE}")) if path.exists()]
    if not kept:
        return None
    newest = max(kept, key=lambda path: path.stat().st_mtime_ns)
    return LoadResult(**json.loads(newest.read_text()))


def _keep(result: LoadResult) -> None:
    folder = _folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f".{FILE}.{os.getpid()}"
        made.write_text(json.dumps(asdict(result)))
        made.replace(folder / FILE)
    except OSError as error:
        log.warning("last_result() will not show this load: %s", error)


def _folder() -> Path | None:
    """The folder of Spark files of the driver; None without a driver."""
    try:
        return Path(SparkFiles.getRootDirectory())
    except AssertionError:
        return None


def _make_audible() -> None:
    """Show lines of level INFO, unless this process configures logging itself."""
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s delaylog: %(message)s"))
        log.addHandler(handler)
