"""Verbs that are one call of the table of calls each, and print its answer.

A row of `CALLED` names the call and what to print. Its arguments come from the table of calls: the
names in the path are words of the command line, in this order, and members of the query and the
body are options. `clock`, `hold` and `resume` have functions of their own.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_option, flag_of, in_options, minus, name
from delaylog.broker.cli.connection import call, given, interruptible, listed
from delaylog.broker.cli.failures import DONE, UsageError
from delaylog.broker.cli.output import emit, print_members, print_table, say
from delaylog.broker.cli.parser import add_action, add_actions, add_examples
from delaylog.broker.cli.values import is_time, plain_name, span_text, time_text, value_text
from delaylog.client.errors import BadRequest
from delaylog.contract.calls import shapes
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.table import BY_NAME
from delaylog.contract.members import Flag, Member, Shape

# ------------------------------------------------------------------------------------ the table

COUNTS: Final = shapes.STATE.words
_PURGED_GROUP: Final = "only in this group (default: in every group)"
_ERASE: Final = "as --force, and erase every byte of the messages from the data folders"


@dataclass(frozen=True, slots=True)
class Called:
    """One call as a verb, or as an action of one."""

    call: str
    help: str
    examples: tuple[str, ...]
    text: Callable[[Mapping[str, Any]], str] | None = None
    """Makes the line to print from the answer and the names in the path; None: all members."""
    rows: str = ""
    """The member of the answer that is a list; each item is printed as a row."""
    columns: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    """Columns that a narrow terminal leaves out first."""
    helps: tuple[tuple[str, str], ...] = ()
    """Help of options that differs from the documentation of their members."""
    readers: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    """Forms of options that differ from those of their members."""
    everywhere: str = ""
    """The call for all topics, which is made without a topic; its rows have their places."""

    @property
    def api(self) -> ApiCall:
        return BY_NAME[self.call]

    @property
    def place(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(re.findall(r"{(\w+)}", self.api.path))

    @property
    def members(self) -> tuple[Member[Any], ...]:
        """The members of the query and the body that are options."""
        takes = self.api.takes
        body = takes.shape.members if takes is not None and isinstance(takes.shape, Shape) else ()
        hidden = {*self.place, shapes.CURSOR.name, shapes.ACKS.name}
        return tuple(each for each in (*self.api.query, *body) if each.name not in hidden)


_LIMIT: Final = "limit"
_SECRETS: Final = "secrets"
# On the command line they would show in lists of processes.
_SECRETS_HELP: Final = (
    "read one or two secrets from standard input, one a line, the newest first (default: those "
    "there are, else the broker makes one)"
)
_DESTS: Final = {"url": "target_url"}
"""Where argparse stores options whose members are named as an option of every verb."""
_JOB: Final = ("job", "action", "topic", "state", "matched", "done", "too_late", "begun_ms")
_CLAIM: Final = ("claim", "group", "n", "state", "lease_until_ms")
_TRANSACTION: Final = ("transaction", "state", "rows", "parts", "bytes", "expires_at_ms")

CALLED: Final[dict[str, Called | dict[str, Called]]] = {
    "jobs": Called("listJobs", "", ("jobs", "jobs --json"), rows="jobs", columns=_JOB),
    "job": {
        "show": Called("getJob", "show the state and progress of a job", ("job show 4d2",)),
        "stop": Called("stopJob", "stop a job; its changes so far stay", ("job stop 4d2",)),
    },
    "groups": {
        "list": Called(
            "listGroups",
            "list the groups and their counts",
            ("groups list reminders",),
            rows="groups",
            columns=("group", *COUNTS, "ephemeral"),
        ),
        "show": Called("getGroup", "show a group", ("groups show reminders mail",)),
        "make": Called(
            "putGroup",
            "make a group: it gets messages sent from now on",
            ("groups make reminders mail",),
        ),
        "drop": Called(
            "deleteGroup",
            "drop a group; messages that waited only for it end",
            ("groups drop reminders mail",),
            text="{group} dropped".format_map,
        ),
    },
    "target": {
        "list": Called(
            "listTargets",
            "list the push targets of a topic's groups, or of all topics",
            ("target list reminders", "target list"),
            rows="targets",
            columns=("group", "state", "url", "reason", "failing_since_ms"),
            spare=("namespace",),
            everywhere="listAllTargets",
        ),
        "show": Called("getTarget", "show a push target", ("target show reminders mail",)),
        "set": Called(
            "putTarget",
            "push the messages of a group to a URL; prints the secret of a new target",
            ("target set reminders mail --to https://example.com/hook",),
        ),
        "change": Called(
            "updateTarget",
            "change, disable or enable a push target, or rotate its secret",
            (
                "target change reminders mail --push off",
                "target change reminders mail --rotate",
                "target change reminders mail --secrets -",
                "target change reminders mail --unset per-second",
            ),
        ),
        "drop": Called(
            "deleteTarget",
            "push nothing more; messages stay in the group",
            ("target drop reminders mail",),
            text="{group} pushes nothing more".format_map,
        ),
    },
    "purge": Called(
        "purge",
        "",
        ("purge reminders --group mail", "purge reminders --force"),
        text="{topic} purged {purged}".format_map,
        helps=(("group", _PURGED_GROUP), ("erase", _ERASE)),
    ),
    "pause": Called("pause", "", ("pause reminders",), text="{topic} paused".format_map),
    "claims": {
        "list": Called(
            "listClaims",
            "list the claims that have not ended",
            ("claims list reminders",),
            rows="claims",
            columns=_CLAIM,
        ),
        "show": Called(
            "getClaim", "show a claim, ended or not", ("claims show reminders batch-7",)
        ),
        "extend": Called(
            "extendClaim",
            "extend the lease of all messages of a claim",
            ("claims extend reminders batch-7 --lease 10m",),
        ),
        "ack": Called(
            "ackClaim", "acknowledge all messages of a claim", ("claims ack reminders batch-7",)
        ),
        "release": Called(
            "releaseClaim", "return all messages of a claim", ("claims release reminders batch-7",)
        ),
    },
    "reload": Called(
        "reload",
        "",
        ("reload",),
        text=lambda answer: f"read again: {', '.join(answer['reloaded']) or 'nothing'}",
    ),
    "transactions": {
        "list": Called(
            "listTransactions",
            "list open transactions, then those that ended, newest first",
            ("transactions list --limit 10",),
            rows="transactions",
            columns=_TRANSACTION,
        ),
        "show": Called("getTransaction", "show a transaction", ("transactions show load-7",)),
        "abort": Called(
            "abort", "discard all messages that it has staged", ("transactions abort load-7",)
        ),
    },
    "archive": {
        "show": Called(
            "getArchive", "show which ended hours wait for the archive", ("archive show",)
        ),
        "release": Called(
            "releaseArchive",
            "release ended hours that have been copied; the broker then deletes them",
            ("archive release --through 2026-12-01T00:00Z",),
        ),
    },
}


def arguments(verb: str, parser: argparse.ArgumentParser) -> None:
    """Arguments of a verb of `CALLED`."""
    found = CALLED[verb]
    if isinstance(found, Called):
        add_examples(parser, *found.examples)
        _add_call(parser, found)
    else:
        declare(parser, found)


def declare(parser: argparse.ArgumentParser, calls: Mapping[str, Called]) -> None:
    """Arguments of a verb whose actions are calls."""
    actions = add_actions(parser)
    for action, each in calls.items():
        _add_call(add_action(actions, action, each.help, *each.examples), each)


def _add_call(parser: argparse.ArgumentParser, called: Called) -> None:
    for each in called.place:
        some: dict[str, Any] = {"nargs": "?"} if called.everywhere else {}
        help_ = f"the {each} (default: all)" if called.everywhere else f"the {each}"
        parser.add_argument(each, type=name, metavar=each.upper(), help=help_, **some)
    add_broker(parser, topic=None, namespace="topic" in called.place)
    helps, readers = dict(called.helps), dict(called.readers)
    takes = called.api.takes
    shape = takes.shape if takes is not None else None
    required = shape.required if isinstance(shape, Shape) else ()
    for member in called.members:
        own: dict[str, Any] = {"help": helps[member.name]} if member.name in helps else {}
        if member.name == _LIMIT:
            own = {"help": "at most this many (default: all)"}
        if member.name in readers:
            own["type"] = readers[member.name]
        if member.name == _SECRETS:
            own = {"action": "store", "type": minus, "metavar": "-", "help": _SECRETS_HELP}
        if member.name in _DESTS:
            own["dest"] = _DESTS[member.name]
        if member.name in required:
            add_option(parser, member, required=True, **own)
        else:
            add_option(parser, member, **own)
    if called.api.method == "PATCH":
        parser.add_argument(
            "--unset",
            action="append",
            default=[],
            choices=sorted(_words_of(called)),
            metavar="OPTION",
            help="an option to set back to its default; may be given again",
        )


def _words_of(called: Called) -> dict[str, str]:
    """The members that can be taken back, by the words of their options."""
    members = (each for each in called.members if not isinstance(each, Flag))
    return {plain_name(each.name).replace("_", "-"): each.name for each in members}


def _read_secrets() -> list[str]:
    """The secrets on standard input, one a line."""
    with interruptible():
        return sys.stdin.read().split()


async def command(verb: str, args: argparse.Namespace) -> int:
    """Carry out a verb of `CALLED`."""
    found = CALLED[verb]
    return await carry_out(found if isinstance(found, Called) else found[args.action], args)


async def carry_out(called: Called, args: argparse.Namespace) -> int:
    """Make a call and print its answer."""
    place = {each: getattr(args, each) for each in called.place}
    members = given(args, *called.members)
    for each in called.members:
        if each.name in _DESTS:
            members[each.name] = getattr(args, _DESTS[each.name])
    members = {name: value for name, value in members.items() if value is not None}
    if members.get("erase"):
        members["force"] = True
    nulls = [_words_of(called)[each] for each in getattr(args, "unset", ())]
    changes = [each for each in members.values() if each is not False]
    if called.api.method == "PATCH" and not changes and not nulls:
        raise UsageError("there is nothing to change: give an option; --help lists them")
    if members.get(_SECRETS):
        members[_SECRETS] = _read_secrets()
    which, columns, rest = called.call, called.columns, ""
    if called.everywhere and args.topic is None:
        which, columns, place = called.everywhere, ("namespace", "topic", *columns), {}
        rest = "; give a topic to list all of its own"
    try:
        if any(each.name == _LIMIT for each in BY_NAME[which].query):
            found = await listed(args, which, called.rows, *place.values(), rest=rest, **members)
            answer: dict[str, Any] = {called.rows: found}
        else:
            answer = await call(args, which, *place.values(), nulls=nulls, **members)
    except BadRequest as error:
        if not args.json:
            said = in_options(error.detail, called.members)
            error.args = (f"{error.status} {error.code}: {said}",)
        raise
    if members.get("erase") and not args.json:
        print(
            "delaylog: the broker erases the bytes now; `delaylog topics` shows the state erasing "
            "until that is done",
            file=sys.stderr,
        )
    if called.rows:
        if "explain" in answer and not args.json:
            print(answer["explain"], file=sys.stderr)
        if answer.get("converted") and not args.json:
            print(as_options(answer["converted"]), file=sys.stderr)
        print_rows(args, answer[called.rows], columns, spare=called.spare)
    elif called.text is not None:
        say(args, place | answer, called.text(place | answer))
    elif args.json:
        emit(place | answer)
    else:
        print_members(place | answer)
    return DONE


def as_options(members: Mapping[str, Any]) -> str:
    """Members as options of the command line, to paste."""
    shown = []
    for member, value in members.items():
        text = str(value)
        if is_time(member):
            text = time_text(value)
        elif member.endswith("_ms"):
            text = f"{value}ms"
        shown.append(f"{flag_of(member)} {shlex.quote(text)}")
    return " ".join(shown)


def print_rows(
    args: argparse.Namespace,
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    *,
    spare: Sequence[str] = (),
) -> None:
    """Print items of an answer: JSON lines, or a table. A column may also name a count."""
    if args.json:
        for row in rows:
            emit(row)
        return
    if not rows and not sys.stdout.isatty():
        return
    flat = [row | row.get("counts", {}) for row in rows]
    numbers = [
        plain_name(each)
        for each in columns
        if not each.endswith("_ms") and any(type(row.get(each)) in (int, float) for row in flat)
    ]
    cells = [[value_text(each, row.get(each)) for each in columns] for row in flat]
    print_table([plain_name(each) for each in columns], cells, numbers=numbers, spare=spare)


def clock_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog clock`."""
    add_broker(parser, topic=None, namespace=False)
    add_option(parser, shapes.ACCEPT, help="accept the wall clock as correct and return to it")
    add_examples(parser, "clock", "clock --accept")


async def clock_command(args: argparse.Namespace) -> int:
    """`delaylog clock`."""
    if args.accept:
        shown = await call(args, "acceptClock", accept=True)
    else:
        shown = await call(args, "getClock")
    if args.json:
        emit(shown)
        return DONE
    if "accepted_ms" in shown:
        print(f"the broker's time changed by {span_text(shown['accepted_ms'])}")
    now, wall = (time_text(shown[each]) for each in ("now_ms", "wall_ms"))
    print(f"broker {now} wall {wall} held {span_text(shown['held_ms'])}")
    return DONE


# ------------------------------------------------------------------------------ hold and resume


def hold_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog hold`."""
    add_broker(parser, topic=None, namespace=False)
    add_option(parser, shapes.HOLD_NOTE)
    add_examples(parser, "hold", "hold --note 'a copy of production'")


async def hold_command(args: argparse.Namespace) -> int:
    """`delaylog hold`."""
    shown = await call(args, "putHold", **given(args, shapes.HOLD_NOTE))
    say(args, shown, _text(shown))
    return DONE


def resume_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog resume`."""
    add_broker(parser, topic=None)
    parser.add_argument(
        "topic",
        type=name,
        nargs="?",
        metavar="TOPIC",
        help="the topic, if `delaylog pause` has paused it; without it, a held broker is released",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only show what a release of the broker would set going",
    )
    add_examples(parser, "resume --dry-run", "resume", "resume reminders")


async def resume_command(args: argparse.Namespace) -> int:
    """`delaylog resume`."""
    if args.topic is not None:
        if args.dry_run:
            raise UsageError("--dry-run is for a held broker: leave out the topic")
        answer = {"topic": args.topic, **await call(args, "resume", args.topic)}
        say(args, answer, f"{args.topic} resumed")
        return DONE
    shown = await call(args, "getHold" if args.dry_run else "releaseHold")
    say(
        args,
        shown,
        f"released: {_counts(shown)}" if shown.get("result") == "done" else _text(shown),
    )
    return DONE


def _text(shown: Mapping[str, Any]) -> str:
    if not shown["held"]:
        return "the broker is not held"
    note = f" ({shown['note']})" if shown["note"] else ""
    return f"held since {time_text(shown['since_ms'])}{note}: {_counts(shown)}"


def _counts(shown: Mapping[str, Any]) -> str:
    least = "at least " if shown["partial"] else ""
    return (
        f"{shown['due']:,} messages are due, {shown['pushes']:,} of them for push targets; "
        f"{least}{shown['firings']:,} firings of schedules"
    )
