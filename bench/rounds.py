"""Timed rounds of a script against a server, and cases compared in turns.

A round runs in a worker process: connections are opened, a short warm-up runs, then the clock. The
one rule: what is compared is measured in turns within the same minute, and a ratio of rates is
taken round by round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from clients import Fixed
from load import Driver, HttpLane, Lane, Script
from sending import Stopwatch, Timed
from tables import Column, median, microseconds, milliseconds, rate, span
from workers import run_apart

WARM_UP_S: Final = 0.3

COLUMNS: Final = (
    Column("per second", "rate", rate),
    Column("least - most", "span", span),
    Column("server CPU us", "server_us", microseconds),
    Column("client CPU us", "client_us", microseconds),
    Column("p50 ms", "p50_ms", milliseconds),
    Column("p99 ms", "p99_ms", milliseconds),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's port, its process, and the protocol that it speaks there."""

    port: int
    server_id: int
    lane: type[Lane] = HttpLane


class TimedScript(Script, Protocol):
    """A script that ends by itself and knows what it did."""

    latencies_s: list[float]

    def messages(self) -> int:
        """Messages (or requests) that are through. Raises LoadError if one was lost."""


@dataclass(frozen=True, slots=True)
class Round:
    """One timed window."""

    timed: Timed
    latencies_ms: npt.NDArray[np.float64]
    # The warm-up's too, for counts that have to add up.
    messages: int


@dataclass(frozen=True, slots=True)
class Case:
    """A load on a server: a script that ends at a time of `time.perf_counter()`, and how many
    connections it has."""

    endpoint: Endpoint
    script_until: Callable[[float], TimedScript]
    lanes: int


def fixed(endpoint: Endpoint, requests: Sequence[bytes], lanes: int, *, rows: int = 1) -> Case:
    """Ready requests, round and round, which count as `rows` each."""
    return Case(endpoint, lambda until: Fixed(requests, lanes, until, rows=rows), lanes)


def timed_round(case: Case, seconds: float) -> Round:
    """A warm-up, then the window."""
    endpoint, script_until = case.endpoint, case.script_until
    with Driver(endpoint.port, case.lanes, endpoint.lane) as driver:
        warm_up = script_until(time.perf_counter() + min(WARM_UP_S, seconds / 4))
        driver.run(warm_up)
        warm_messages = warm_up.messages()
        script = script_until(time.perf_counter() + seconds)
        watch = Stopwatch(endpoint.server_id)
        driver.run(script)
        timed = watch.read(len(script.latencies_s))
    messages = script.messages()
    timed = replace(timed, messages=messages)
    return Round(timed, np.array(script.latencies_s) * 1e3, warm_messages + messages)


def in_turns(cases: Mapping[str, Case], rounds: int, seconds: float) -> dict[str, list[Round]]:
    """Each case once, then all of them again, `rounds` times; a worker process each."""
    done: dict[str, list[Round]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            done[name].append(run_apart(timed_round, case, seconds).value)
    return done


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """The median rate, and processor times and quantiles over all rounds.

    Processor times are summed first: a tick of 10 ms is much for one short round.
    """
    rates = sorted(each.timed.rate for each in rounds)
    messages = sum(each.timed.messages for each in rounds)
    p50, p99 = np.percentile(np.concatenate([each.latencies_ms for each in rounds]), (50, 99))
    return {
        "rate": median(rates),
        "span": [rates[0], rates[-1]],
        "server_us": sum(each.timed.server_cpu_s for each in rounds) / messages * 1e6,
        "client_us": sum(each.timed.client_cpu_s for each in rounds) / messages * 1e6,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
    }


def ratio(mine: Sequence[Round], its: Sequence[Round]) -> float:
    """The median, over rounds taken in turns, of one rate by the other."""
    pairs = zip(mine, its, strict=True)
    return median([one.timed.rate / other.timed.rate for one, other in pairs])


def messages_of(rounds: Sequence[Round]) -> int:
    """All messages of some rounds, those of warm-ups too."""
    return sum(each.messages for each in rounds)
