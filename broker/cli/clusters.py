"""`delaylog cluster`: shows the leader and the members, hands over leadership, changes members."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from random import SystemRandom
from typing import Any, Final

from delaylog.broker.cli.doctor.of_cluster import doctor_command
from delaylog.broker.cli.failing import DONE, WRONG
from delaylog.broker.cli.local import locked_folder
from delaylog.broker.cli.remote import client_of, emit, given
from delaylog.broker.cluster.config import ClusterConfig, load_cluster
from delaylog.broker.cluster.members.recovering import Survivor, look_at_survivor, recover_alone
from delaylog.client import AsyncPlainClient
from delaylog.client.errors import Conflict
from delaylog.storage.calls.shapes import MEMBERS_CONTACT
from delaylog.storage.files.os_file_system import OsFileSystem

CHANGES: Final = ("add", "promote", "remove", "replace", "move")
_LOOK_SECONDS: Final = 0.5


async def cluster_command(args: argparse.Namespace) -> int:
    """`delaylog cluster status`, `members`, `doctor`, `handover`, and the changes of members."""
    if args.action == "doctor":
        return await doctor_command(args)
    async with client_of(args) as client:
        if args.action in CHANGES:
            _print_change(await _change(client, args), args)
        elif args.action == "handover":
            _print_handover(await client.hand_over(args.to), args)
        elif args.action == "members":
            _print_members(await client.leading(), args)
        else:
            _print_status(await client.cluster(), args)
    return DONE


def recover_command(args: argparse.Namespace) -> int:
    """`delaylog cluster recover`: 0 when the node can go on alone, 1 when nothing was changed."""
    config = load_cluster(args.cluster, node=args.node)
    fs, random = OsFileSystem(), SystemRandom()
    with locked_folder(args.data_dir):
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
    told = datetime.fromtimestamp(found.told_ms / 1000, UTC).isoformat(timespec="milliseconds")
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


async def _change(client: AsyncPlainClient, args: argparse.Namespace) -> dict[str, Any]:
    contact = given(args, *MEMBERS_CONTACT)
    answer = await client.change_members(args.action, args.nodes, **contact)
    if args.action != "add" or args.learner:
        return answer
    print(
        f"node {args.nodes[0]} is a learner now: add it to the cluster files of all nodes, remove "
        "--new-cluster from their start commands, and start the new node with an empty data "
        "folder; it votes once it has caught up",
        file=sys.stderr,
    )
    end = time.monotonic() + args.wait_s
    while True:
        try:
            return await client.change_members("promote", args.nodes)
        except Conflict:
            # It has not caught up, or another change is under way.
            if time.monotonic() >= end:
                raise
            await asyncio.sleep(_LOOK_SECONDS)


def _print_change(answer: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        emit(answer)
        return
    print(f"voters    {', '.join(answer['voters'])}")
    print(f"learners  {', '.join(answer['learners']) or '-'}")
    if answer["advice"]:
        print(answer["advice"])


def _print_status(status: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        emit(status)
        return
    epoch, leader, gate_ms = status["epoch"], status["leader"], status["gate_age_ms"]
    lines = {
        "cluster": status["cluster"],
        "node": _named(status),
        "role": status["role"],
        "epoch": "-" if epoch is None else f"{epoch['counter']} of node {epoch['node']}",
        "leader": "nobody" if leader is None else f"{_named(leader)} {leader['http']}",
        **{name: status[name] for name in ("log_end", "durable", "commit", "applied")},
        "gate_age": "-" if gate_ms is None else f"{gate_ms} ms",
    }
    for name, value in lines.items():
        print(f"{name:<10}{value}")
    _print_table(status)


def _print_members(status: dict[str, Any], args: argparse.Namespace) -> None:
    if not args.json:
        _print_table(status)
        return
    leader = status["leader"]
    for member in status["members"]:
        emit({**member, "leads": leader is not None and leader["node"] == member["node"]})


def _print_table(status: dict[str, Any]) -> None:
    leader = status["leader"]
    print(f"{'member':<24}{'connected':<11}{'voter':<7}{'lag_bytes':>12}  {'fit':<6}http")
    for member in status["members"]:
        leads = " *" if leader is not None and leader["node"] == member["node"] else ""
        lag = member["lag_bytes"]
        print(
            f"{_named(member) + leads:<24}{_yes(member['connected']):<11}"
            f"{_yes(member['voter']):<7}{'?' if lag is None else lag:>12}  "
            f"{member.get('unfit') or _yes(member.get('fit')):<6}{member['http']}"
        )


def _print_handover(answer: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        emit(answer)
    else:
        print(f"{_named(answer)} leads now; the pause was {answer['pause_ms']} ms")


def _named(member: dict[str, Any]) -> str:
    return f"{member['node']} ({member['name']})"


def _yes(known: bool | None) -> str:
    return "?" if known is None else "yes" if known else "no"
