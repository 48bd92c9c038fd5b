"""Asks the broker for the counts of a load that was not published completely."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.options import Options
from pyspark_delaylog.results.load_result import LoadResult
from pyspark_delaylog.results.publication import published
from pyspark_delaylog.transactions import Transactions


def refreshed(result: LoadResult, *, wait: bool, options: Mapping[str, str]) -> LoadResult:
    """The result with the broker's counts; with `wait`, once all rows are published.

    Raises OptionError, BrokerError, and TransactionError if the publication stalls.
    """
    parsed = Options.parse({**result.connection, **options})
    with closing(BrokerHttp(parsed)) as http:
        ask = partial(Transactions(parsed, http).shape, result.name)
        found = published(ask, wait=True) if wait else ask()
    return result.counted(found, time.time_ns() // 1_000_000)
