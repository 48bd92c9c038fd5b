"""`delaylog cluster`: who leads, how far the others are, and having another node lead."""

from __future__ import annotations

import argparse
from typing import Any

from delaylog.broker.cli.failing import DONE
from delaylog.broker.cli.remote import emit
from delaylog.client.plain_client import PlainClient


async def cluster_command(args: argparse.Namespace) -> int:
    """`delaylog cluster status`, `members` and `handover`."""
    async with PlainClient(args.url) as client:
        if args.action == "handover":
            _print_handover(await client.hand_over(args.to), args)
        elif args.action == "members":
            _print_members(await client.leading(), args)
        else:
            _print_status(await client.cluster(), args)
    return DONE


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
