"""The command line of `delaylog`: verbs, arguments, and hints for completion in shells."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final, Literal

import shtab

from delaylog import __version__
from delaylog.broker.cli.failing import JsonParser
from delaylog.broker.drills.kinds import DRILLS
from delaylog.broker.host.config import OPTIONS, Option
from delaylog.storage.calls import shapes
from delaylog.storage.calls.of_access import CALLS_PER_S, MESSAGES_PER_S
from delaylog.storage.messages.members import Choice, Flag, Int, Member, TextList, TextMap
from delaylog.storage.messages.message_fields import BACKOFF, DELIVER_AT_MS, FIELDS, TAGS, Field

SHELLS: Final = ("bash", "zsh", "fish")


def make_parser(*, as_json: bool = False) -> argparse.ArgumentParser:
    """The parser of the whole command line; `as_json`: it reports errors as JSON."""
    kind = JsonParser if as_json else argparse.ArgumentParser
    parser = kind(prog="delaylog", description="A disk-backed delay log broker.")
    parser.add_argument("--version", action="version", version=f"delaylog {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_serve(verbs)
    _add_messages(verbs)
    _add_topics(verbs)
    _add_access(verbs)
    _add_cluster(verbs)
    _add_folders(verbs)
    _add_doctor(verbs)
    _add_drill(verbs)
    _add_spark(verbs)
    completion = verbs.add_parser(
        "completion", help="print a script that completes this command in a shell"
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell to print a script for")
    return parser


def _add_serve(verbs: Any) -> None:
    serve = verbs.add_parser("serve", help="run a broker")
    serve.add_argument(
        "--new-cluster",
        action="store_true",
        help="the cluster has never run: nodes with empty data folders start as voters",
    )
    _file(serve.add_argument("--config", metavar="FILE", help="TOML file"))
    for option in OPTIONS:
        argument = _add_setting(serve, option)
        if option.name == "data-dir":
            _folder(argument)


def _add_setting(parser: argparse.ArgumentParser, option: Option) -> argparse.Action:
    """A flag of `serve`."""
    default = f"default {option.default}; " if option.default else ""
    return parser.add_argument(
        f"--{option.name}",
        dest=option.key,
        metavar="VALUE",
        help=f"{option.help} ({default}variable {option.variable})",
    )


def _add_messages(verbs: Any) -> None:
    """Verbs about messages of a running broker."""
    send = _verb(verbs, "send", "send one message, or one per line of standard input")
    send.add_argument("body", nargs="?", help="the body; '-' or none: read lines")
    _add_time(send)
    for field in FIELDS:
        _add_field(send, field)

    receive = _verb(verbs, "receive", "receive messages and print them")
    _option(receive, shapes.MAX, default=1, help="messages a call (default 1)")
    _option(receive, shapes.WAIT_MS, default=0)
    _options(receive, shapes.LEASE_MS, shapes.GROUP)
    _option(receive, shapes.WANTED_TAGS, "--tag", help="only with this tag; may be given again")
    receive.add_argument(
        "--all-tags",
        action="store_const",
        const="all",
        dest=shapes.TAGS_MODE.name,
        help="only with all of the tags, instead of any",
    )
    receive.add_argument(
        "--no-ack", action="store_true", help="leave the messages under lease, without an ack"
    )
    receive.add_argument("--follow", action="store_true", help="go on until interrupted")

    listing = _verb(verbs, "list", "list messages in due order, by state, time, tag or key")
    _option(listing, shapes.STATE, metavar="STATE,…", help=", ".join(shapes.STATE.words))
    _option(listing, shapes.LIST_DUE_FROM, "--due-from-ms")
    _option(listing, shapes.LIST_DUE_TO, "--due-to-ms")
    _options(listing, shapes.WITH_TAG, shapes.WITH_KEY, shapes.GROUP)
    _option(listing, shapes.BODIES, help="with bodies (with --json)")
    listing.add_argument(
        "--max", type=int, default=100, metavar="N", help="most messages; 0: all (default 100)"
    )

    show = _verb(verbs, "show", "show a message with all its members")
    show.add_argument("id")
    _options(show, shapes.GROUP, shapes.LIFE)

    stats = _verb(verbs, "stats", "show counts of a topic, or of all topics", topic="?")
    _options(stats, shapes.GROUP)
    _verb(verbs, "topics", "list the topics and their settings", topic=None)
    clock = _verb(
        verbs, "clock", "show the broker's clock, or accept that it was set back", topic=None
    )
    _options(clock, shapes.ACCEPT)
    again = "have the broker read its certificates and other configured files again"
    _verb(verbs, "reload", again, topic=None)

    cancel = _verb(verbs, "cancel", "cancel messages, by id or by filter")
    _add_chosen(cancel, ("waiting", "ready", "leased", "dead"))
    _options(cancel, shapes.CANCEL_FORCE)
    reschedule = _verb(verbs, "reschedule", "change due times of messages, by id or by filter")
    _add_chosen(reschedule, ("waiting", "ready", "leased"))
    _add_time(reschedule, required=True)
    replay = _verb(verbs, "replay", "make dead messages deliverable again, by id or by filter")
    _add_chosen(replay, ("dead",))
    _add_time(replay)


def _add_field(send: argparse.ArgumentParser, field: Field) -> None:
    """The option of a message's field; `message_fields.from_text` converts its value."""
    member = field.member
    if member is TAGS:
        _option(send, member, "--tag", help="a tag; may be given again")
    elif member is BACKOFF:
        said = f"{member.doc} A number of ms before the first retry, or a JSON object."
        _option(send, member, "--backoff", "--backoff-ms", metavar="MS|JSON", help=said)
    elif isinstance(member, Choice):
        _option(send, member)
    else:
        metavar = "JSON" if isinstance(member, TextMap) else field.name.upper()
        _option(send, member, type=str, metavar=metavar)


def _add_topics(verbs: Any) -> None:
    """Verbs about a topic as a whole."""
    groups = verbs.add_parser("groups", help="list, make or drop a topic's consumer groups")
    actions = groups.add_subparsers(dest="action", required=True, metavar="ACTION")
    _verb(actions, "list", "list the groups and their counts")
    make = _verb(actions, "make", "make a group: it gets messages sent from now on")
    make.add_argument("group", help="its name")
    _options(make, shapes.EPHEMERAL)
    drop = _verb(actions, "drop", "drop a group; messages that waited only for it end")
    drop.add_argument("group", help="its name")

    purge = _verb(verbs, "purge", "end waiting and ready messages, in one group or in all")
    _option(purge, shapes.GROUP, help="only in this group (default: in every group)")
    _options(purge, shapes.PURGE_FORCE)
    erase = "as --force, and erase every byte of the messages from the data folders"
    _option(purge, shapes.PURGE_ERASE, help=erase)
    _verb(verbs, "pause", "stop deliveries of a topic; sends and settles go on")
    _verb(verbs, "resume", "start deliveries of a topic again")


def _add_access(verbs: Any) -> None:
    """Verbs about who may do what."""
    init = verbs.add_parser("init", help="make the first administrator's token for a data folder")
    default = next(option.default for option in OPTIONS if option.name == "data-dir")
    data_dir = init.add_argument(
        "--data-dir", default=default, metavar="DIR", help="data folder (default %(default)s)"
    )
    _folder(data_dir)
    token = verbs.add_parser("token", help="create, list, rotate and revoke principals' tokens")
    actions = token.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = _verb(
        actions,
        "create",
        "create a principal and print its token, or change what an existing one may do",
        topic=None,
    )
    create.add_argument("principal", metavar="NAME")
    create.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="GRANT",
        help="RIGHTS[:[NAMESPACE/]TOPIC[:GROUP]], such as producer:orders.*; may be given again",
    )
    create.add_argument(
        "--redis",
        action="append",
        default=[],
        metavar="RULE",
        help="words of ACL SETUSER for Redis clients, such as '+@read ~jobs:*'",
    )
    create.add_argument(
        "--certificate",
        action="append",
        default=[],
        metavar="ID",
        help="identity in a client certificate that proves it, such as dns:worker.example",
    )
    _options(create, MESSAGES_PER_S, CALLS_PER_S)
    rotate = _verb(actions, "rotate", "print a new token for a principal", topic=None)
    rotate.add_argument("principal", metavar="NAME")
    rotate.add_argument(
        "--grace", metavar="SPAN", help="how long the previous token stays valid (default 1d)"
    )
    rotate.add_argument(
        "--finish", action="store_true", help="make no token, but end the previous one now"
    )
    for verb in (create, rotate):
        verb.add_argument("--expires", metavar="SPAN", help="when the new token ends, such as 90d")
    revoke = _verb(actions, "revoke", "revoke a principal with all its tokens", topic=None)
    revoke.add_argument("principal", metavar="NAME")
    _verb(actions, "list", "list the principals, without their tokens", topic=None)
    actions.add_parser("generate", help="print a new token, for DELAYLOG_ADMIN_TOKEN")


def _add_cluster(verbs: Any) -> None:
    """Verbs about a running cluster."""
    cluster = verbs.add_parser("cluster", help="show a cluster, hand over, change members")
    actions = cluster.add_subparsers(dest="action", required=True, metavar="ACTION")
    _verb(actions, "status", "show the status of the node at --url", topic=None)
    _verb(actions, "members", "list the nodes, as the leader sees them", topic=None)
    _verb(actions, "doctor", "ask every node for its status, and report problems", topic=None)
    add = _verb(actions, "add", "add a node; it votes once it has caught up", topic=None)
    add.add_argument("nodes", nargs=1, metavar="INDEX", help="index of the new node")
    add.add_argument("--learner", action="store_true", help="it does not vote until it is promoted")
    add.add_argument(
        "--wait-s",
        type=float,
        default=600,
        metavar="S",
        help="most seconds to wait until it has caught up (default: 600)",
    )
    _add_contact(add, needed=True)
    promote = _verb(actions, "promote", "make learners that have caught up voters", topic=None)
    promote.add_argument("nodes", nargs="+", metavar="NODE", help="index or name")
    remove = _verb(actions, "remove", "remove nodes from the cluster permanently", topic=None)
    remove.add_argument("nodes", nargs="+", metavar="NODE", help="index or name")
    change = _verb(actions, "replace", "make a learner a voter in place of another", topic=None)
    change.add_argument("nodes", nargs=2, metavar="NODE", help="the old one, then the new one")
    move = _verb(actions, "move", "change the addresses of a node", topic=None)
    move.add_argument("nodes", nargs=1, metavar="NODE", help="index or name")
    _add_contact(move, needed=False)
    recover = actions.add_parser(
        "recover", help="continue with one node after the majority of the voters was lost"
    )
    data_dir = recover.add_argument(
        "--data-dir", required=True, metavar="DIR", help="the node's data folder"
    )
    _folder(data_dir)
    _folder(recover.add_argument("--cluster", required=True, metavar="FILE", help="cluster file"))
    recover.add_argument(
        "--node", metavar="INDEX", help="the node's index, if it is not in the file"
    )
    recover.add_argument(
        "--accept-loss",
        action="store_true",
        help="do it; without it, only report what would be lost",
    )
    _add_json(recover, "report as JSON")
    handover = _verb(actions, "handover", "hand leadership over to another node", topic=None)
    _option(handover, shapes.TO, metavar="NODE")


def _add_contact(parser: argparse.ArgumentParser, *, needed: bool) -> None:
    """The addresses of a node: options named as the keys of a cluster file."""
    for member in shapes.MEMBERS_CONTACT:
        required = needed and member.name in ("peer", "http")
        _option(parser, member, required=required)


def _add_spark(verbs: Any) -> None:
    """Jobs that parse their own words."""
    spark = verbs.add_parser(
        "spark",
        add_help=False,
        help="jobs on Apache Spark: backfill, audit, archive (needs delaylog[spark])",
    )
    spark.add_argument("words", nargs=argparse.REMAINDER, metavar="JOB …", help="with its options")


def _add_time(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """When messages are due."""
    when = parser.add_mutually_exclusive_group(required=required)
    _option(when, shapes.NEW_DELAY_MS)
    _option(when, DELIVER_AT_MS, "--at-ms")


def _add_chosen(parser: argparse.ArgumentParser, states: tuple[str, ...]) -> None:
    """Which messages: ids, or a filter, which creates a job."""
    parser.add_argument("id", nargs="*", help="ids; without ids give a filter, or --all")
    parser.add_argument("--all", action="store_true", help="every message that can be changed")
    for member in shapes.FILTER.shape.members:
        own = {"choices": states} if member is shapes.FILTER_STATE else {}
        _option(parser, member, **own)
    _options(parser, shapes.RATE)
    parser.add_argument("--no-wait", action="store_true", help="begin the job, do not wait for it")


def _options(parser: Any, *members: Member[Any]) -> None:
    """The options of some members of calls, with the names and help of the table."""
    for member in members:
        _option(parser, member)


def _option(parser: Any, member: Member[Any], *flags: str, **own: Any) -> None:
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


def _add_folders(verbs: Any) -> None:
    """Verbs that read files without a broker."""
    check = verbs.add_parser("check", help="check recorded histories against the promises")
    _file(check.add_argument("history", nargs="+", type=Path, help="JSON-lines files"))
    _add_json(check, "report as JSON")
    bound = "most lateness that is allowed (default 5000)"
    check.add_argument("--bound-ms", type=int, default=5_000, metavar="MS", help=bound)
    check.add_argument("--rules", default="", help="letters, for example A,B,C (default all)")

    verify = verbs.add_parser(
        "verify", help="read a whole data folder (no broker may serve it) and report damage"
    )
    _folder(verify.add_argument("data_dir", metavar="DIR"))
    _add_json(verify, "report as JSON")

    dump = verbs.add_parser("dump", help="print one file of a data folder as JSON lines")
    _file(dump.add_argument("file", metavar="FILE", type=Path))
    _add_json(dump, "no effect: the output is always JSON lines")

    backup = verbs.add_parser("backup", help="copy a data folder; a broker may be serving it")
    _folder(backup.add_argument("data_dir", metavar="DATA_DIR", help="the data folder"))
    _folder(backup.add_argument("dest", metavar="DEST", help="the new folder for the backup"))
    _add_json(backup, "report as JSON")

    restore = verbs.add_parser("restore", help="create a data folder from a backup")
    _folder(restore.add_argument("backup", metavar="BACKUP", help="the backup's folder"))
    _folder(restore.add_argument("data_dir", metavar="DATA_DIR", help="absent, or an empty folder"))
    _add_json(restore, "report as JSON")


def _add_doctor(verbs: Any) -> None:
    """Verbs that say what a configuration lacks."""
    doctor = verbs.add_parser("doctor", help="say what a configuration lacks, without a broker")
    actions = doctor.add_subparsers(dest="action", required=True, metavar="WHAT")
    tls = actions.add_parser("tls", help="check certificates and keys of the options of serve")
    _file(tls.add_argument("--config", metavar="FILE", help="TOML file"))
    for option in OPTIONS:
        if option.name.startswith("tls-"):
            _file(_add_setting(tls, option))
    tls.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address at which clients call the broker; may be given again",
    )
    _add_json(tls, "report as JSON")


def _add_drill(verbs: Any) -> None:
    drill = verbs.add_parser(
        "drill", help="test the failover of a cluster: three nodes on this machine, with faults"
    )
    says = "; ".join(f"{name}: {text}" for name, text in DRILLS.items())
    drill.add_argument("name", choices=tuple(DRILLS), metavar="NAME", help=says)
    drill.add_argument("--rounds", type=int, default=10, metavar="N", help="number (default 10)")
    drill.add_argument("--seed", type=int, metavar="S", help="seed of the load and the pauses")
    keep = "work in this folder and keep it (default: a temporary one, kept if the drill fails)"
    _folder(drill.add_argument("--keep", metavar="DIR", help=keep))
    _add_json(drill, "report as JSON")


def _add_json(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=text)


def _verb(
    verbs: Any, name: str, doc: str, *, topic: Literal[1, "?", None] = 1
) -> argparse.ArgumentParser:
    """A verb that calls a running broker. `topic`: 1 = required, "?" = optional, None = none."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=doc)
    if topic is not None:
        parser.add_argument("topic", nargs=None if topic == 1 else topic)
    _add_connection(parser)
    _add_json(parser, "print JSON lines")
    return parser


def _add_connection(parser: argparse.ArgumentParser) -> None:
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
        _file(parser.add_argument(flag, metavar="FILE", help=f"{what} (variable {variable})"))
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


def _file(argument: argparse.Action) -> None:
    """Let shells complete it with files."""
    argument.complete = shtab.FILE  # type: ignore[attr-defined]


def _folder(argument: argparse.Action) -> None:
    """Let shells complete it with folders."""
    argument.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
