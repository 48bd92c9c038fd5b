"""`delaylog completion`: a script for bash, zsh or fish, generated from the parser."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from delaylog.broker.cli.parser import add_examples, make_parser

SHELLS: Final = ("bash", "zsh", "fish")


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog completion`."""
    parser.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}"
    )
    add_examples(parser, "completion bash > ~/.local/share/bash-completion/completions/delaylog")


def completion_command(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    parser = make_parser()
    _mark(parser, {name: getattr(shtab, name) for name in ("FILE", "DIRECTORY")})
    sys.stdout.write(shtab.complete(parser, shell=args.shell).rstrip("\n") + "\n")
    return 0


def _mark(parser: argparse.ArgumentParser, kinds: dict[str, object]) -> None:
    """Give shtab's marks to the arguments that complete with files or folders, and show it the
    verbs, which the help lists elsewhere.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None
            for each in action.choices.values():
                _mark(each, kinds)
        elif kind := getattr(action, "completes", None):
            action.complete = kinds[kind]  # type: ignore[attr-defined]
