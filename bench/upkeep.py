"""How long upkeep holds the loop: an hour with many ids is dropped, a large backlog checkpointed.

The longest lag of the loop is read from its histogram, so it is the upper bound of a bucket.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from broker_process import Brokers, ServerProcess
from clients import ask
from control import timed_calls
from load import LoadError
from loop_lag import Lags, lags
from sending import HOUR_MS, fill, spread_dues
from settings import BODY_BYTES, Settings
from tables import Column, Table, at_most, mebibytes, milliseconds, seconds, whole
from wire import even_template
from workers import run_apart
from years import clock_behind, set_clock

LAG_MS_MAX: Final = 20.0
HOURS: Final = 720
BATCH: Final = 100
# Due times that the sends go through again and again.
_POOL: Final = 1_000_000
# The clock steps so far ahead: the hour is over then.
_STEP_MS: Final = 5 * HOUR_MS
_DROPPED_WITHIN_S: Final = 600.0


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Both cases, each on a broker of its own."""
    table = Table(
        "upkeep: the longest lag of the loop meanwhile",
        [
            Column("messages", "messages", whole),
            Column("took s", "took_s", seconds),
            Column("lag <= ms", "lag_ms", milliseconds),
            Column("RSS MiB", "rss", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
    )
    _retention(table, brokers, settings.upkeep_ids)
    _checkpoints(table, brokers, settings)
    return table


def _retention(table: Table, brokers: Brokers, messages: int) -> None:
    """All messages of an hour end; then it is over and is dropped, with the ids."""
    with clock_behind(brokers, 0) as (broker, folder):
        port, process_id = broker.port, broker.process_id
        run_apart(timed_calls, port, process_id, messages=messages, by="ids", hours=1)
        broker.settle(limit_s=120.0)
        hours = folder / "data" / "hours"
        (hour,) = _folders(hours)
        before, begun = lags(port), time.monotonic()
        set_clock(broker, folder, ahead_ms=_STEP_MS)
        while hour in _folders(hours):
            if time.monotonic() - begun > _DROPPED_WITHIN_S:
                raise LoadError(f"the hour was not dropped within {_DROPPED_WITHIN_S:.0f} s")
            # Checkpoints drop hours, and are taken only while the log grows.
            ask(port, "POST", "/v1/topics/more/messages", {"body": "x", "delay_ms": 0})
            time.sleep(0.2)
        broker.settle(limit_s=120.0)
        figures = {"messages": messages, "took_s": time.monotonic() - begun}
        _add(table, "an hour with ids is dropped", figures, broker, before)


def _checkpoints(table: Table, brokers: Brokers, settings: Settings) -> None:
    """Small batches over all hours beside a large backlog over the same hours."""
    dues = spread_dues(_POOL, HOURS, seed=1)
    with brokers.fresh() as broker:
        run_apart(fill, broker.port, "backlog", dues, messages=settings.upkeep_pending)
        broker.settle(limit_s=120.0)
        os.sync()
        before, begun = lags(broker.port), time.monotonic()
        template = even_template("more", BATCH, BODY_BYTES)
        more = settings.upkeep_sends
        run_apart(fill, broker.port, "more", dues, template=template, messages=more)
        figures = {"messages": settings.upkeep_pending, "took_s": time.monotonic() - begun}
        case = f"checkpoints over {HOURS} h, beside {more:,} sends in batches of {BATCH}"
        _add(table, case, figures, broker, before)


def _add(
    table: Table, case: str, figures: dict[str, float], broker: ServerProcess, before: Lags
) -> None:
    """A row, with the broker's lag since `before` and its memory."""
    seen, resident = lags(broker.port).since(before), broker.resident()
    if not seen.counts:
        raise LoadError(f"{case}: no lag was sampled")
    lag_ms = seen.longest_bound_s * 1000
    targets = [at_most(lag_ms, LAG_MS_MAX, f"{LAG_MS_MAX:.0f} ms")]
    figures = {"lag_ms": lag_ms, "rss": resident.total, "rss_peak": resident.peak, **figures}
    table.add(case, figures, targets)


def _folders(hours: Path) -> list[str]:
    return [name for name in os.listdir(hours) if name != "far"]
