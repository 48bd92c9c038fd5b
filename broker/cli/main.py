"""The `delaylog` command: finds the module of a verb, runs it, and returns the exit status.

A verb's module is imported only when the verb runs, so `serve` starts without the client's code,
and a verb that calls a broker without the server's code.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from importlib import import_module
from types import FrameType
from typing import Any, Final

from delaylog.broker.cli.failing import INTERRUPTED, WRONG, fail, is_expected, wants_json
from delaylog.broker.cli.parser import make_parser
from delaylog.broker.host.config import load_config
from delaylog.broker.host.watch.logs import set_up_logs

LOCAL: Final = {
    **dict.fromkeys(("check", "verify", "backup", "restore"), "local"),
    "doctor": "doctor.of_tls",
    "drill": "drill",
    "init": "tokens",
    "dump": "dump.files",
}
"""Verbs that work on folders and files, or start brokers themselves, and their modules."""
REMOTE: Final = {
    **dict.fromkeys(("send", "receive", "stats", "topics", "clock", "reload"), "remote"),
    **dict.fromkeys(("list", "show"), "looking"),
    **dict.fromkeys(("cancel", "reschedule", "replay"), "chosen"),
    **dict.fromkeys(("groups", "purge", "pause", "resume"), "whole_topics"),
    "cluster": "clusters",
    "token": "tokens",
}
"""Verbs that call a broker, and their modules."""
MODULES: Final = {
    **LOCAL,
    **REMOTE,
    "recover": "clusters",
    "completion": "completion",
    "spark": "spark",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = wants_json(words)
    if words[:1] == ["spark"]:
        # The job parses its own words. argparse would handle its `--help` itself.
        args = argparse.Namespace(verb="spark", words=words[1:])
    else:
        args = make_parser(as_json=as_json).parse_args(words)
    try:
        return _run(args)
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does; keep the interpreter from flushing to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if not is_expected(error):
            raise
        return fail(error, as_json=as_json)


def _run(args: argparse.Namespace) -> int:
    verb: str = args.verb
    if verb == "serve":
        config = load_config(vars(args))
        set_up_logs(config.log_level, config.log_format)
        from delaylog.broker.host.serve import serve

        return serve(config)
    if verb in LOCAL:
        # SIGTERM ends a long verb as Ctrl-C does, so that it cleans up.
        signal.signal(signal.SIGTERM, _interrupt)
    name = "recover" if verb == "cluster" and args.action == "recover" else verb
    module = import_module(f"delaylog.broker.cli.{MODULES[name]}")
    status: int | Coroutine[Any, Any, int] = getattr(module, f"{name}_command")(args)
    if not isinstance(status, Coroutine):
        return status
    import asyncio

    return asyncio.run(status)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a handler's form)
    raise KeyboardInterrupt
