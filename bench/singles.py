"""Single sends on 50 connections, against aiohttp handlers that only read the body.

A single send is bounded by the HTTP library, so the figure that says something is the ratio to a
handler that does nothing, taken in turns in the same minute: broker, bare, broker, bare.
"""

from __future__ import annotations

from contextlib import ExitStack

from broker_process import Brokers, ServerProcess
from floors import bare_server, single_figures, timed_singles
from settings import BODY_BYTES, SINGLES_LANES, Settings
from tables import Column, Table, at_least, median, microseconds, milliseconds, percent, rate, span
from workers import run_apart

BROKER = "broker, single sends"
APPLICATION = "bare web.Application"
LOW_LEVEL = "bare web.Server"


def measure(brokers: Brokers, settings: Settings) -> Table:
    """The three servers in turns; ratios are taken round by round."""
    table = Table(
        f"singles: JSON, {BODY_BYTES} B bodies, {SINGLES_LANES} connections, fsync always, "
        f"median of {settings.singles_rounds} interleaved rounds",
        [
            Column("requests/s", "rate", rate),
            Column("least - most", "span", span),
            Column("server CPU us", "server_us", microseconds),
            Column("client CPU us", "client_us", microseconds),
            Column("p50 ms", "p50_ms", milliseconds),
            Column("p99 ms", "p99_ms", milliseconds),
            Column("broker / this", "ratio", percent),
        ],
    )
    rounds: dict[str, list[dict[str, float]]] = {BROKER: [], APPLICATION: [], LOW_LEVEL: []}
    with ExitStack() as stack:
        servers: dict[str, ServerProcess] = {
            BROKER: stack.enter_context(brokers.fresh()),
            APPLICATION: stack.enter_context(bare_server("application")),
            LOW_LEVEL: stack.enter_context(bare_server("low-level")),
        }
        for _ in range(settings.singles_rounds):
            for name, server in servers.items():
                timed, latencies_s = run_apart(
                    timed_singles,
                    server.port,
                    server.process_id,
                    seconds=settings.singles_round_s,
                ).value
                rounds[name].append(single_figures(timed, latencies_s))
    for name, figures in rounds.items():
        rates = sorted(figure["rate"] for figure in figures)
        ratio = median(
            [mine["rate"] / its["rate"] for mine, its in zip(rounds[BROKER], figures, strict=True)]
        )
        middle = {key: median([figure[key] for figure in figures]) for key in figures[0]}
        targets = [at_least(ratio, 0.70, "70 %")] if name == APPLICATION else []
        shown = None if name == BROKER else ratio
        table.add(name, {**middle, "span": [rates[0], rates[-1]], "ratio": shown}, targets)
    return table
