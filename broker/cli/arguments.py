"""Arguments that many verbs share, and the options of the members of calls.

A member of a call has one option, with the same name, form and help at every verb that has it.
Durations and times are written with their units, so the option has no `-ms`.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Literal

from delaylog.broker.cli.parser import add_json, complete_files
from delaylog.broker.cli.values import is_time, parse_lifetime, parse_span, parse_time, value_text
from delaylog.broker.host.rows import Option
from delaylog.contract.members import (
    Choice,
    Flag,
    Int,
    Member,
    Nested,
    Number,
    OneOf,
    TextList,
    TextMap,
)

CONNECTION: Final = (
    Option("url", "http://127.0.0.1:8711", "the broker; commas separate the nodes of a cluster"),
    Option("token", "", "-: the first line of standard input is the token"),
    Option("token-file", "", "file of mode 0600 with the token"),
    Option("ca-file", "", "PEM file with the authorities that may have signed the certificate"),
    Option("client-cert", "", "PEM file with this client's certificate"),
    Option("client-key", "", "PEM file of mode 0600 with its key, if not in the same file"),
)
"""How verbs reach a broker."""
_METAVARS: Final = {"url": "URL", "token": "-"}
_FLAGS: Final = {
    "deliver_at_ms": "--at",
    "expires_at_ms": "--expires",
    "tags": "--tag",
    # --url is the broker's.
    "url": "--to",
    "wait_ms": "--wait",
}
"""Options that are not named as their member without its unit."""
_HELP: Final = {
    "deliver_at_ms": "due at this time; a past one means now",
    "delay_ms": "due this long from now; 0: now",
    "due_from": "due at this time or later",
    "due_to": "due before this time",
    "wait_ms": "how long to wait for a message",
    "lease_ms": "how long nobody else receives the message (default: as the topic says)",
    "ttl_ms": "how long after its due time a message expires, or never",
    "aging_ms": "in priority order: each such wait adds one to the priority; 0: never",
    "expires_at_ms": "when the new token expires: a time, or +90d",
    "tags": "a tag; may be given again",
    "id": "your own id, unique among living messages of the topic (default: the broker makes one)",
    "default_group": "whether the default group sees what is sent",
    "backoff": "the wait before a retry; absent members are those of the topic's backoff",
    "through_ms": "hours that end at or before this time",
}
"""Help of members whose documentation speaks of milliseconds or of a JSON member."""


def add_broker(
    parser: argparse.ArgumentParser, *, topic: Literal[1, "?", None] = 1, namespace: bool = True
) -> None:
    """The arguments of a verb that calls a broker. `topic`: required, optional or none."""
    if topic is not None:
        nargs = "?" if topic == "?" else None
        parser.add_argument("topic", nargs=nargs, type=name, metavar="TOPIC", help="the topic")
    group = parser.add_argument_group("how to reach the broker")
    parser.set_defaults(namespace="default")
    if namespace:
        group.add_argument(
            "--namespace",
            type=_namespace,
            default="default",
            metavar="NAME",
            help="namespace of the topics (default: default)",
        )
    for option in CONNECTION:
        default = f"; default {option.default}" if option.default else ""
        argument = group.add_argument(
            f"--{option.name}",
            metavar=_METAVARS.get(option.name, "FILE"),
            help=f"{option.help} (variable {option.variable}{default})",
        )
        if option.name == "token":
            argument.type = partial(minus, instead=": use --token-file or DELAYLOG_TOKEN")
        elif argument.metavar == "FILE":
            complete_files(argument)
    group.add_argument(
        "--insecure-plain-token",
        action="store_true",
        help="send the token over plain http beyond this machine, readable by everybody on the way",
    )
    add_json(parser)


def minus(text: str, instead: str = "") -> str:
    """Refuse a secret on the command line, without showing it once more."""
    if text != "-":
        raise argparse.ArgumentTypeError(
            "takes only - (standard input), because every user of this machine sees the arguments "
            f"of a command{instead}"
        )
    return text


# Forms of values. argparse prints their errors behind the name of the argument.


def name(text: str) -> str:
    """A name or an id."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty: give a name")
    return utf8(text)


def utf8(text: str) -> str:
    """A text without bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!a} is not UTF-8") from None
    return text


def _namespace(text: str) -> str:
    """The name of a namespace."""
    # Imported here, because `config` needs none of the client.
    from delaylog.client.wire.checks import check_namespace

    try:
        check_namespace(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def span(text: str) -> int:
    """A duration, in ms."""
    return _read(parse_span, text)


def lifetime(text: str) -> int:
    """A duration in ms, or -1 for `never`."""
    return _read(parse_lifetime, text)


def moment(text: str) -> int:
    """A time, in Unix ms."""
    return _read(lambda said: parse_time(said, time.time_ns() // 1_000_000), text)


def count(text: str) -> int:
    """A whole number that is not negative."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write 0, 1, 2, …")
    return int(text)


def number(text: str) -> int:
    """A whole number."""
    count(text.removeprefix("-"))
    return int(text)


def _read(parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# Options of members of calls


def add_options(parser: Any, *members: Member[Any]) -> None:
    """The options of some members of calls."""
    for member in members:
        add_option(parser, member)


def add_option(parser: Any, member: Member[Any], **own: Any) -> None:
    """The option of a member of a call; `own` overrides keyword arguments for argparse."""
    flag = flag_of(member.name)
    text = _HELP.get(member.name) or member.doc[:1].lower() + member.doc[1:].removesuffix(".")
    words = {"dest": member.name, "help": text.replace("%", "%%"), **_form(member)}
    parser.add_argument(flag, **words | own)


def flag_of(name: str) -> str:
    """The option of a member."""
    return _FLAGS.get(name) or f"--{name.removesuffix('_ms').replace('_', '-')}"


def in_options(text: str, members: Iterable[Member[Any]]) -> str:
    """A broker's refusal, with the options of a verb where it names members, and their units."""
    for member in members:
        name, flag = member.name, flag_of(member.name)
        if name.endswith("_ms"):
            for said, number in set(re.findall(rf"\b({name} (\d+))\b", text)):
                text = text.replace(said, f"{flag} {value_text(name, int(number))}")
        # Other names may be ordinary words: they are members where a refusal begins with them.
        anywhere = "_" in name or name in ("cron", "rrule")
        text = re.sub(rf"{'' if anywhere else '^'}\b{name}\b(?!\()", flag, text)
    return text


def _form(member: Member[Any]) -> dict[str, Any]:
    """How the option of a member is written."""
    if isinstance(member, Flag):
        return {"action": argparse.BooleanOptionalAction if member.default else "store_true"}
    if isinstance(member, Choice):
        return {"choices": member.words}
    if isinstance(member, TextList):
        metavar = member.name.upper().removesuffix("S")
        return {"action": "append", "type": utf8, "metavar": metavar}
    if is_time(member.name):
        return {"type": moment, "metavar": "TIME"}
    if member.name == "ttl_ms":
        return {"type": lifetime, "metavar": "DURATION"}
    if member.name.endswith("_ms"):
        return {"type": span, "metavar": "DURATION"}
    if isinstance(member, Nested):
        first, *_ = member.shape.members
        pairs = f"{first.name.removesuffix('_ms').upper()}|NAME=VALUE,…|JSON"
        return {"type": lambda text: members_of(member, text), "metavar": pairs}
    if isinstance(member, TextMap):
        return {"type": _object, "metavar": "JSON"}
    if isinstance(member, Number):
        return {"type": float, "metavar": "N"}
    if isinstance(member, (Int, OneOf)):
        return {"type": number, "metavar": "N"}
    return {"type": utf8, "metavar": member.name.upper()}


def members_of(member: Nested, text: str) -> dict[str, Any]:
    """The object that an option gives: `1s`, `first=1s,max=5m`, or JSON with the names of the API.

    A value alone is that of the first member.
    """
    if text.startswith(("{", "[")):
        return _object(text)
    inner = {each.name.removesuffix("_ms"): each for each in member.shape.members}
    first, *_ = inner
    found: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if not equals:
            key, value = first, pair
        if key not in inner:
            raise argparse.ArgumentTypeError(f"has no {key!r}; it has {', '.join(inner)}")
        found[inner[key].name] = _value(inner[key], value)
    return found


def _value(member: Member[Any], text: str) -> Any:
    if member.name.endswith("_ms"):
        return span(text)
    if not isinstance(member, Number):
        return number(text)
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{member.name} is a number, not {text!r}") from None


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('must be a JSON object, such as {"name": "value"}')
    return found
