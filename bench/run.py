"""Measure a delaylog broker on this machine, with its targets beside the figures.

    python bench/run.py --small | --full [--only ingest,drain,…] [--json FILE]
                        [--data-root DIR] [--server COMMAND] [--pending 1M,10M] [--ids 10M,100M]

Starts real broker processes in temporary folders and real clients in processes of their own. The
floors of the machine are always measured in the same run. The exit status says whether every
section could be measured, not whether every target was met.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import burst
import cluster
import control
import drain
import floors
import ingest
import lateness
import leases
import listing
import memory
import metrics
import order
import restart
import scale
import sdk
import singles
import starts
import streams
import transactions
import upkeep
import years
import years_cluster
import years_groups
from broker_process import Brokers, broker_program
from loop_lag import METER
from procfs import OthersMeter
from settings import FULL, SMALL, Settings
from tables import Table, missed

SECTIONS: Final = (
    "floors",
    "ingest",
    "singles",
    "everyday",
    "cost",
    "secure",
    "drain",
    "order",
    "control",
    "lateness",
    "streams",
    "leases",
    "years",
    "upkeep",
    "scale",
    "metrics",
    "listing",
    "transactions",
    "cluster",
    "resp",
    "sdk",
    "starts",
    "memory",
    "restart",
    "spark",
)
# These run only where they are named: spark needs an environment with pyspark and Java.
ASKED_FOR: Final = frozenset({"spark"})
# Above this share of foreign work a note stands under the table.
OTHERS_SHARE_QUIET: Final = 0.05


def main() -> int:
    """Measure what was asked for and print it as it comes."""
    options = _options()
    settings = FULL if options.full else SMALL
    if options.pending:
        settings = dataclasses.replace(settings, pending=_amounts(options.pending))
    if options.ids:
        settings = dataclasses.replace(settings, everyday_ids=_amounts(options.ids))
    if options.rounds:
        settings = dataclasses.replace(settings, cost_rounds=options.rounds)
    data_root = options.data_root.resolve()
    print(f"# delaylog bench, --{settings.name}\n")
    print(*floors.machine(data_root), "", sep="\n", flush=True)
    begun = time.monotonic()
    found, table = _floors(settings, data_root)
    tables, failed = [table], []
    for name, section in _sections(options, settings, data_root, found):
        meter = OthersMeter.started()
        try:
            for table in section():
                tables.append(table)
                _note_others(table, meter.share())
                if lag := METER.note():
                    table.notes.append(lag)
                print(*table.lines(), "", sep="\n", flush=True)
        except Exception as error:  # One section that fails must not take the others with it.
            failed.append(name)
            print(f"## {name}: could not be measured\n", flush=True)
            traceback.print_exception(error, file=sys.stdout)
            print(flush=True)
    _summary(tables, failed, time.monotonic() - begun)
    if options.json:
        data = {
            "size": settings.name,
            "machine": floors.machine(data_root),
            "tables": [table.as_data() for table in tables],
            "failed": failed,
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if failed else 0


def _sections(
    options: argparse.Namespace, settings: Settings, data_root: Path, found: floors.Floors
) -> Iterator[tuple[str, Callable[[], Iterator[Table]]]]:
    wanted = options.only
    if not wanted - {"floors"}:
        return
    program = shlex.split(options.server) if options.server else broker_program()
    brokers = Brokers(program, data_root)
    if "ingest" in wanted:
        yield "ingest", lambda: iter([ingest.measure(brokers, settings, found)])
    if "singles" in wanted:
        yield "singles", lambda: iter([singles.measure(brokers, settings)])
    if "everyday" in wanted:
        # What this needs, an environment of Spark lacks, and the other way round.
        import everyday

        yield "everyday", lambda: everyday.measure(brokers, settings)
    if "cost" in wanted:
        import cost

        before = Brokers(shlex.split(options.before), data_root) if options.before else None
        yield (
            "cost",
            lambda: cost.measure(brokers, settings, before=before, shapes=options.shapes),
        )
    if "secure" in wanted:
        # It makes certificates, with a library that an environment of Spark lacks.
        import secure

        yield "secure", lambda: iter([secure.measure(brokers, settings)])
    if "drain" in wanted:
        yield "drain", lambda: iter([drain.measure(brokers, settings)])
    if "order" in wanted:
        yield "order", lambda: iter([order.measure(brokers, settings)])
    if "control" in wanted:
        yield "control", lambda: iter([control.measure(brokers, settings)])
    if "lateness" in wanted:
        yield "lateness", lambda: iter([lateness.measure(brokers, settings)])
        yield "burst", lambda: iter([burst.measure(brokers, settings)])
    if "streams" in wanted:
        yield "streams", lambda: iter([streams.measure(brokers, settings)])
        yield "lateness of streams", lambda: iter([streams.lateness(brokers, settings)])
    if "years" in wanted:
        yield "years", lambda: iter([years.measure(brokers, settings)])
        yield "years, groups", lambda: iter([years_groups.measure(brokers, settings)])
        yield "years, cluster", lambda: iter([years_cluster.measure(brokers, settings)])
    if "leases" in wanted:
        yield "leases", lambda: iter([leases.measure(brokers, settings)])
    if "upkeep" in wanted:
        yield "upkeep", lambda: iter([upkeep.measure(brokers, settings)])
    if "scale" in wanted:
        yield "scale", lambda: iter([scale.measure(brokers, settings)])
    if "metrics" in wanted:
        yield "metrics", lambda: iter([metrics.measure(brokers)])
    if "listing" in wanted:
        yield "listing", lambda: _listing(brokers, settings)
    if "transactions" in wanted:
        yield "transactions", lambda: iter([transactions.measure(brokers, settings)])
    if "cluster" in wanted:
        yield "cluster ingest", lambda: iter([cluster.ingest(brokers, settings)])
        yield "cluster lateness", lambda: iter([cluster.lateness(brokers, settings)])
    if "resp" in wanted:
        import resp

        yield "resp", lambda: iter([resp.commands(brokers, settings)])
        yield "resp delay queues", lambda: iter([resp.delay_queues(brokers, settings)])
    if "sdk" in wanted:
        yield "sdk", lambda: sdk.measure(brokers, settings)
    if "starts" in wanted:
        yield "starts", lambda: iter([starts.measure()])
    if "memory" in wanted:
        yield "memory (ready)", lambda: _ready(brokers, settings)
    if "spark" in wanted:
        import spark

        yield "spark", lambda: spark.measure(brokers, settings)
    if wanted & {"memory", "restart"}:
        yield "memory, restart", lambda: _pending(brokers, settings, restarts="restart" in wanted)


def _ready(brokers: Brokers, settings: Settings) -> Iterator[Table]:
    with brokers.folder() as folder, brokers.on(folder) as broker:
        yield memory.measure(
            broker, folder, settings.pending, settings.settle_s, memory.READY, settings.probe
        )


def _listing(brokers: Brokers, settings: Settings) -> Iterator[Table]:
    with brokers.folder() as folder, brokers.on(folder) as broker:
        yield listing.measure(broker, settings.pending, settings.settle_s)


def _pending(brokers: Brokers, settings: Settings, *, restarts: bool) -> Iterator[Table]:
    # Loading tens of millions takes minutes: the restarts use the backlog that memory loaded.
    with brokers.folder() as folder, brokers.on(folder) as broker:
        yield memory.measure(
            broker, folder, settings.pending, settings.settle_s, memory.PENDING, settings.probe
        )
        if restarts:
            yield restart.measure(broker, folder, settings, settings.pending[-1])


def _floors(settings: Settings, data_root: Path) -> tuple[floors.Floors, Table]:
    meter = OthersMeter.started()
    found = floors.measure(settings, data_root)
    _note_others(found.table, meter.share())
    print(*found.table.lines(), "", sep="\n", flush=True)
    return found, found.table


def _note_others(table: Table, share: float) -> None:
    if share > OTHERS_SHARE_QUIET:
        table.notes.append(
            f"Not quiet: other work took {share * 100:.0f} % of the processors meanwhile."
        )


def _summary(tables: list[Table], failed: list[str], took_s: float) -> None:
    print(f"## summary\n\nTook {took_s:.0f} s.")
    short = missed(tables)
    print("Missed: " + "; ".join(short) + "." if short else "No target was missed.")
    if failed:
        print("Could not be measured: " + ", ".join(failed) + ".")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--small", action="store_true", help="minutes; to compare two builds")
    size.add_argument("--full", action="store_true", help="an hour and some 40 GB; to judge")
    parser.add_argument("--only", type=_names, default=set(SECTIONS) - ASKED_FOR, metavar="NAME,…")
    parser.add_argument("--json", type=Path, metavar="FILE", help="raw figures")
    # /tmp is memory on many machines, /var/tmp is a disk by convention.
    usual = Path("/var/tmp") if Path("/var/tmp").is_dir() else Path(gettempdir())
    parser.add_argument("--data-root", type=Path, default=usual, help=f"(default {usual})")
    parser.add_argument("--server", metavar="COMMAND", help="instead of the installed `delaylog`")
    parser.add_argument("--pending", metavar="1M,10M", help="backlogs of memory and restart")
    parser.add_argument("--ids", metavar="10M,100M", help="ids beside those that everyday sends")
    parser.add_argument("--before", metavar="COMMAND", help="cost: an earlier build, in turns")
    parser.add_argument(
        "--shapes", type=lambda text: text.split(","), default=(), metavar="NAME,…", help="of cost"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="of cost")
    return parser.parse_args()


def _names(text: str) -> set[str]:
    names = set(text.split(","))
    if unknown := names - set(SECTIONS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; of {', '.join(SECTIONS)}")
    return names


def _amounts(text: str) -> tuple[int, ...]:
    factors = {"k": 1_000, "M": 1_000_000}
    amounts = sorted(
        int(float(word.rstrip("kM")) * factors.get(word[-1], 1)) for word in text.split(",")
    )
    return tuple(amounts)


if __name__ == "__main__":
    sys.exit(main())
