"""The words of the `delaylog` command: verbs, arguments, and what shells may complete them with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import shtab

from delaylog import __version__
from delaylog.broker.cli.failing import JsonParser
from delaylog.broker.config import OPTIONS
from delaylog.broker.drills.kinds import DRILLS
from delaylog.storage.members import Choice, TextMap
from delaylog.storage.message_fields import BACKOFF, FIELDS, TAGS, Field

SHELLS: Final = ("bash", "zsh", "fish")


def make_parser(*, as_json: bool = False) -> argparse.ArgumentParser:
    """The whole command line; `as_json` is the form of its complaints."""
    kind = JsonParser if as_json else argparse.ArgumentParser
    parser = kind(prog="delaylog", description="A disk-backed delay log broker.")
    parser.add_argument("--version", action="version", version=f"delaylog {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_serve(verbs)
    _add_messages(verbs)
    _add_topics(verbs)
    _add_cluster(verbs)
    _add_folders(verbs)
    _add_drill(verbs)
    _add_spark(verbs)
    completion = verbs.add_parser(
        "completion", help="a script that completes words of this command"
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell it is for")
    return parser


def _add_serve(verbs: Any) -> None:
    serve = verbs.add_parser("serve", help="run a broker")
    serve.add_argument(
        "--new-cluster",
        action="store_true",
        help="the cluster has never run: nodes with blank folders begin as voters",
    )
    _file(serve.add_argument("--config", metavar="FILE", help="TOML file"))
    for option in OPTIONS:
        default = f"default {option.default}; " if option.default else ""
        argument = serve.add_argument(
            f"--{option.name}",
            dest=option.key,
            metavar="VALUE",
            help=f"{option.help} ({default}variable {option.variable})",
        )
        if option.name == "data-dir":
            _folder(argument)


def _add_messages(verbs: Any) -> None:
    """Verbs that talk to a running broker."""
    send = verbs.add_parser("send", help="send one message, or one per line of standard input")
    _add_remote(send)
    send.add_argument("body", nargs="?", help="the body; '-' or nothing reads lines")
    when = send.add_mutually_exclusive_group()
    when.add_argument("--delay-ms", type=int, metavar="MS", help="due so long from now")
    when.add_argument("--at-ms", type=int, metavar="MS", help="due at this Unix time")
    for field in FIELDS:
        _add_field(send, field)

    receive = verbs.add_parser("receive", help="receive messages and print them")
    _add_remote(receive)
    receive.add_argument("--max", type=int, default=1, help="messages a call (default 1)")
    receive.add_argument(
        "--wait-ms", type=int, default=0, metavar="MS", help="wait for one so long"
    )
    receive.add_argument("--lease-ms", type=int, metavar="MS")
    _add_group(receive)
    receive.add_argument("--tag", action="append", help="only with this tag; may be given again")
    receive.add_argument("--all-tags", action="store_true", help="with all the tags, not any")
    receive.add_argument("--no-ack", action="store_true", help="leave them under lease")
    receive.add_argument("--follow", action="store_true", help="go on until interrupted")

    listing = verbs.add_parser("list", help="messages in due order, by state, time, tag or key")
    _add_remote(listing)
    listing.add_argument(
        "--state", metavar="STATE,…", help="waiting, ready, leased, acked, expired, dead, deleted"
    )
    listing.add_argument("--due-from-ms", type=int, metavar="MS", help="due then or later")
    listing.add_argument("--due-to-ms", type=int, metavar="MS", help="due before then")
    listing.add_argument("--tag", help="with this tag")
    listing.add_argument("--key", help="with this ordering key")
    _add_group(listing)
    listing.add_argument("--bodies", action="store_true", help="with bodies (with --json)")
    listing.add_argument(
        "--max", type=int, default=100, metavar="N", help="at most so many; 0: all (default 100)"
    )

    show = verbs.add_parser("show", help="all that is known of a message")
    _add_remote(show)
    show.add_argument("id")
    _add_group(show)
    show.add_argument("--life", action="store_true", help="with what happened to it")

    stats = verbs.add_parser("stats", help="counts of a topic, or of all topics")
    stats.add_argument("topic", nargs="?")
    _add_url(stats)
    _add_group(stats)

    topics = verbs.add_parser("topics", help="the topics and their settings")
    _add_url(topics)

    clock = verbs.add_parser("clock", help="the broker's clock; accept that it was set back")
    clock.add_argument("--accept", action="store_true", help="wall time is right: go back to it")
    _add_url(clock)

    cancel = verbs.add_parser("cancel", help="cancel messages, by id or by filter")
    _add_chosen(cancel, ("waiting", "ready", "leased", "dead"))
    cancel.add_argument(
        "--force", action="store_true", help="also while a consumer has it, and dead letters"
    )

    reschedule = verbs.add_parser(
        "reschedule", help="give messages another time, by id or by filter"
    )
    _add_chosen(reschedule, ("waiting", "ready", "leased"))
    _add_time(reschedule.add_mutually_exclusive_group(required=True))

    replay = verbs.add_parser("replay", help="let dead messages live again, by id or by filter")
    _add_chosen(replay, ("dead",))
    _add_time(replay.add_mutually_exclusive_group())


def _add_field(send: argparse.ArgumentParser, field: Field) -> None:
    """The option of a message's field; what it holds goes through `message_fields.from_text`."""
    member, flag = field.member, f"--{field.name.replace('_', '-')}"
    if member is TAGS:
        said = "a tag; may be given again"
        send.add_argument("--tag", action="append", dest=field.name, help=said)
    elif isinstance(member, Choice):
        send.add_argument(flag, choices=member.words, help=member.doc)
    elif member is BACKOFF:
        said = f"{member.doc} A number of ms before the first retry, or a JSON object."
        send.add_argument(flag, "--backoff-ms", dest=field.name, metavar="MS|JSON", help=said)
    else:
        metavar = "JSON" if isinstance(member, TextMap) else field.name.upper()
        send.add_argument(flag, metavar=metavar, help=member.doc)


def _add_topics(verbs: Any) -> None:
    """Verbs about a topic as a whole."""
    groups = verbs.add_parser("groups", help="a topic's groups of consumers")
    actions = groups.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_remote(actions.add_parser("list", help="the groups and their counts"))
    make = actions.add_parser("make", help="make a group: it sees what is sent from now on")
    _add_remote(make)
    make.add_argument("group", help="its name")
    make.add_argument(
        "--ephemeral", action="store_true", help="it goes when nobody has asked for a while"
    )
    drop = actions.add_parser("drop", help="drop a group; what waited for it alone has ended")
    _add_remote(drop)
    drop.add_argument("group", help="its name")

    purge = verbs.add_parser("purge", help="end what waits or is ready, in one group or in all")
    _add_remote(purge)
    purge.add_argument("--group", metavar="NAME", help="only there (default: in every group)")
    purge.add_argument("--force", action="store_true", help="also what is under lease")
    purge.add_argument(
        "--erase",
        action="store_true",
        help="by force, and every byte of the messages leaves the data folders",
    )
    _add_remote(verbs.add_parser("pause", help="hand nothing out; sends and settles go on"))
    _add_remote(verbs.add_parser("resume", help="hand out again"))


def _add_cluster(verbs: Any) -> None:
    """Verbs about a running cluster."""
    cluster = verbs.add_parser("cluster", help="who leads, how far the others are, hand over")
    actions = cluster.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_url(actions.add_parser("status", help="what the node that is asked knows"))
    _add_url(actions.add_parser("members", help="the nodes, as the leader sees them"))
    _add_url(actions.add_parser("doctor", help="ask every node, and say what is wrong"))
    add = actions.add_parser("add", help="let a node join; it votes once it has caught up")
    add.add_argument("nodes", nargs=1, metavar="INDEX", help="of the new node")
    add.add_argument("--learner", action="store_true", help="it does not vote until it is promoted")
    add.add_argument(
        "--wait-s", type=float, default=600, metavar="S", help="for it to catch up (default: 600)"
    )
    _add_contact(add, needed=True)
    promote = actions.add_parser("promote", help="let learners that have caught up vote")
    promote.add_argument("nodes", nargs="+", metavar="NODE", help="index or name")
    _add_url(promote)
    remove = actions.add_parser("remove", help="take nodes out of the cluster for good")
    remove.add_argument("nodes", nargs="+", metavar="NODE", help="index or name")
    _add_url(remove)
    change = actions.add_parser("replace", help="let a learner vote in the place of a voter")
    change.add_argument("nodes", nargs=2, metavar="NODE", help="the old one, then the new one")
    _add_url(change)
    move = actions.add_parser("move", help="have a node reached at other addresses")
    move.add_argument("nodes", nargs=1, metavar="NODE", help="index or name")
    _add_contact(move, needed=False)
    recover = actions.add_parser(
        "recover", help="go on with one node after most of the voters were lost for ever"
    )
    _folder(recover.add_argument("--data-dir", required=True, metavar="DIR", help="the node's"))
    _folder(recover.add_argument("--cluster", required=True, metavar="FILE", help="cluster file"))
    recover.add_argument(
        "--node", metavar="INDEX", help="which member it is, if the file does not say"
    )
    recover.add_argument(
        "--accept-loss", action="store_true", help="do it; without, only say what would be lost"
    )
    _add_json(recover, "report as JSON")
    handover = actions.add_parser("handover", help="have another node lead")
    handover.add_argument("--to", metavar="NODE", help="its index or name (default: the fittest)")
    _add_url(handover)


def _add_contact(parser: argparse.ArgumentParser, *, needed: bool) -> None:
    """Where a node of a cluster is reached: the keys of a cluster file."""
    parser.add_argument("--peer", required=needed, metavar="HOST:PORT", help="by the other nodes")
    parser.add_argument("--http", required=needed, metavar="HOST:PORT", help="by HTTP clients")
    parser.add_argument("--resp", metavar="HOST:PORT", help="by Redis clients")
    parser.add_argument("--name", help="for people")
    parser.add_argument("--election-port", type=int, metavar="PORT", help="UDP, if not the peer's")
    _add_url(parser)


def _add_spark(verbs: Any) -> None:
    """Jobs that have words of their own."""
    spark = verbs.add_parser(
        "spark",
        add_help=False,
        help="jobs on Apache Spark: backfill, audit, archive (needs delaylog[spark])",
    )
    spark.add_argument("words", nargs=argparse.REMAINDER, metavar="JOB …", help="and its words")


def _add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", metavar="NAME", help="as this group (default: the default one)")


def _add_time(new: Any) -> None:
    new.add_argument("--delay-ms", type=int, metavar="MS", help="due so long from now; 0 = now")
    new.add_argument("--at-ms", type=int, metavar="MS", help="due at this Unix time")


def _add_chosen(parser: argparse.ArgumentParser, states: tuple[str, ...]) -> None:
    """Which messages: ids, or a filter, which makes a job."""
    _add_remote(parser)
    parser.add_argument("id", nargs="*", help="ids; none: a filter, or --all")
    parser.add_argument("--all", action="store_true", help="every message that can be changed")
    parser.add_argument("--state", choices=states, help="only those in this state")
    parser.add_argument("--tag", help="only those with this tag")
    parser.add_argument("--key", help="only those with this ordering key")
    parser.add_argument("--due-from", type=int, metavar="MS", help="due at this Unix time or later")
    parser.add_argument("--due-to", type=int, metavar="MS", help="due before this Unix time")
    parser.add_argument("--rate", type=int, metavar="N", help="at most so many messages a second")
    parser.add_argument("--no-wait", action="store_true", help="begin the job and leave")


def _add_folders(verbs: Any) -> None:
    """Verbs that read files by themselves."""
    check = verbs.add_parser("check", help="check recorded histories against the promises")
    _file(check.add_argument("history", nargs="+", type=Path, help="JSON-lines files"))
    _add_json(check, "report as JSON")
    check.add_argument("--bound-ms", type=int, default=5_000, metavar="MS")
    check.add_argument("--rules", default="", help="letters, for example A,B,C (default all)")

    verify = verbs.add_parser(
        "verify", help="read a data folder whole (no broker may serve it) and name what is damaged"
    )
    _folder(verify.add_argument("data_dir", metavar="DIR"))
    _add_json(verify, "report as JSON")

    dump = verbs.add_parser("dump", help="one file of a data folder as JSON lines")
    _file(dump.add_argument("file", metavar="FILE", type=Path))
    _add_json(dump, "no change: it prints JSON lines anyway")

    backup = verbs.add_parser("backup", help="copy a data folder, also one that is being served")
    _folder(backup.add_argument("data_dir", metavar="DATA_DIR", help="the data folder"))
    _folder(backup.add_argument("dest", metavar="DEST", help="the new folder for the backup"))
    _add_json(backup, "report as JSON")

    restore = verbs.add_parser("restore", help="make a data folder of a backup")
    _folder(restore.add_argument("backup", metavar="BACKUP", help="the backup's folder"))
    _folder(restore.add_argument("data_dir", metavar="DATA_DIR", help="absent, or an empty folder"))
    _add_json(restore, "report as JSON")


def _add_drill(verbs: Any) -> None:
    drill = verbs.add_parser(
        "drill", help="try the fail-over of a cluster: three nodes on this machine, and faults"
    )
    says = "; ".join(f"{name}: {text}" for name, text in DRILLS.items())
    drill.add_argument("name", choices=tuple(DRILLS), metavar="NAME", help=says)
    drill.add_argument("--rounds", type=int, default=10, metavar="N", help="(default 10)")
    drill.add_argument("--seed", type=int, metavar="S", help="of the load and the pauses")
    keep = "work in this folder and leave it there (default: a temporary one, left if it fails)"
    _folder(drill.add_argument("--keep", metavar="DIR", help=keep))
    _add_json(drill, "report as JSON")


def _add_json(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--json", action="store_true", help=text)


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", default="http://127.0.0.1:8711", help="the broker (default %(default)s)"
    )
    _add_json(parser, "print JSON lines")


def _add_remote(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    _add_url(parser)


def _file(argument: argparse.Action) -> None:
    """Let shells complete it with files."""
    argument.complete = shtab.FILE  # type: ignore[attr-defined]


def _folder(argument: argparse.Action) -> None:
    """Let shells complete it with folders."""
    argument.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
