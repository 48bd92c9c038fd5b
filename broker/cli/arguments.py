"""Parts of the command line that many verbs share: members of calls, how to reach a broker.

An option of a member of a call has the name and the help of the table of calls.
"""

from __future__ import annotations

import argparse
from typing import Any, Literal

import shtab

from delaylog.storage.messages.members import Choice, Flag, Int, Member, TextList


def add_options(parser: Any, *members: Member[Any]) -> None:
    """The options of some members of calls, with the names and help of the table."""
    for member in members:
        add_option(parser, member)


def add_option(parser: Any, member: Member[Any], *flags: str, **own: Any) -> None:
    """The option of a member of a call; `own` overrides keyword arguments for argparse."""
    words: dict[str, Any] = {"dest": member.name, "help": member.doc}
    if isinstance(member, Flag):
        words["action"] = "store_true"
    elif isinstance(member, Choice):
        words["choices"] = member.words
    elif isinstance(member, TextList):
        words |= {"action": "append", "metavar": member.name.upper().removesuffix("S")}
    elif isinstance(member, Int):
        words |= {"type": int, "metavar": "MS" if " ms" in member.doc else "N"}
    else:
        words["metavar"] = member.name.upper()
    parser.add_argument(*(flags or (f"--{member.name.replace('_', '-')}",)), **words | own)


def add_json(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=text)


def add_verb(
    verbs: Any, name: str, doc: str, *, topic: Literal[1, "?", None] = 1
) -> argparse.ArgumentParser:
    """A verb that calls a running broker. `topic`: 1 = required, "?" = optional, None = none."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=doc)
    if topic is not None:
        parser.add_argument("topic", nargs=None if topic == 1 else topic)
    add_connection(parser)
    add_json(parser, "print JSON lines")
    return parser


def add_connection(parser: argparse.ArgumentParser) -> None:
    """How to reach a broker. The names are those of the SDK's options."""
    parser.add_argument(
        "--url", default="http://127.0.0.1:8711", help="the broker (default %(default)s)"
    )
    parser.add_argument(
        "--token",
        type=_minus,
        metavar="-",
        help="-: the first line of standard input is the token (variable DELAYLOG_TOKEN)",
    )
    for flag, what in (
        ("--token-file", "file of mode 0600 with the token"),
        (
            "--ca-file",
            "PEM file with the authorities that may have signed the broker's certificate",
        ),
        ("--client-cert", "PEM file with this client's certificate"),
        (
            "--client-key",
            "PEM file of mode 0600 with its key, unless the certificate's file has it",
        ),
    ):
        variable = f"DELAYLOG_{flag.removeprefix('--').replace('-', '_').upper()}"
        complete_files(
            parser.add_argument(flag, metavar="FILE", help=f"{what} (variable {variable})")
        )
    parser.add_argument(
        "--insecure-plain-token",
        action="store_true",
        help="send the token over plain http beyond this machine, readable by everybody on the way",
    )


def _minus(text: str) -> str:
    """Refuse a token on the command line, without showing it once more."""
    if text != "-":
        raise argparse.ArgumentTypeError(
            "takes only -, because every user of this machine sees the arguments of a command: use "
            "--token-file or DELAYLOG_TOKEN"
        )
    return text


def complete_files(argument: argparse.Action) -> None:
    """Let shells complete it with files."""
    argument.complete = shtab.FILE  # type: ignore[attr-defined]


def complete_folders(argument: argparse.Action) -> None:
    """Let shells complete it with folders."""
    argument.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
