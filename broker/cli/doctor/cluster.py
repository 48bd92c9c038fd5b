"""`delaylog cluster doctor`: asks every member of a cluster for its status and reports problems.

One node lists the members; each is then asked at the address that clients use. The checks are pure
functions of the answers. A check yields findings; without findings it passes. Members of the status
that a node of an older release does not send are skipped.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delaylog.broker.cli.connection import ANSWER_S, route_of, waiting
from delaylog.broker.cli.doctor.findings import (
    GATE_MS_MAX,
    LAG_BYTES_WARN,
    Checks,
    Finding,
    Found,
    Mark,
    print_report,
    run_checks,
)
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import json_call
from delaylog.client.calls.topics import cluster
from delaylog.client.errors import AnswerLost, ApiError, ClientError, NotReached
from delaylog.client.wire.credentials import CredentialsError
from delaylog.client.wire.leader_route import LeaderRoute

# --------------------------------------------------------------------------------------- checks

REPLACED_WARN: Final = 10
"""Connections of one node that newer ones replaced: a network failure replaces only a few."""
_BLANK: Final = ("learner", "joining")
_STRANGE: Final = ("wrong_key", "other_cluster", "wrong_node", "version", "stale_folder")


@dataclass(frozen=True, slots=True)
class Asked:
    """One member as the first node lists it, and its answers."""

    node: int
    name: str
    url: str
    status: dict[str, Any] | None = None
    """The answer to GET /v1/cluster; None = it did not answer."""
    error: str = ""
    """Why it did not answer."""
    unready: str = ""
    """The reason that /readyz gave, if its status was 503."""
    ready: dict[str, Any] = field(default_factory=dict)
    """The answer of /readyz otherwise."""

    @property
    def named(self) -> str:
        """Its number and name, for people."""
        return _name({"node": self.node, "name": self.name})

    def get(self, name: str, default: Any = None) -> Any:
        """A member of its status, or `default` if it did not answer or does not send it."""
        return default if self.status is None else self.status.get(name, default)


def examine(asked: Sequence[Asked]) -> list[Finding]:
    """The findings of all checks, in the order in which an operator should read them.

    `asked` = all members as one node lists them.
    """
    return run_checks(CHECKS, asked)


def _name(member: dict[str, Any]) -> str:
    return f"node {member['node']} ({member['name']})"


def _answered(asked: Sequence[Asked]) -> list[Asked]:
    return [each for each in asked if each.status is not None]


def _members(asked: Sequence[Asked]) -> Found:
    clusters = {each.get("cluster") for each in _answered(asked)}
    for each in asked:
        if each.status is None:
            yield (
                Mark.FAIL,
                f"{each.named} does not answer at {each.url}: {each.error}",
                "start it, or correct its `http` in the cluster file",
            )
        elif each.status["node"] != each.node:
            yield (
                Mark.FAIL,
                f"{each.url} is the `http` of {each.named}, and node {each.status['node']} answers",
                "correct `http` in the cluster file: clients are redirected to the wrong node",
            )
    if len(clusters) > 1:
        names = ", ".join(sorted(map(str, clusters)))
        yield Mark.FAIL, f"the members belong to different clusters: {names}", "correct `http`"
    ids = {each.get("cluster_id") for each in _answered(asked)} - {None}
    if len(ids) > 1:
        text = f"the members have data of {len(ids)} different clusters of this name"
        yield Mark.FAIL, text, "find the folder of the other cluster, and move it away"


def _ready(asked: Sequence[Asked]) -> Found:
    for each in asked:
        if each.unready:
            yield Mark.FAIL, f"{each.named} is not ready: {each.unready}", "see the checks below"
        elif each.ready.get("status") == "held":
            text = f"{each.named} is held: it delivers, pushes and fires nothing"
            yield Mark.WARN, text, "`delaylog resume --dry-run` says why"


def _leader(asked: Sequence[Asked]) -> Found:
    seen = {
        each.named: each.get("leader") and each.get("leader")["node"] for each in _answered(asked)
    }
    leaders = {leader for leader in seen.values() if leader is not None}
    again = "run the doctor again: an election takes less than a second"
    for each in _answered(asked):
        age_ms = each.get("gate_age_ms")
        shut = age_ms is not None and age_ms > GATE_MS_MAX
        cut = not each.get("majority", True) and not each.get("missing_voters")
        if each.get("role") == "leader" and (shut or cut):
            lasts = "" if age_ms is None else f" for {age_ms / 1000:.1f} s"
            text = f"{each.named} leads, but no majority has acknowledged its rounds{lasts}"
            yield Mark.FAIL, text, "look at TCP and the MTU between the nodes, and at their disks"
    if not leaders:
        away = [each.named for each in asked if each.status is None]
        if away:
            text = f"no leader: {_and(away)} {'do' if away[1:] else 'does'} not answer"
            yield Mark.FAIL, text, "start enough of them: a majority of the voters elects a leader"
        elif all(each.get("role") in _BLANK for each in asked):
            yield Mark.FAIL, "no leader, and no member that could vote", "see the check `learners`"
            return
        else:
            yield Mark.FAIL, "no leader, though all members answer", again
        for each in _answered(asked):
            yield Mark.FAIL, _view(each), "this is what it sees by itself; its log says more"
        return
    if len(leaders) > 1:
        says = ", ".join(f"{named} says node {leader}" for named, leader in seen.items())
        yield Mark.FAIL, f"the members disagree about who leads: {says}", again
    for named, leader in seen.items():
        if leader is None:
            yield Mark.FAIL, f"{named} knows no leader", "look at its network and its log"


def _view(each: Asked) -> str:
    """What a member without a leader sees."""
    members: list[dict[str, Any]] = each.get("members", [])
    others = [one for one in members if one["node"] != each.node]
    there = _and([_name(one) for one in others if one.get("connected")])
    role = each.get("role")
    parts = [f"{each.named} has the role {role} and is connected to {there or 'no other member'}"]
    epoch = each.get("epoch")
    if epoch is not None:
        parts.append(f"its newest epoch is {epoch['counter']} of node {epoch['node']}")
    parts += [
        f"it is unfit to lead ({one['unfit']})"
        for one in members
        if one["node"] == each.node and one.get("unfit")
    ]
    parts += [
        f"it last heard {_name(one)} {one['silent_ms'] / 1_000:,.1f} s ago"
        for one in others
        if not one.get("connected") and one.get("silent_ms") is not None
    ]
    return "; ".join([*parts, *filter(None, [each.get("not_ready")])])


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _configuration(asked: Sequence[Asked]) -> Found:
    there = _answered(asked)
    if not there:
        return
    versions = {each.named: each.get("version") for each in there}
    if len(set(versions.values())) > 1:
        says = ", ".join(f"{named} has {version}" for named, version in versions.items())
        yield (
            Mark.WARN,
            f"the members know different configurations: {says}",
            "run the doctor again; a member that stays behind does not get the log",
        )
    first, fix = there[0], "see which of the two nodes is behind, or has a different cluster file"
    mine = _listed(first)
    for other in there[1:]:
        theirs = _listed(other)
        for node in sorted(mine.keys() ^ theirs.keys()):
            has, lacks = (first, other) if node in mine else (other, first)
            yield Mark.FAIL, f"{has.named} has a member {node}, and {lacks.named} has none", fix
        for node in sorted(mine.keys() & theirs.keys()):
            for key, value in mine[node].items():
                if theirs[node][key] != value:
                    text = (
                        f"`{key}` of node {node} is {value} as {first.named} knows it, and "
                        f"{theirs[node][key]} as {other.named} does"
                    )
                    yield Mark.FAIL, text, fix


def _listed(each: Asked) -> dict[int, dict[str, Any]]:
    keys = ("name", "peer", "http")
    return {m["node"]: {key: m.get(key) for key in keys} for m in each.get("members", ())}


def _voters(asked: Sequence[Asked]) -> Found:
    for each in _answered(asked):
        missing = ", ".join(each.get("missing_voters", ()))
        if missing and each.get("role") != "joining":
            if each.get("majority", True):
                text = f"{each.named} has no connection to the voters {missing}"
                yield Mark.WARN, text, "start them, or look at the network between the nodes"
            else:
                text = f"{each.named} sees no majority of the voters; missing: {missing}"
                yield Mark.FAIL, text, "start enough of them: nothing is acknowledged until then"


def _learners(asked: Sequence[Asked]) -> Found:
    there = _answered(asked)
    blank = [each for each in there if each.get("role") in _BLANK and not each.get("log_end")]
    if blank == there and (joined := [e.named for e in blank if e.get("role") == "learner"]):
        yield (
            Mark.FAIL,
            f"no member that answers has data, and {_and(joined)} started without --new-cluster",
            "if the cluster is new, stop its nodes, empty their data folders, and start each with "
            "--new-cluster; otherwise start the members that have the data",
        )
        return
    for each in there:
        role = each.get("role")
        if role == "joining":
            text = f"{each.named} has not joined: it waits for all other members"
            yield Mark.FAIL, text, "start the others; its /readyz names what it waits for"
        elif role == "removed":
            text = f"{each.named} was removed from the cluster"
            yield Mark.FAIL, text, "stop it; ask a member about the cluster"
        elif role == "quarantined":
            text = f"{each.named} holds acknowledged messages that the cluster has lost"
            yield Mark.FAIL, text, str(each.get("error"))
        elif role == "learner" and not each.get("log_end"):
            text = f"{each.named} is a learner and holds no data"
            yield Mark.FAIL, text, "it gets the data from a leader; see whether it can reach one"
        elif role == "learner":
            yield (
                Mark.WARN,
                f"{each.named} is a learner and does not vote",
                "wait until it has caught up; one that was added as a learner has to be promoted",
            )


def _lag(asked: Sequence[Asked]) -> Found:
    for each in _answered(asked):
        if each.get("copy_to") is not None:
            text = f"{each.named} sends a copy of its data to node {each.get('copy_to')}"
            yield Mark.WARN, text, "wait until the copy is complete"
        if each.get("role") != "leader":
            continue
        for member in each.get("members", ()):
            lag, named = member["lag_bytes"], _name(member)
            if lag is None:
                text = f"the leader has not heard how far {named} is"
                yield Mark.WARN, text, "start it, or look at its log"
            elif lag > LAG_BYTES_WARN:
                text = f"{named} lacks {lag:,} bytes of the log"
                yield Mark.WARN, text, "look at its disk and its network"


def _clocks(asked: Sequence[Asked]) -> Found:
    ntp = "look at NTP there: see `Clocks of a cluster` in docs/CLUSTER_REPAIR.md"
    accused: set[int] = set()
    for each in _answered(asked):
        if each.get("clock_stands_aside"):
            accused.add(each.node)
            off = each.get("clock_offset_ms")
            by = "" if off is None else f" by {abs(off):,} ms {'ahead' if off > 0 else 'behind'}"
            text = f"the clock of {each.named} is off{by}: it does not stand for election"
            yield Mark.FAIL, text, ntp
    for each in _answered(asked):
        for member in each.get("members", ()):
            node, ahead = member["node"], member.get("clock_ahead_ms") or 0
            if not member.get("clock_off") or node in accused or node == each.node:
                continue
            accused.add(node)
            off = f"{abs(ahead):,} ms {'behind' if ahead < 0 else 'ahead of'}"
            text = f"the clock of {_name(member)} is {off} that of {each.named}"
            if each.get("clock_offset_ms") is None:
                text += "; with two nodes nobody can tell which one is wrong"
            yield Mark.WARN, text, ntp
    for each in asked:
        held_ms = each.ready.get("clock_held_ms", 0)
        if held_ms:
            text = f"the time of {each.named} stands still for {held_ms:,} ms"
            yield Mark.WARN, text, "its wall clock is behind the time it has given before; wait"


def _datagrams(asked: Sequence[Asked]) -> Found:
    for each in _answered(asked):
        rows = each.get("members", ())
        silent = [_name(row) for row in rows if row.get("datagrams_arrive") is False]
        if silent:
            port = next(row["election"] for row in rows if row["node"] == each.node)
            yield (
                Mark.WARN,
                f"no election datagrams come to UDP {port} of {each.named} from "
                f"{', '.join(silent)}; the nodes elect over their TCP connections instead",
                f"open UDP to {port} in the firewalls between the nodes",
            )


def _disks(asked: Sequence[Asked]) -> Found:
    for each in asked:
        if each.ready.get("disk_full"):
            text = f"{each.named} has too little disk space"
            yield Mark.FAIL, text, "free disk space: while it leads, sends are refused with 507"


def _releases(asked: Sequence[Asked]) -> Found:
    for key, what in (("release", "release"), ("feature_level", "feature level")):
        values = {each.named: each.get(key) for each in _answered(asked)}
        if len(set(values.values())) > 1:
            says = ", ".join(
                f"{named} {'does not say' if value is None else value}"
                for named, value in values.items()
            )
            advice = "complete the upgrade: run the newest release on all nodes"
            yield Mark.WARN, f"the members differ in their {what}: {says}", advice


def _addresses(asked: Sequence[Asked]) -> Found:
    said_before: set[str] = set()
    for each in _answered(asked):
        for member in each.get("members", ()):
            for key in ("http", "peer"):
                said = member.get(f"announced_{key}")
                if said is not None and said != member[key]:
                    text = (
                        f"{_name(member)} says that its `{key}` is {said}, "
                        f"and the cluster has {member[key]}"
                    )
                    if text not in said_before:
                        said_before.add(text)
                        advice = "correct its cluster file, or use `delaylog cluster move`"
                        yield Mark.FAIL, text, advice


def _tls(asked: Sequence[Asked]) -> Found:
    has = [each.named for each in _answered(asked) if each.get("peer_tls") is True]
    lacks = [each.named for each in _answered(asked) if each.get("peer_tls") is False]
    fix = "put the same [tls] into every cluster file, or into none"
    if has and lacks:
        text = f"TLS between nodes is on at {', '.join(has)} and off at {', '.join(lacks)}"
        yield Mark.FAIL, text, fix
        return
    for each in _answered(asked):
        count = each.get("connections_refused", {}).get("tls", 0)
        if count:
            text = f"{each.named} has refused {count:,} connections of nodes for their TLS"
            yield Mark.WARN, text, f"{fix}; look at the certificates and at its log"


def _certificates(asked: Sequence[Asked]) -> Found:
    for each in _answered(asked):
        for fault in each.get("certificate_faults", ()):
            mark = Mark.FAIL if fault["severity"] == "error" else Mark.WARN
            yield mark, f"{each.named}: {fault['text']}", fault["advice"]


def _connections(asked: Sequence[Asked]) -> Found:
    for each in _answered(asked):
        refused = each.get("connections_refused", {})
        strange = {reason: refused[reason] for reason in _STRANGE if refused.get(reason)}
        if strange:
            counts = ", ".join(f"{reason} {count:,}" for reason, count in strange.items())
            text = f"{each.named} has refused connections since its start: {counts}"
            yield (
                Mark.WARN,
                text,
                "compare the secrets of the nodes; its log has the reasons, and who connects",
            )
        replaced = refused.get("replaced", 0)
        if replaced > REPLACED_WARN:
            text = f"connections to {each.named} were replaced {replaced:,} times since its start"
            yield Mark.WARN, text, "see whether two processes run as the same node"


CHECKS: Final[Checks[Sequence[Asked]]] = (
    ("members", "all members answer at their addresses and are of one cluster", _members),
    ("ready", "the members that answer take calls", _ready),
    ("leader", "all members agree about the leader", _leader),
    (
        "configuration",
        "the members that answer have the same members and addresses",
        _configuration,
    ),
    ("voters", "the voters that answer are connected with each other", _voters),
    ("learners", "the members that answer vote", _learners),
    ("datagrams", "election datagrams arrive wherever raftos is used", _datagrams),
    ("lag", "no leader reports a member that is far behind", _lag),
    ("clocks", "the clocks that were compared agree", _clocks),
    ("disk", "the members that answer have disk space", _disks),
    ("releases", "the members that answer run the same release", _releases),
    ("addresses", "no member announces an address that the others do not have", _addresses),
    ("tls", "the members that answer agree about TLS", _tls),
    ("certificates", "no member that answers reports a fault of a certificate", _certificates),
    ("connections", "no foreign nodes connect, and few connections were replaced", _connections),
)


# ------------------------------------------------------------------------------------ gathering


async def doctor_command(args: argparse.Namespace) -> int:
    """`delaylog cluster doctor`: 0, or 1 if a check fails. A warning is no failure."""
    route, _ = route_of(args)
    transport = AsyncTransport(route, timeout_s=ANSWER_S)
    with waiting(args):
        try:
            named = await _listed_by(transport, route)
        finally:
            await transport.close()
        asked = await asyncio.gather(*(_ask(route, member) for member in named["members"]))
    report = examine(asked)
    return print_report(report, as_json=args.json, cluster=named["cluster"])


async def _listed_by(transport: AsyncTransport, route: LeaderRoute) -> dict[str, Any]:
    """The answer of the first node that answers, of those that the caller named."""
    for _ in range(route.known - 1):
        at = route.node
        try:
            return await transport.carry(cluster())
        except (NotReached, AnswerLost):
            route.next(at)
    return await transport.carry(cluster())


def _transport(route: LeaderRoute) -> AsyncTransport:
    # Each node answers for itself: no retries, and no other node is asked instead.
    return AsyncTransport(route, timeout_s=ANSWER_S, failover_s=0.0)


async def _ask(route: LeaderRoute, member: dict[str, Any]) -> Asked:
    node, name, url = member["node"], member["name"], member["http"]
    try:
        transport = _transport(route.only(url))
    except CredentialsError as error:
        return Asked(node, name, url, error=str(error))
    try:
        status = await transport.carry(cluster())
        try:
            ready = await transport.carry(json_call("GET", "/readyz"))
        except ApiError as error:
            return Asked(node, name, url, status, unready=error.detail)
        return Asked(node, name, url, status, ready=ready)
    except ClientError as error:
        return Asked(node, name, url, error=_why(error))
    finally:
        await transport.close()


def _why(error: ClientError) -> str:
    """The error's text without the call, since the line names the address already."""
    return str(error).rpartition(": ")[2] or str(error)
