"""`delaylog completion`: a script for bash, zsh or fish, generated from the parser.

The scripts ask the broker for names of topics, groups and schedules, by `completion --names KIND`
with the line that is typed in DELAYLOG_LINE. It answers within two seconds, or with nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from delaylog.broker.cli.failures import UsageError
from delaylog.broker.cli.parser import add_examples, make_parser

SHELLS: Final = ("bash", "zsh", "fish")
NAMES_S: Final = 2.0
"""Time limit of a question to the broker: somebody has pressed Tab."""
_KINDS: Final = {"topic": "topics", "group": "groups", "schedule": "schedules", "zone": "zones"}
"""What arguments of these names complete with."""
_OF_TOPIC: Final = {
    "groups": ("listGroups", "group"),
    "schedules": ("listSchedules", "schedule"),
}
"""Calls that list names of a topic."""
_WITH_ACTIONS: Final = frozenset({"groups", "target", "schedule", "claims"})
"""Verbs whose topic is behind an action."""


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog completion`."""
    parser.add_argument(
        "shell", nargs="?", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}"
    )
    parser.add_argument("--names", choices=[*_KINDS.values()], help=argparse.SUPPRESS)
    add_examples(parser, "completion bash > ~/.local/share/bash-completion/completions/delaylog")


def completion_command(args: argparse.Namespace) -> int:
    """Print the script."""
    if args.names is not None:
        with suppress(Exception):
            print("\n".join(_names(args.names, os.environ.get("DELAYLOG_LINE", ""))))
        return 0
    if args.shell is None:
        raise UsageError(f"give a SHELL, one of {', '.join(SHELLS)}")
    import shtab

    parser = make_parser()
    kinds = {name: getattr(shtab, name) for name in ("FILE", "DIRECTORY")}
    _mark(parser, kinds | {name: _asks(kind) for name, kind in _KINDS.items()})
    sys.stdout.write(shtab.complete(parser, shell=args.shell).rstrip("\n") + "\n")
    return 0


def _mark(parser: argparse.ArgumentParser, kinds: dict[str, object]) -> None:
    """Give shtab's marks to the arguments that complete with files, folders or names, and show it
    the verbs, which the help lists elsewhere.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None
            for each in action.choices.values():
                _mark(each, kinds)
        elif kind := kinds.get(getattr(action, "completes", action.dest)):
            action.complete = kind  # type: ignore[attr-defined]


def _asks(kind: str) -> dict[str, Any]:
    """How each shell asks for names."""
    function, ask = f"_delaylog_{kind}", f"delaylog completion --names {kind} 2>/dev/null"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"(env DELAYLOG_LINE=(commandline -cp) {ask})",
        "preamble": {
            "bash": f"""{function}() {{
  compgen -W "$(DELAYLOG_LINE=$COMP_LINE {ask})" -- "$1"
}}""",
            "zsh": f"""{function}() {{
  compadd -- $(DELAYLOG_LINE=$BUFFER {ask})
}}""",
        },
    }


def _names(kind: str, line: str) -> list[str]:
    """The names that may stand at the end of a line."""
    if kind == "zones":
        from zoneinfo import available_timezones

        return sorted(available_timezones())
    # Loaded before the time limit begins. A script needs neither.
    import asyncio

    from delaylog.broker.cli import connection
    from delaylog.broker.cli.arguments import add_broker

    # The last word may be incomplete, also in its quotes.
    before, _, begun = line.rpartition(" ")
    words = shlex.split(before)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_broker(parser, topic=None)
    args, others = parser.parse_known_args(words)
    if args.token == "-":
        return []
    place = [each for each in others if not each.startswith("-")][1:]
    asked = _ask(connection.call, args, kind, place, begun)
    return asyncio.run(asyncio.wait_for(asked, NAMES_S))


async def _ask(
    call: Callable[..., Awaitable[dict[str, Any]]],
    args: argparse.Namespace,
    kind: str,
    place: list[str],
    begun: str,
) -> list[str]:
    """`place`: the verb, perhaps an action, and the words behind; `begun`: what is typed."""
    args.verb, args.json = "completion", True
    if kind == "topics":
        answer = await call(args, "listTopics", prefix=begun)
        return [each["topic"] for each in answer["topics"]]
    from delaylog.contract.calls.shapes import LIST_MAX

    name, member = _OF_TOPIC[kind]
    # One page has to do while somebody waits.
    page = {"limit": LIST_MAX} if kind == "schedules" else {}
    answer = await call(args, name, place[2 if place[0] in _WITH_ACTIONS else 1], **page)
    return [each[member] for each in answer[kind]]
