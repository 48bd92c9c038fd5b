"""The command line of `delaylog`: verbs, arguments, and hints for completion in shells."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from delaylog import __version__
from delaylog.broker.cli.arguments import (
    add_json,
    add_option,
    add_options,
    add_verb,
    complete_files,
    complete_folders,
)
from delaylog.broker.cli.failing import JsonParser
from delaylog.broker.drills.kinds import DRILLS
from delaylog.broker.host.settings.options import OPTIONS, Option
from delaylog.storage.calls import shapes
from delaylog.storage.calls.of_access import CALLS_PER_S, MESSAGES_PER_S
from delaylog.storage.messages.members import Choice, TextMap
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
    complete_files(serve.add_argument("--config", metavar="FILE", help="TOML file"))
    for option in OPTIONS:
        argument = _add_setting(serve, option)
        if option.name == "data-dir":
            complete_folders(argument)


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
    send = add_verb(verbs, "send", "send one message, or one per line of standard input")
    send.add_argument("body", nargs="?", help="the body; '-' or none: read lines")
    _add_time(send)
    for field in FIELDS:
        _add_field(send, field)

    receive = add_verb(verbs, "receive", "receive messages and print them")
    add_option(receive, shapes.MAX, default=1, help="messages a call (default 1)")
    add_option(receive, shapes.WAIT_MS, default=0)
    add_options(receive, shapes.LEASE_MS, shapes.GROUP)
    add_option(receive, shapes.WANTED_TAGS, "--tag", help="only with this tag; may be given again")
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

    listing = add_verb(verbs, "list", "list messages in due order, by state, time, tag or key")
    add_option(listing, shapes.STATE, metavar="STATE,…", help=", ".join(shapes.STATE.words))
    add_option(listing, shapes.LIST_DUE_FROM, "--due-from-ms")
    add_option(listing, shapes.LIST_DUE_TO, "--due-to-ms")
    add_options(listing, shapes.WITH_TAG, shapes.WITH_KEY, shapes.GROUP)
    add_option(listing, shapes.BODIES, help="with bodies (with --json)")
    listing.add_argument(
        "--max", type=int, default=100, metavar="N", help="most messages; 0: all (default 100)"
    )

    show = add_verb(verbs, "show", "show a message with all its members")
    show.add_argument("id")
    add_options(show, shapes.GROUP, shapes.LIFE)

    stats = add_verb(verbs, "stats", "show counts of a topic, or of all topics", topic="?")
    add_options(stats, shapes.GROUP)
    add_verb(verbs, "topics", "list the topics and their settings", topic=None)
    clock = add_verb(
        verbs, "clock", "show the broker's clock, or accept that it was set back", topic=None
    )
    add_options(clock, shapes.ACCEPT)
    again = "have the broker read its certificates and other configured files again"
    add_verb(verbs, "reload", again, topic=None)

    cancel = add_verb(verbs, "cancel", "cancel messages, by id or by filter")
    _add_chosen(cancel, ("waiting", "ready", "leased", "dead"))
    add_options(cancel, shapes.CANCEL_FORCE)
    reschedule = add_verb(verbs, "reschedule", "change due times of messages, by id or by filter")
    _add_chosen(reschedule, ("waiting", "ready", "leased"))
    _add_time(reschedule, required=True)
    replay = add_verb(verbs, "replay", "make dead messages deliverable again, by id or by filter")
    _add_chosen(replay, ("dead",))
    _add_time(replay)


def _add_field(send: argparse.ArgumentParser, field: Field) -> None:
    """The option of a message's field; `message_fields.from_text` converts its value."""
    member = field.member
    if member is TAGS:
        add_option(send, member, "--tag", help="a tag; may be given again")
    elif member is BACKOFF:
        said = f"{member.doc} A number of ms before the first retry, or a JSON object."
        add_option(send, member, "--backoff", "--backoff-ms", metavar="MS|JSON", help=said)
    elif isinstance(member, Choice):
        add_option(send, member)
    else:
        metavar = "JSON" if isinstance(member, TextMap) else field.name.upper()
        add_option(send, member, type=str, metavar=metavar)


def _add_topics(verbs: Any) -> None:
    """Verbs about a topic as a whole."""
    groups = verbs.add_parser("groups", help="list, make or drop a topic's consumer groups")
    actions = groups.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_verb(actions, "list", "list the groups and their counts")
    make = add_verb(actions, "make", "make a group: it gets messages sent from now on")
    make.add_argument("group", help="its name")
    add_options(make, shapes.EPHEMERAL)
    drop = add_verb(actions, "drop", "drop a group; messages that waited only for it end")
    drop.add_argument("group", help="its name")

    purge = add_verb(verbs, "purge", "end waiting and ready messages, in one group or in all")
    add_option(purge, shapes.GROUP, help="only in this group (default: in every group)")
    add_options(purge, shapes.PURGE_FORCE)
    erase = "as --force, and erase every byte of the messages from the data folders"
    add_option(purge, shapes.PURGE_ERASE, help=erase)
    add_verb(verbs, "pause", "stop deliveries of a topic; sends and settles go on")
    add_verb(verbs, "resume", "start deliveries of a topic again")


def _add_access(verbs: Any) -> None:
    """Verbs about who may do what."""
    init = verbs.add_parser("init", help="make the first administrator's token for a data folder")
    default = next(option.default for option in OPTIONS if option.name == "data-dir")
    data_dir = init.add_argument(
        "--data-dir", default=default, metavar="DIR", help="data folder (default %(default)s)"
    )
    complete_folders(data_dir)
    token = verbs.add_parser("token", help="create, list, rotate and revoke principals' tokens")
    actions = token.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = add_verb(
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
    add_options(create, MESSAGES_PER_S, CALLS_PER_S)
    rotate = add_verb(actions, "rotate", "print a new token for a principal", topic=None)
    rotate.add_argument("principal", metavar="NAME")
    rotate.add_argument(
        "--grace", metavar="SPAN", help="how long the previous token stays valid (default 1d)"
    )
    rotate.add_argument(
        "--finish", action="store_true", help="make no token, but end the previous one now"
    )
    for verb in (create, rotate):
        verb.add_argument("--expires", metavar="SPAN", help="lifetime of the token, such as 90d")
    revoke = add_verb(actions, "revoke", "revoke a principal with all its tokens", topic=None)
    revoke.add_argument("principal", metavar="NAME")
    add_verb(actions, "list", "list the principals, without their tokens", topic=None)
    actions.add_parser("generate", help="print a new token, for DELAYLOG_ADMIN_TOKEN")


def _add_cluster(verbs: Any) -> None:
    """Verbs about a running cluster."""
    cluster = verbs.add_parser("cluster", help="show a cluster, hand over, change members")
    actions = cluster.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_verb(actions, "status", "show the status of the node at --url", topic=None)
    add_verb(actions, "members", "list the nodes, as the leader sees them", topic=None)
    add_verb(actions, "doctor", "ask every node for its status, and report problems", topic=None)
    add = add_verb(actions, "add", "add a node; it votes once it has caught up", topic=None)
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
    promote = add_verb(actions, "promote", "make learners that have caught up voters", topic=None)
    promote.add_argument("nodes", nargs="+", metavar="NODE", help="index or name")
    remove = add_verb(actions, "remove", "remove nodes from the cluster permanently", topic=None)
    remove.add_argument("nodes", nargs="+", metavar="NODE", help="index or name")
    change = add_verb(actions, "replace", "make a learner a voter in place of another", topic=None)
    change.add_argument("nodes", nargs=2, metavar="NODE", help="the old one, then the new one")
    move = add_verb(actions, "move", "change the addresses of a node", topic=None)
    move.add_argument("nodes", nargs=1, metavar="NODE", help="index or name")
    _add_contact(move, needed=False)
    recover = actions.add_parser(
        "recover", help="continue with one node after the majority of the voters was lost"
    )
    data_dir = recover.add_argument(
        "--data-dir", required=True, metavar="DIR", help="the node's data folder"
    )
    complete_folders(data_dir)
    complete_folders(
        recover.add_argument("--cluster", required=True, metavar="FILE", help="cluster file")
    )
    recover.add_argument(
        "--node", metavar="INDEX", help="the node's index, if it is not in the file"
    )
    recover.add_argument(
        "--accept-loss",
        action="store_true",
        help="do it; without it, only report what would be lost",
    )
    add_json(recover, "report as JSON")
    handover = add_verb(actions, "handover", "hand leadership over to another node", topic=None)
    add_option(handover, shapes.TO, metavar="NODE")


def _add_contact(parser: argparse.ArgumentParser, *, needed: bool) -> None:
    """The addresses of a node: options named as the keys of a cluster file."""
    for member in shapes.MEMBERS_CONTACT:
        required = needed and member.name in ("peer", "http")
        add_option(parser, member, required=required)


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
    add_option(when, shapes.NEW_DELAY_MS)
    add_option(when, DELIVER_AT_MS, "--at-ms")


def _add_chosen(parser: argparse.ArgumentParser, states: tuple[str, ...]) -> None:
    """Which messages: ids, or a filter, which creates a job."""
    parser.add_argument("id", nargs="*", help="ids; without ids give a filter, or --all")
    parser.add_argument("--all", action="store_true", help="every message that can be changed")
    for member in shapes.FILTER.shape.members:
        own = {"choices": states} if member is shapes.FILTER_STATE else {}
        add_option(parser, member, **own)
    add_options(parser, shapes.RATE)
    parser.add_argument("--no-wait", action="store_true", help="begin the job, do not wait for it")


def _add_folders(verbs: Any) -> None:
    """Verbs that read files without a broker."""
    check = verbs.add_parser("check", help="check recorded histories against the promises")
    complete_files(check.add_argument("history", nargs="+", type=Path, help="JSON-lines files"))
    add_json(check, "report as JSON")
    bound = "most lateness that is allowed (default 5000)"
    check.add_argument("--bound-ms", type=int, default=5_000, metavar="MS", help=bound)
    check.add_argument("--rules", default="", help="letters, for example A,B,C (default all)")

    verify = verbs.add_parser(
        "verify", help="read a whole data folder (no broker may serve it) and report damage"
    )
    complete_folders(verify.add_argument("data_dir", metavar="DIR"))
    add_json(verify, "report as JSON")

    dump = verbs.add_parser("dump", help="print one file of a data folder as JSON lines")
    complete_files(dump.add_argument("file", metavar="FILE", type=Path))
    add_json(dump, "no effect: the output is always JSON lines")

    backup = verbs.add_parser("backup", help="copy a data folder; a broker may be serving it")
    complete_folders(backup.add_argument("data_dir", metavar="DATA_DIR", help="the data folder"))
    complete_folders(
        backup.add_argument("dest", metavar="DEST", help="the new folder for the backup")
    )
    add_json(backup, "report as JSON")

    restore = verbs.add_parser("restore", help="create a data folder from a backup")
    complete_folders(restore.add_argument("backup", metavar="BACKUP", help="the backup's folder"))
    complete_folders(
        restore.add_argument("data_dir", metavar="DATA_DIR", help="absent, or an empty folder")
    )
    add_json(restore, "report as JSON")


def _add_doctor(verbs: Any) -> None:
    """Verbs that say what a configuration lacks."""
    doctor = verbs.add_parser("doctor", help="say what a configuration lacks, without a broker")
    actions = doctor.add_subparsers(dest="action", required=True, metavar="WHAT")
    tls = actions.add_parser("tls", help="check certificates and keys of the options of serve")
    complete_files(tls.add_argument("--config", metavar="FILE", help="TOML file"))
    for option in OPTIONS:
        if option.name.startswith("tls-"):
            complete_files(_add_setting(tls, option))
    tls.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address at which clients call the broker; may be given again",
    )
    add_json(tls, "report as JSON")


def _add_drill(verbs: Any) -> None:
    drill = verbs.add_parser(
        "drill", help="test the failover of a cluster: three nodes on this machine, with faults"
    )
    says = "; ".join(f"{name}: {text}" for name, text in DRILLS.items())
    drill.add_argument("name", choices=tuple(DRILLS), metavar="NAME", help=says)
    drill.add_argument("--rounds", type=int, default=10, metavar="N", help="number (default 10)")
    drill.add_argument("--seed", type=int, metavar="S", help="seed of the load and the pauses")
    keep = "work in this folder and keep it (default: a temporary one, kept if the drill fails)"
    complete_folders(drill.add_argument("--keep", metavar="DIR", help=keep))
    add_json(drill, "report as JSON")
