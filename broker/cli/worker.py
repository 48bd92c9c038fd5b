"""`delaylog worker`: processes that run the consumers and tasks of an application."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from delaylog.broker.cli.failing import UsageError
from delaylog.broker.cli.parser import add_examples, complete_files

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
    from delaylog.client.pool.child import set_up_logs
    from delaylog.client.pool.pool import Pool, PoolOptions
    from delaylog.client.pool.slot import Command

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
