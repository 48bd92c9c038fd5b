"""The verb `doctor`, whose only action is `broker`: its help loads neither client nor checks."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from typing import Any

from delaylog.broker.cli.arguments import add_broker, span
from delaylog.broker.cli.parser import add_action, add_actions, complete_folders


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog doctor`."""
    actions = add_actions(parser)
    broker = add_action(
        actions,
        "broker",
        "check a running broker: its disk, clock, limits, consumers and cluster",
        "doctor broker --url http://10.0.0.2:8711",
        "doctor broker --folder /var/lib/delaylog --watch 30s",
    )
    broker.add_argument(
        "--watch", type=span, default=5_000, metavar="TIME", help="how long to look (default 5s)"
    )
    complete_folders(
        broker.add_argument(
            "--folder",
            metavar="FOLDER",
            help="its data folder, if that is on this machine: also checks the machine",
        )
    )
    add_broker(broker, topic=None, namespace=False)


def doctor_command(args: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
    """`delaylog doctor`: 0, or 1 if a check fails. A warning is no failure."""
    from delaylog.broker.cli.doctor.broker import broker_command

    return broker_command(args)
