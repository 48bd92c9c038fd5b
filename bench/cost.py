"""What requests of one message each cost the broker, compared with a floor (cost_floor.py).

The floor is a process that only parses, appends, syncs and keeps messages. It knows no due times,
so it has no row where messages are due ahead. In a round each server gets a fresh process and data
folder, a warm-up and one window. Servers take turns, in the other order every second round. A ratio
is one of processor time: the median of the ratios of the rounds. With `--before` an earlier build
takes part.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import cost_load
import numpy as np
from broker_process import Brokers, ServerProcess
from cost_load import SHAPES, Open, Window
from procfs import cpu_times
from redis_peer import Benchmark, Load, reference_programs
from resp import CLIENTS, PROBE, options
from settings import BODY_BYTES, Settings
from tables import Column, Table, Target, at_most, median, microseconds, milliseconds, rate, times
from workers import run_apart
from yardstick import RESP

Servers: TypeAlias = Mapping[str, Callable[[], AbstractContextManager[ServerProcess]]]
FLOOR: Final = "floor"
BEFORE: Final = "before"
PRODUCT: Final = "delaylog"
RESP_CASES: Final = "resp"
PIPELINES: Final = (1, 16)
RATIOS_MAX: Final = {"send50": 1.8, "lone-send": 2.0, "one50": 2.5, "lone-cycle": 2.2}
"""Targets: processor time of an operation by that of the floor."""
OPEN_MAX: Final = {"poll1000": (250.0, 5.0), "open10k": (30.0, 8.0)}
"""Targets without a floor: microseconds of processor time, milliseconds of lateness at p99."""

COLUMNS: Final = (
    Column("per second", "rate", rate),
    Column("user us", "user_us", microseconds),
    Column("system us", "system_us", microseconds),
    Column("CPU us", "server_us", microseconds),
    Column("of floor", "of_floor", times),
    Column("of before", "of_before", times),
    Column("late p50 ms", "p50_ms", milliseconds),
    Column("late p99 ms", "p99_ms", milliseconds),
)


def measure(
    brokers: Brokers, settings: Settings, *, before: Brokers | None, shapes: Sequence[str]
) -> Iterator[Table]:
    """A table of HTTP and one of RESP, of the shapes that are named, or of all."""
    if unknown := set(shapes) - {*SHAPES, RESP_CASES}:
        raise ValueError(f"unknown shapes: {unknown}; of {', '.join([*SHAPES, RESP_CASES])}")
    servers: Servers = {
        FLOOR: lambda: floor(brokers),
        **({BEFORE: lambda: before.fresh(*RESP)} if before else {}),
        PRODUCT: lambda: brokers.fresh(*RESP),
    }
    how = f"{BODY_BYTES} B bodies, fsync always, median of {settings.cost_rounds} rounds in turns"
    columns = [each for each in COLUMNS if before or each.key != "of_before"]
    wanted = [shape for shape in SHAPES if shape in (shapes or SHAPES)]
    if wanted:
        yield _requests(
            Table(f"cost: one JSON message a request, {how}", columns), wanted, servers, settings
        )
    if RESP_CASES in (shapes or (RESP_CASES,)):
        title = f"cost of RESP: redis-benchmark, {CLIENTS} connections, {how}"
        yield _commands(Table(title, columns[:-2]), servers, settings)


def _requests(table: Table, shapes: Sequence[str], servers: Servers, settings: Settings) -> Table:
    for shape in shapes:
        ahead = isinstance(SHAPES[shape], Open)

        def window(server: ServerProcess, shape: str = shape) -> dict[str, Window]:
            seconds = settings.cost_round_s
            worker = run_apart(cost_load.measure, shape, server.port, server.process_id, seconds)
            return {shape: worker.value}

        taking_part = {name: servers[name] for name in servers if not (ahead and name == FLOOR)}
        _in_turns(table, taking_part, settings.cost_rounds, window)
    table.notes.append(
        "An operation is a message: sent; received and acked (one50, poll1000, open10k, with its "
        "send in the last two); or all three (lone-cycle)."
    )
    return table


def _commands(table: Table, servers: Servers, settings: Settings) -> Table:
    benchmark = Benchmark(reference_programs())
    loads = {
        f"{verb} -P {pipeline}": (pipeline, Load((*options(pipeline), *test), words))
        for pipeline in PIPELINES
        for verb, test, words in (
            ("SET", ("-t", "set"), ()),
            ("GET", ("-t", "get"), ()),
            ("DL.SEND", (), ("dl.send", "cost", "3600000", "x" * BODY_BYTES)),
        )
    }

    def windows(server: ServerProcess) -> dict[str, Window]:
        found = {}
        for case, (pipeline, load) in loads.items():
            port = server.port_of("resp")
            probed = benchmark.run(server, port, load, PROBE[pipeline])
            requests = max(PROBE[pipeline], int(probed.rate * settings.cost_round_s))
            user_s, system_s = cpu_times(server.process_id)
            timed = benchmark.run(server, port, load, requests)
            after_user_s, after_system_s = cpu_times(server.process_id)
            used = (after_user_s - user_s, after_system_s - system_s)
            found[case] = Window(requests, timed.seconds, *used, [])
        return found

    _in_turns(table, servers, settings.cost_rounds, windows)
    return table


def _in_turns(
    table: Table,
    servers: Servers,
    rounds: int,
    windows: Callable[[ServerProcess], Mapping[str, Window]],
) -> None:
    """Add a row for each case of `windows` and each server."""
    done: dict[str, dict[str, list[Window]]] = {}
    for number in range(rounds):
        for name in list(servers)[:: -1 if number % 2 else 1]:
            with servers[name]() as server:
                for case, window in windows(server).items():
                    done.setdefault(case, {each: [] for each in servers})[name].append(window)
    for case, by_server in done.items():
        for name, mine in by_server.items():
            row = figures(mine)
            for column, other in (("of_floor", FLOOR), ("of_before", BEFORE)):
                if name not in (FLOOR, other) and other in by_server:
                    row[column] = ratio(mine, by_server[other])
            table.add(f"{case}: {name}", row, _targets(case, row) if name == PRODUCT else ())


def figures(windows: Sequence[Window]) -> dict[str, Any]:
    """Medians over all rounds; user and system time are those of the round with the median sum."""
    middle = sorted(windows, key=_cost_us)[len(windows) // 2]
    found = {
        "rate": median([each.operations / each.seconds for each in windows]),
        "user_us": middle.user_s / middle.operations * 1e6,
        "system_us": middle.system_s / middle.operations * 1e6,
        "server_us": _cost_us(middle),
    }
    if all(each.late_ms for each in windows):
        late = [np.percentile(each.late_ms, (50, 99)) for each in windows]
        found["p50_ms"], found["p99_ms"] = (median(list(each)) for each in zip(*late, strict=True))
    return found


def ratio(mine: Sequence[Window], others: Sequence[Window]) -> float:
    """The median over all rounds of `mine` by `others`, each the processor time of an operation."""
    pairs = zip(mine, others, strict=True)
    return median([_cost_us(one) / _cost_us(other) for one, other in pairs])


def _cost_us(window: Window) -> float:
    return (window.user_s + window.system_s) / window.operations * 1e6


def _targets(case: str, row: Mapping[str, Any]) -> list[Target]:
    if bound := RATIOS_MAX.get(case):
        return [at_most(row["of_floor"], bound, f"{bound} x floor")]
    if case in OPEN_MAX:
        cost_us, p99_ms = OPEN_MAX[case]
        return [
            at_most(row["server_us"], cost_us, f"{cost_us:.0f} us"),
            at_most(row.get("p99_ms"), p99_ms, f"{p99_ms:.0f} ms p99"),
        ]
    return []


@contextmanager
def floor(brokers: Brokers) -> Iterator[ServerProcess]:
    """The floor, running, with its file where brokers have their folders."""
    program = str(Path(__file__).with_name("cost_floor.py"))
    with brokers.folder() as folder:
        command = [sys.executable, program, str(folder)]
        # A client that ends leaves requests behind, and uvloop tells where their answers go.
        with ServerProcess(command, log_path=folder / "floor.log") as server:
            yield server
