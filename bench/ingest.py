"""Bulk ingest: messages per second by batch size and by how many hours the due times cover.

Everything durable (the broker's default: one fdatasync for all frames of a turn, answered after
it). A bare aiohttp handler that only reads the same requests stands beside each batch size. The
processor time "in all" also has what the broker did after the last answer.
"""

from __future__ import annotations

from broker_process import Brokers
from clients import counts
from floors import Floors, bare_server
from load import LoadError
from sending import Timed, timed_sends
from settings import BATCH_SIZES, BODY_BYTES, INGEST_LANES, SPREADS_HOURS, Settings
from tables import (
    Column,
    Table,
    Target,
    at_least,
    at_most,
    mebibytes,
    median,
    microseconds,
    percent,
    rate,
    span,
)
from workers import run_apart

# A row of the bulk body: the body and its due time.
WIRE_BYTES = BODY_BYTES + 8
SETTLE_S = 2.0


def measure(brokers: Brokers, settings: Settings, floors: Floors) -> Table:
    """All batch sizes and spreads, a fresh broker each."""
    table = Table(
        f"ingest: {BODY_BYTES} B bodies, {INGEST_LANES} connections, fsync always, "
        f"median of {settings.ingest_runs}",
        [
            Column("messages/s", "rate", rate),
            Column("least - most", "span", span),
            Column("server CPU us", "server_us", microseconds),
            Column("in all us", "server_all_us", microseconds),
            Column("client CPU us", "client_us", microseconds),
            Column("of bare HTTP", "of_http", percent),
            Column("of disk", "of_disk", percent),
            Column("RSS MiB", "rss", mebibytes),
            Column("peak MiB", "rss_peak", mebibytes),
        ],
        notes=[
            "of bare HTTP: of what `web.Application` does with the same requests; of disk: of "
            "1 MiB writes + fdatasync. In all us: CPU until the broker was quiet again, warm-up "
            "included, over all messages.",
        ],
    )
    for batch in BATCH_SIZES:
        messages = settings.ingest_messages[batch]
        with bare_server("application") as server:
            bare = run_apart(
                timed_sends,
                server.port,
                server.process_id,
                batch=batch,
                hours=1,
                messages=messages,
                runs=1,
                lanes=INGEST_LANES,
                bare=True,
            ).value[0]
        table.add(f"bare aiohttp, {batch:,} a batch", _figures([bare], bare, floors))
        for hours in SPREADS_HOURS:
            figures = _one_case(brokers, settings, floors, bare, batch, hours)
            case = f"{batch:,} a batch, over {hours} h"
            table.add(case, figures, _targets(batch, hours, figures))
    return table


def _one_case(
    brokers: Brokers, settings: Settings, floors: Floors, bare: Timed, batch: int, hours: int
) -> dict[str, object]:
    with brokers.fresh() as broker:
        before_s = broker.cpu_seconds()
        runs = run_apart(
            timed_sends,
            broker.port,
            broker.process_id,
            batch=batch,
            hours=hours,
            messages=settings.ingest_messages[batch],
            runs=settings.ingest_runs,
            lanes=INGEST_LANES,
        ).value
        broker.settle(limit_s=SETTLE_S)
        kept = counts(broker.port, "t")["waiting"]
        if kept < sum(run.messages for run in runs):
            raise LoadError(f"the broker accepted more messages than it keeps ({kept})")
        figures = _figures(runs, bare, floors)
        figures["server_all_us"] = (broker.cpu_seconds() - before_s) / kept * 1e6
        resident = broker.resident()
        figures["rss"] = resident.total
        figures["rss_peak"] = resident.peak
        return figures


def _figures(runs: list[Timed], bare: Timed, floors: Floors) -> dict[str, object]:
    rates = sorted(run.rate for run in runs)
    middle = median(rates)
    return {
        "rate": middle,
        "span": [rates[0], rates[-1]] if len(rates) > 1 else None,
        "server_us": median([run.server_us for run in runs]),
        "client_us": median([run.client_us for run in runs]),
        "of_http": middle / bare.rate,
        "of_disk": middle * WIRE_BYTES / floors.disk_bytes_per_s,
    }


def _targets(batch: int, hours: int, figures: dict[str, object]) -> list[Target]:
    reached, cpu_us = figures["rate"], figures["server_us"]
    assert isinstance(reached, float)
    assert isinstance(cpu_us, float)
    if (batch, hours) == (1_000, 1):
        return [at_least(reached, 800e3, "800 k/s"), at_most(cpu_us, 1.2, "1.2 us")]
    if (batch, hours) == (10_000, 1):
        return [at_least(reached, 1.5e6, "1.5 M/s")]
    if (batch, hours) == (1_000, 720):
        return [at_least(reached, 200e3, "200 k/s")]
    return []
