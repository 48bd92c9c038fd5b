"""Follows the publication of a committed transaction.

A commit decides at once; the broker then creates the rows in slices. Only then is it known which
rows were added and which ids lived already. `refreshed` asks for the counts of a load that was not
published completely.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import TransactionError
from pyspark_delaylog.load_result import LoadResult
from pyspark_delaylog.options import Options
from pyspark_delaylog.transactions import Transactions

SMALL_ROWS_MAX: Final = 50_000
"""The largest load whose counts are awaited for a moment, although nobody asked to wait."""
LOOK_S: Final = 1.0
"""How long they are awaited. The broker publishes SMALL_ROWS_MAX rows in half of this time."""
STALL_S: Final = 300.0
"""Time without another published row after which the wait ends with an error."""
PAUSE_S_MAX: Final = 0.2


def published(ask: Callable[[], dict[str, Any]], *, wait: bool) -> dict[str, Any]:
    """The transaction once all rows are published.

    Without `wait`, it is returned as it is: of a small load after LOOK_S, of a larger one at once.

    Raises TransactionError when the publication stalls.
    """
    began_s = moved_s = time.monotonic()
    pause_s, rows = 0.005, -1
    while True:
        found = ask()
        now_s = time.monotonic()
        look_s = LOOK_S if found["rows"] <= SMALL_ROWS_MAX else 0.0
        if found["published"] >= found["rows"] or (not wait and now_s - began_s >= look_s):
            return found
        if found["published"] > rows:
            rows, moved_s = int(found["published"]), now_s
        elif now_s - moved_s > STALL_S:
            raise TransactionError(
                f"transaction {found['transaction']} is committed, but the broker has published "
                f"only {rows:,} of {found['rows']:,} rows and none for {STALL_S:.0f} s; "
                "publication goes on once the broker has room (see its log)"
            )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


def refreshed(result: LoadResult, *, wait: bool, options: Mapping[str, str]) -> LoadResult:
    """The result with the broker's counts; with `wait`, once all rows are published.

    Raises OptionError, BrokerError, and TransactionError if the publication stalls.
    """
    parsed = Options.parse({**result.connection, **options})
    with closing(BrokerHttp(parsed)) as http:
        ask = partial(Transactions(parsed, http).shape, result.name)
        found = published(ask, wait=True) if wait else ask()
    return result.counted(found, time.time_ns() // 1_000_000)
