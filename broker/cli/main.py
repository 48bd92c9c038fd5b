"""The `delaylog` command: finds the module of a verb, runs it, and returns the exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from types import FrameType
from typing import Any

from delaylog.broker.cli.failures import (
    INTERRUPTED,
    WRONG,
    Interrupted,
    UsageError,
    fail,
    is_expected,
    say_interrupted,
    wants_json,
)
from delaylog.broker.cli.parser import make_parser
from delaylog.broker.cli.verbs import VERBS
from delaylog.extras import hint, is_missing


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    _open_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = wants_json(words)
    try:
        status = _run(_parsed(words, as_json=as_json))
        # A full disk behind standard output is reported here, not while Python ends.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does; keep the interpreter from flushing to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except Interrupted as error:
        say_interrupted(error, as_json=as_json)
        return INTERRUPTED
    except ImportError as error:
        if not is_missing(error):
            raise
        return fail(UsageError(hint(f"delaylog {words[0]}")), as_json=as_json)
    except Exception as error:
        if not is_expected(error):
            raise
        return fail(error, as_json=as_json)


def _open_streams() -> None:
    """Open what the caller has closed, as by `<&-`: it reads as empty and discards what is written.

    Also, no socket and no file of a broker gets a descriptor that children take for a stream.
    """
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, mode))  # noqa: SIM115 (open until the end)


def _parsed(words: list[str], *, as_json: bool) -> argparse.Namespace:
    verb = words[0] if words else ""
    if verb in VERBS:
        if not VERBS[verb].parses:
            return argparse.Namespace(verb=verb, words=words[1:])
    elif verb and not verb.startswith("-"):
        raise UsageError(_unknown(verb))
    elif VERBS.keys() & set(words):
        raise UsageError(f"options follow the verb, as in `delaylog list reminders {verb} …`")
    return make_parser(verb, as_json=as_json).parse_args(words)


def _unknown(verb: str) -> str:
    from delaylog.broker.cli.meant import verb_meant

    near = verb_meant(verb, VERBS)
    meant = f"did you mean {near}? " if near else ""
    return f"there is no verb {verb!r}: {meant}`delaylog --help` lists them"


def _run(args: argparse.Namespace) -> int:
    verb = VERBS[args.verb]
    if not verb.calls:
        # SIGTERM ends a long verb as Ctrl-C does, so that it cleans up. `serve` sets a handler of
        # its own.
        signal.signal(signal.SIGTERM, _interrupt)
    status: int | Coroutine[Any, Any, int] = verb.function("command")(args)
    if not isinstance(status, Coroutine):
        return status
    import asyncio

    return asyncio.run(status)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a handler's form)
    raise KeyboardInterrupt
