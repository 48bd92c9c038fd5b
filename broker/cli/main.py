"""The `delaylog` command: what each verb calls, and the exit status of every way it ends."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

from delaylog.broker.cli.chosen import cancel_command, replay_command, reschedule_command
from delaylog.broker.cli.clusters import cluster_command
from delaylog.broker.cli.failing import ERRORS, INTERRUPTED, WRONG, fail, wants_json
from delaylog.broker.cli.looking import list_command, show_command
from delaylog.broker.cli.parser import make_parser
from delaylog.broker.cli.remote import (
    clock_command,
    receive_command,
    send_command,
    stats_command,
    topics_command,
)
from delaylog.broker.cli.whole_topics import (
    groups_command,
    pause_command,
    purge_command,
    resume_command,
)
from delaylog.broker.config import load_config
from delaylog.broker.logs import set_up_logs

_REMOTE: Final = {
    "send": send_command,
    "receive": receive_command,
    "list": list_command,
    "show": show_command,
    "stats": stats_command,
    "topics": topics_command,
    "clock": clock_command,
    "cluster": cluster_command,
    "cancel": cancel_command,
    "reschedule": reschedule_command,
    "replay": replay_command,
    "groups": groups_command,
    "purge": purge_command,
    "pause": pause_command,
    "resume": resume_command,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = wants_json(words)
    args = make_parser(as_json=as_json).parse_args(words)
    try:
        return _run(args)
    except BrokenPipeError:
        # The reader has gone, as `| head` does; keep the interpreter from flushing once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return WRONG
    except ERRORS as error:
        return fail(error, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    verb = args.verb
    if verb in _REMOTE:
        return asyncio.run(_REMOTE[verb](args))
    if verb == "serve":
        config = load_config(vars(args))
        set_up_logs(config.log_level, config.log_format)
        from delaylog.broker.serve import serve

        return serve(config)
    if verb == "completion":
        from delaylog.broker.cli.completion import completion_command

        return completion_command(args)
    if verb == "spark":
        from delaylog.broker.cli.spark import spark_command

        return spark_command(args)
    # A long verb that is asked to end cleans up behind itself.
    signal.signal(signal.SIGTERM, _interrupt)
    if verb == "check":
        from delaylog.broker.cli.local import check_command

        return check_command(args)
    if verb == "drill":
        from delaylog.broker.cli.drill import drill_command

        return drill_command(args)
    if verb == "dump":
        from delaylog.broker.cli.dump import dump_command

        return dump_command(args)
    from delaylog.broker.cli.local import backup_command, restore_command, verify_command

    commands = {
        "verify": verify_command,
        "backup": backup_command,
        "restore": restore_command,
    }
    return commands[verb](args)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a handler's form)
    raise KeyboardInterrupt
