"""Arguments of the `delaylog` command and what each verb calls."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from delaylog import __version__
from delaylog.broker.cli.remote import (
    cancel_command,
    receive_command,
    reschedule_command,
    send_command,
    stats_command,
    topics_command,
)
from delaylog.broker.config import OPTIONS, ConfigError, load_config
from delaylog.broker.logs import set_up_logs

_REMOTE: Final = {
    "send": send_command,
    "receive": receive_command,
    "stats": stats_command,
    "topics": topics_command,
    "cancel": cancel_command,
    "reschedule": reschedule_command,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="delaylog", description="A disk-backed delay log broker.")
    parser.add_argument("--version", action="version", version=f"delaylog {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    serve = verbs.add_parser("serve", help="run a broker")
    serve.add_argument("--config", metavar="FILE", help="TOML file")
    for option in OPTIONS:
        serve.add_argument(
            f"--{option.name}",
            dest=option.key,
            metavar="VALUE",
            help=f"{option.help} (default {option.default}; variable {option.variable})",
        )

    send = verbs.add_parser("send", help="send one message, or one per line of standard input")
    _add_remote(send)
    send.add_argument("body", nargs="?", help="the body; '-' or nothing reads lines")
    when = send.add_mutually_exclusive_group()
    when.add_argument("--delay-ms", type=int, metavar="MS", help="due so long from now")
    when.add_argument("--at-ms", type=int, metavar="MS", help="due at this Unix time")
    send.add_argument("--id", help="your own id (one message)")
    send.add_argument("--key", help="ordering key")
    send.add_argument("--tag", action="append", default=[], help="a tag; may be given again")
    send.add_argument("--priority", type=int)
    send.add_argument("--ttl-ms", type=int, metavar="MS")

    receive = verbs.add_parser("receive", help="receive messages and print them")
    _add_remote(receive)
    receive.add_argument("--max", type=int, default=1, help="messages a call (default 1)")
    receive.add_argument(
        "--wait-ms", type=int, default=0, metavar="MS", help="wait for one so long"
    )
    receive.add_argument("--lease-ms", type=int, metavar="MS")
    receive.add_argument("--no-ack", action="store_true", help="leave them under lease")
    receive.add_argument("--follow", action="store_true", help="go on until interrupted")

    stats = verbs.add_parser("stats", help="counts of a topic, or of all topics")
    stats.add_argument("topic", nargs="?")
    _add_url(stats)

    topics = verbs.add_parser("topics", help="the topics and their settings")
    _add_url(topics)

    cancel = verbs.add_parser("cancel", help="cancel messages by id")
    _add_remote(cancel)
    cancel.add_argument("id", nargs="+")
    cancel.add_argument("--force", action="store_true", help="also while a consumer has it")

    reschedule = verbs.add_parser("reschedule", help="give messages another time, by id")
    _add_remote(reschedule)
    reschedule.add_argument("id", nargs="+")
    new = reschedule.add_mutually_exclusive_group(required=True)
    new.add_argument("--delay-ms", type=int, metavar="MS", help="due so long from now; 0 = now")
    new.add_argument("--at-ms", type=int, metavar="MS", help="due at this Unix time")

    check = verbs.add_parser("check", help="check recorded histories against the promises")
    check.add_argument("history", nargs="+", type=Path, help="JSON-lines files")
    check.add_argument("--json", action="store_true", help="report as JSON")
    check.add_argument("--bound-ms", type=int, default=5_000, metavar="MS")
    check.add_argument("--rules", default="", help="letters, for example A,B,C (default all)")

    verify = verbs.add_parser(
        "verify", help="read a data folder whole (no broker may serve it) and name what is damaged"
    )
    verify.add_argument("data_dir", metavar="DIR")
    verify.add_argument("--json", action="store_true", help="report as JSON")

    dump = verbs.add_parser("dump", help="one file of a data folder as JSON lines")
    dump.add_argument("file", metavar="FILE", type=Path)
    return parser


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", default="http://127.0.0.1:8711", help="the broker (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def _add_remote(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    _add_url(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    args = _parser().parse_args(argv)
    try:
        if args.verb == "serve":
            config = load_config(vars(args))
            set_up_logs(config.log_level, config.log_format)
            from delaylog.broker.serve import serve

            return serve(config)
        if args.verb == "check":
            from delaylog.broker.history import RULES, run_check

            rules = [letter.strip().upper() for letter in args.rules.split(",") if letter.strip()]
            return run_check(
                args.history,
                bound_ms=args.bound_ms,
                as_json=args.json,
                rules=rules or RULES,
            )
        if args.verb == "verify":
            from delaylog.broker.cli.local import verify_command

            return verify_command(args)
        if args.verb == "dump":
            from delaylog.broker.cli.dump import dump_command

            return dump_command(args)
        return asyncio.run(_REMOTE[args.verb](args))
    except ConfigError as error:
        print(f"delaylog: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone, as `| head` does; keep the interpreter from flushing once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
