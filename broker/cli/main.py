"""The `delaylog` command: what each verb calls, and the exit status of every way it ends.

A verb loads what it needs when it is called for: `serve` begins without the client's code, and
who asks a broker begins without the server's.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

from delaylog.broker.cli.failing import INTERRUPTED, WRONG, fail, is_expected, wants_json
from delaylog.broker.cli.parser import make_parser
from delaylog.broker.config import load_config
from delaylog.broker.logs import set_up_logs

_LOCAL: Final = frozenset({"check", "drill", "dump", "verify", "backup", "restore"})
"""Verbs that work on folders and files, or start brokers of their own; the others ask a broker."""


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
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if not is_expected(error):
            raise
        return fail(error, as_json=as_json)


def _run(args: argparse.Namespace) -> int:
    verb = args.verb
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
    if verb == "cluster" and args.action == "recover":
        from delaylog.broker.cli.clusters import recover_command

        return recover_command(args)
    if verb not in _LOCAL:
        from delaylog.broker.cli.remote_verbs import run_remote

        return run_remote(verb, args)
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
