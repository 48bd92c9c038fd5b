"""The parser of the command line, built from the table of verbs.

A start pays for the arguments of one verb only: the parser asks the module of the verb that runs,
and knows of the others their names and a line. Completion asks for all of them. The helpers here
need the standard library only, so that `delaylog --help` loads nothing else.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from typing import Any, Final

from delaylog import __version__
from delaylog.broker.cli.failures import JsonParser, LineParser
from delaylog.broker.cli.verbs import GROUPS, VERBS
from delaylog.broker.process.leaves import Verb
from delaylog.extras import is_missing

_WIDTH_MAX: Final = 100
_USAGE_MORE: Final = "`delaylog VERB --help` shows the arguments of a verb, with examples."


def make_parser(verb: str | None = None, *, as_json: bool = False) -> argparse.ArgumentParser:
    """The parser. `verb`: only this one gets its arguments; None: all do. `as_json`: it reports
    errors as JSON.
    """
    kind = JsonParser if as_json else LineParser
    parser = kind(
        prog="delaylog",
        description="A disk-backed delay log broker, and commands that call one.",
        epilog=_overview(),
        formatter_class=Lines,
    )
    parser.add_argument("--version", action="version", version=f"delaylog {__version__}")
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="VERB", help=argparse.SUPPRESS
    )
    for each in VERBS.values():
        if verb is None or each.name == verb:
            own = verbs.add_parser(
                each.name,
                help=each.help,
                description=_sentence(each.help),
                formatter_class=Lines,
                add_help=each.parses,
            )
            if each.parses:
                _add_arguments(own, each, needed=verb is not None)
        else:
            # Without arguments it is only a known word.
            verbs.add_parser(each.name)
    return parser


def _add_arguments(parser: argparse.ArgumentParser, verb: Verb, *, needed: bool) -> None:
    """The arguments of a verb. Unless they are needed, the verb stays without, where only the
    client is installed and it needs the broker.
    """
    try:
        verb.function("arguments")(parser)
    except ImportError as error:
        if needed or not is_missing(error):
            raise


class Lines(argparse.HelpFormatter):
    """Keeps the lines of a description or an epilog that has several, and a usage short."""

    def __init__(self, prog: str) -> None:
        columns = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
        super().__init__(prog, max_help_position=30, width=columns - 2)

    def _format_usage(
        self,
        usage: str | None,  # noqa: ARG002 (there is none)
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None,
    ) -> str:
        words = [each for each in actions if not each.option_strings]
        options = " [options]" if len(words) < len(list(actions)) else ""
        line = f"{self._prog}{options} {self._words(words)}".rstrip()
        return super()._format_usage(line, actions, groups, prefix)

    def _words(self, actions: Iterable[argparse.Action]) -> str:
        return " ".join(
            self._format_args(each, self._get_default_metavar_for_positional(each))
            for each in actions
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in text.splitlines())


def _overview() -> str:
    """The verbs by subject, a line each."""
    width = max(map(len, VERBS)) + 2
    lines = []
    for subject in GROUPS:
        lines.append(f"{subject}:")
        lines += [
            f"  {verb.name:<{width}}{verb.help}" for verb in VERBS.values() if verb.group == subject
        ]
        lines.append("")
    return "\n".join([*lines, _USAGE_MORE])


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """The place for the actions of a verb such as `groups`."""
    return parser.add_subparsers(dest="action", required=True, metavar="ACTION")


def add_action(actions: Any, name: str, help: str, *examples: str) -> argparse.ArgumentParser:
    """One action of a verb, with examples for its help."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help, description=_sentence(help), formatter_class=Lines
    )
    add_examples(parser, *examples)
    return parser


def add_examples(parser: argparse.ArgumentParser, *examples: str) -> None:
    """Examples at the end of the help; a test parses each."""
    parser.epilog = "\n".join(["examples:", *(f"  delaylog {each}" for each in examples)])


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON, one object a line; times in it are Unix milliseconds",
    )


def complete_files(argument: argparse.Action) -> None:
    """Let shells complete it with files."""
    argument.completes = "FILE"  # type: ignore[attr-defined]


def complete_folders(argument: argparse.Action) -> None:
    """Let shells complete it with folders."""
    argument.completes = "DIRECTORY"  # type: ignore[attr-defined]
