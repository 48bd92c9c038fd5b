"""`delaylog worker` and `delaylog spark`: run the programs of an application.

`worker` runs the consumers and tasks of an application in processes. `spark` runs the jobs of
`pyspark_delaylog`, which replace this process: neither the broker nor this verb imports Spark,
which takes half a gigabyte and needs Java. The verb checks that it is installed and replaces itself
by the job.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

from delaylog.broker.cli.failures import UsageError
from delaylog.broker.cli.parser import add_examples, complete_files
from delaylog.extras import EXTRAS, command

# --------------------------------------------------------------------------------------- worker

LEVELS: Final = ("debug", "info", "warning", "error")


def worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog worker`."""
    parser.add_argument(
        "app",
        metavar="MODULE:NAME",
        help="the client whose consumers and tasks run, or a function that returns it",
    )
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="how many processes (default: 1)"
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="restart them when a Python file below the current folder changes",
    )
    complete_files(
        parser.add_argument(
            "--health-file",
            metavar="FILE",
            help="file whose time is renewed each second while all processes are connected",
        )
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="of logs on standard error"
    )
    parser.add_argument(
        "--json", action="store_true", help="log JSON, one object a line, with the pid"
    )
    add_examples(
        parser,
        "worker shop.tasks:client",
        "worker shop.tasks:client --processes 4 --health-file /run/shop/healthy",
        "worker shop.tasks:client --reload",
    )


def worker_command(args: argparse.Namespace) -> int:
    """Run the processes until a signal; returns the exit status."""
    from delaylog.client.workers.pool import Command, Pool, PoolOptions
    from delaylog.client.workers.pool_process import set_up_logs

    if ":" not in args.app:
        raise UsageError(f"give the application as MODULE:NAME, such as {args.app}:client")
    health_file = Path(args.health_file).absolute() if args.health_file else None
    if health_file is not None and not health_file.parent.is_dir():
        raise UsageError(f"the folder {health_file.parent} of the health file does not exist")
    form = "json" if args.json else "text"
    set_up_logs(args.log_level, form)
    command = Command(args.app, args.log_level, form)
    try:
        options = PoolOptions(command, args.processes, health_file, args.reload)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Pool(options).run()


# ---------------------------------------------------------------------------------------- spark

HINT: Final = command("spark")


def spark_command(args: argparse.Namespace) -> int:
    """Replace this process by the job. Raises UsageError if a package is missing."""
    missing = [name for name in sorted(EXTRAS["spark"]) if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the jobs on Spark need {', '.join(missing)}; run: {HINT}")
    # -P: do not import modules from the current folder.
    words = [sys.executable, "-P", "-m", "pyspark_delaylog.jobs", *args.words]
    sys.stdout.flush()
    os.execv(sys.executable, words)
