"""`delaylog cluster`: shows the leader and the members, hands over leadership, changes members."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import asdict
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from delaylog.broker.cli.arguments import add_broker, add_option, span
from delaylog.broker.cli.cluster_certs import add_certs, certs_command
from delaylog.broker.cli.connection import client_of, given, waiting
from delaylog.broker.cli.doctor.cluster import doctor_command
from delaylog.broker.cli.failures import DONE, WRONG
from delaylog.broker.cli.output import emit, print_table
from delaylog.broker.cli.parser import (
    add_action,
    add_actions,
    add_json,
    complete_files,
    complete_folders,
)
from delaylog.broker.cli.progress import Progress
from delaylog.broker.cli.values import span_text, time_text
from delaylog.client import AsyncPlainClient
from delaylog.client.errors import Conflict
from delaylog.contract.calls.table import MEMBERS_CONTACT, MEMBERS_FORCE, TO
from delaylog.storage.files.os_file_system import OsFileSystem

if TYPE_CHECKING:
    from delaylog.broker.cluster.config import ClusterConfig
    from delaylog.broker.cluster.members.recovery import Survivor

_LOOK_SECONDS: Final = 0.5
_CHANGES: Final[dict[str, tuple[str, int | str, str, str, tuple[str, ...]]]] = {
    "add": (
        "add a node; it votes once it has caught up",
        1,
        "INDEX",
        "index of the new node",
        ("cluster add 4 --name delta --peer 10.0.0.4:8712 --http 10.0.0.4:8711",),
    ),
    "promote": (
        "make learners that have caught up voters",
        "+",
        "NODE",
        "index or name",
        ("cluster promote delta",),
    ),
    "remove": (
        "remove nodes from the cluster permanently",
        "+",
        "NODE",
        "index or name",
        ("cluster remove beta",),
    ),
    "replace": (
        "make a learner a voter in place of another",
        2,
        "NODE",
        "the old one, then the new one",
        ("cluster replace gamma delta",),
    ),
    "move": (
        "change the addresses of a node",
        1,
        "NODE",
        "index or name",
        ("cluster move gamma --peer 10.0.0.9:8712 --http 10.0.0.9:8711",),
    ),
}
"""The changes of members: help, number and name of the nodes, their help, and examples."""


def cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog cluster`."""
    actions = add_actions(parser)
    for name, text, *examples in (
        ("status", "show the status of the node at --url", "cluster status"),
        ("members", "list the nodes, as the leader sees them", "cluster members --json"),
        ("doctor", "ask every node for its status, and report problems", "cluster doctor"),
    ):
        add_broker(add_action(actions, name, text, *examples), topic=None, namespace=False)
    for name, (text, number, metavar, which, shown) in _CHANGES.items():
        change = add_action(actions, name, text, *shown)
        change.add_argument("nodes", nargs=number, metavar=metavar, help=which)
        add_broker(change, topic=None, namespace=False)
        if name == "remove":
            add_option(change, MEMBERS_FORCE)
        if name in ("add", "move"):
            _add_contact(change, needed=name == "add")
        if name == "add":
            change.add_argument(
                "--learner", action="store_true", help="it does not vote until it is promoted"
            )
            change.add_argument(
                "--wait",
                type=span,
                default=600_000,
                metavar="DURATION",
                help="how long to wait until it has caught up (default 10m)",
            )
    handover = add_action(
        actions,
        "handover",
        "hand leadership over to another node",
        "cluster handover",
        "cluster handover --to gamma",
    )
    add_broker(handover, topic=None, namespace=False)
    add_option(handover, TO, metavar="NODE")
    _add_recover(actions)
    add_certs(actions)


def _add_contact(parser: argparse.ArgumentParser, *, needed: bool) -> None:
    """The addresses of a node: options named as the keys of a cluster file."""
    for member in MEMBERS_CONTACT:
        add_option(parser, member, required=needed and member.name in ("peer", "http"))


def _add_recover(actions: Any) -> None:
    recover = add_action(
        actions,
        "recover",
        "continue with one node after the majority of the voters was lost",
        "cluster recover /var/lib/delaylog --cluster cluster.toml --node 2",
    )
    complete_folders(
        recover.add_argument("data_dir", metavar="DATA_DIR", help="the node's data folder")
    )
    complete_files(
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
    add_json(recover)


async def cluster_command(args: argparse.Namespace) -> int:
    """`delaylog cluster status`, `members`, `doctor`, `handover`, and the changes of members."""
    if args.action == "recover":
        return _recover(args)
    if args.action == "certs":
        return certs_command(args)
    if args.action == "doctor":
        return await doctor_command(args)
    async with client_of(args) as client:
        with waiting(args) as progress:
            if args.action in _CHANGES:
                answer = await _change(client, args, progress)
            elif args.action == "handover":
                answer = await client.hand_over(args.to)
            elif args.action == "members":
                answer = await client.leading()
            else:
                answer = await client.cluster()
    if not args.json:
        _PRINT.get(args.action, _print_change)(answer)
    elif args.action == "members":
        _emit_members(answer)
    else:
        emit(answer)
    return DONE


def _recover(args: argparse.Namespace) -> int:
    """0 when the node can go on alone, 1 when nothing was changed."""
    # Of the server; all other actions call a broker and need only the client.
    from delaylog.broker.cli.folders import locked_folder
    from delaylog.broker.cluster.config import load_cluster
    from delaylog.broker.cluster.members.recovery import look_at_survivor, recover_alone

    config = load_cluster(args.cluster, node=args.node)
    fs, random = OsFileSystem(), SystemRandom()
    with locked_folder(args.data_dir), waiting(args):
        if args.accept_loss:
            now_ms = time.time_ns() // 1_000_000
            found = recover_alone(fs, args.data_dir, config, now_ms=now_ms, random=random)
        else:
            found = look_at_survivor(fs, args.data_dir, config, random.getrandbits(63) | 1)
    if args.json:
        emit({**asdict(found), "recovered": args.accept_loss})
    else:
        _print_survivor(found, config, done=args.accept_loss)
    return DONE if args.accept_loss else WRONG


def _print_survivor(found: Survivor, config: ClusterConfig, *, done: bool) -> None:
    lost = ", ".join(config.name_of(node) for node in found.lost) or "nobody"
    told = time_text(found.told_ms)
    counter, node = found.epoch
    print(
        f"node {config.me.name} has the log up to {found.end}, epoch {counter} of node {node}; "
        f"it was committed up to {found.committed}; the node last heard from its leader at {told}"
    )
    if done:
        print(
            f"it is now the only voter of a new cluster, which excludes {lost}: start it, then "
            "empty the folders of the other nodes and add them again with `delaylog cluster add`"
        )
        return
    print(
        f"the cluster was not changed. --accept-loss excludes {lost} for ever, and loses "
        "acknowledged messages that only these nodes have. Run this on each node that is left: "
        "go on with the node of the greatest epoch, and of several the one with the longest log"
    )


async def _change(
    client: AsyncPlainClient, args: argparse.Namespace, progress: Progress
) -> dict[str, Any]:
    contact = given(args, *MEMBERS_CONTACT, MEMBERS_FORCE)
    answer = await client.change_members(args.action, args.nodes, **contact)
    if args.action != "add" or args.learner:
        return answer
    print(
        f"node {args.nodes[0]} is a learner now: add it to the cluster files of all nodes, remove "
        "--new-cluster from their start commands, and start the new node with an empty data "
        "folder; it votes once it has caught up",
        file=sys.stderr,
    )
    began = time.monotonic()
    while True:
        try:
            return await client.change_members("promote", args.nodes)
        except Conflict as error:
            if error.field is not None:
                # It does not pass by itself, but somebody else may have promoted the node.
                status = await client.leading()
                if not _votes(status, args.nodes[0]):
                    raise
                return _as_changed(status)
            # It has not caught up, or another change is under way.
            if (time.monotonic() - began) * 1000 >= args.wait:
                raise
            progress(error.detail, 0)
            await asyncio.sleep(_LOOK_SECONDS)


def _votes(status: dict[str, Any], node: str) -> bool:
    return any(each["voter"] and str(each["node"]) == node for each in status["members"])


def _as_changed(status: dict[str, Any]) -> dict[str, Any]:
    """The members of a status in the form of the answer to a change."""
    there = [each for each in status["members"] if not each["removed"]]
    return {
        "version": status["version"],
        "voters": [each["name"] for each in there if each["voter"]],
        "learners": [each["name"] for each in there if not each["voter"]],
        "advice": None,
    }


def _print_change(answer: dict[str, Any]) -> None:
    print(f"voters    {', '.join(answer['voters'])}")
    print(f"learners  {', '.join(answer['learners']) or '-'}")
    if answer["advice"]:
        print(answer["advice"])


def _print_status(status: dict[str, Any]) -> None:
    epoch, leader, gate_ms = status["epoch"], status["leader"], status["gate_age_ms"]
    lines = {
        "cluster": status["cluster"],
        "node": _named(status),
        "role": status["role"],
        "epoch": "-" if epoch is None else f"{epoch['counter']} of node {epoch['node']}",
        "leader": "nobody" if leader is None else f"{_named(leader)} {leader['http']}",
        **{name: status[name] for name in ("log_end", "durable", "commit", "applied")},
        "gate_age": "-" if gate_ms is None else span_text(gate_ms),
        "majority": _yes(status.get("majority")),
        "ready": status.get("not_ready") or "yes",
    }
    for name, value in lines.items():
        print(f"{name:<10}{value}")
    _print_member_table(status)


def _emit_members(status: dict[str, Any]) -> None:
    leader = status["leader"]
    for member in status["members"]:
        emit({**member, "leads": leader is not None and leader["node"] == member["node"]})


def _print_member_table(status: dict[str, Any]) -> None:
    leader = status["leader"]
    rows = []
    for member in status["members"]:
        leads = " *" if leader is not None and leader["node"] == member["node"] else ""
        lag, silent_ms = member["lag_bytes"], member.get("silent_ms")
        rows.append(
            (
                _named(member) + leads,
                _yes(member["connected"]),
                "-" if silent_ms is None else f"{span_text(silent_ms)} ago",
                _yes(member["voter"]),
                "?" if lag is None else lag,
                member.get("unfit") or _yes(member.get("fit")),
                member["http"],
            )
        )
    columns = ("member", "connected", "heard", "voter", "lag_bytes", "fit", "http")
    print_table(columns, rows, numbers=("lag_bytes",))


def _print_handover(answer: dict[str, Any]) -> None:
    print(f"{_named(answer)} leads now; the pause was {span_text(answer['pause_ms'])}")


_PRINT: Final = {
    "status": _print_status,
    "members": _print_member_table,
    "handover": _print_handover,
}


def _named(member: dict[str, Any]) -> str:
    return f"{member['node']} ({member['name']})"


def _yes(known: bool | None) -> str:
    return "?" if known is None else "yes" if known else "no"
