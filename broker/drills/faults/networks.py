"""Faults of networks: nodes are cut off, TCP is cut, or its long segments disappear.

Each of the three nodes has a network namespace and is in two networks, one with its peers and one
with the drill's clients. So clients still reach a node that is cut off from its peers: only then
could it answer wrongly. A cut drops packets silently, like a broken switch; no connection is
closed. The drill itself runs inside a namespace (`own_network`), which disappears with it. It needs
the right to create namespaces, and `ip`.

Packet filters between the leader and its peers let UDP pass, and the packets of clients: the leader
looks healthy but cannot commit. Another node has to lead, and the end of the cut must not begin a
series of elections.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.node_watch import LEADS, LogMark
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.broker.drills.witness import Witness
from delaylog.client.child_broker import delaylog_program
from delaylog.replication.replica import Timing

# -------------------------------------------------------------------- three nodes in namespaces

_INSIDE: Final = "DELAYLOG_DRILL_NETWORK"
_CLIENTS, _PEERS = "clients", "peers"
_SUBNETS: Final = {_CLIENTS: "10.71.1", _PEERS: "10.71.2"}
_TIMEOUT_S: Final = 20.0
HELP: Final = (
    "The drills of the network create network namespaces and bridges between them. They need root, "
    "or a user for whom `unshare --user --map-root-user --net true` succeeds; in a container also "
    "CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged), and `ip` (package iproute2), "
    "`unshare` and `nsenter` (package util-linux), for cut-tcp and black-hole `nft` (nftables)."
)
_DEVICES: Final = {"input": "iifname", "output": "oifname"}
"""The chains of a packet filter, and how each names the network that a packet goes through."""


def own_network() -> None:
    """Replace this process by the same program in a new network namespace.

    Returns if it runs in one already. Raises DrillError if it cannot create one.
    """
    if os.environ.get(_INSIDE):
        return
    os.environ[_INSIDE] = "1"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--net", "--"]
    _run(*command, "true")
    os.execvp(command[0], [*command, sys.executable, *sys.orig_argv[1:]])


def own_filtered_network() -> None:
    """Like `own_network`, for drills that filter packets."""
    _run("nft", "--version")
    own_network()


class NetworkTrio(Trio):
    """Three nodes, each in a namespace."""

    def __init__(self, folder: Path) -> None:
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        _run("ip", "link", "set", "lo", "up")
        for network, subnet in _SUBNETS.items():
            _run("ip", "link", "add", network, "type", "bridge")
            _run("ip", "addr", "add", f"{subnet}.254/24", "dev", network)
            _run("ip", "link", "set", network, "up")
        for node in NODES:
            self._make_namespace(node)
        hosts = {
            node: (f"{_SUBNETS[_CLIENTS]}.{node}", f"{_SUBNETS[_PEERS]}.{node}") for node in NODES
        }
        super().__init__(folder, hosts=hosts, program=self._program)

    def _make_namespace(self, node: int) -> None:
        # The namespace lives as long as this child, which ends when the pipe to its input closes.
        holder = subprocess.Popen(
            ["unshare", "--net", "--", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._holders[node] = holder
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise DrillError(f"cannot create a network namespace for node {node}. {HELP}")
        inside = self._inside(node)
        _run(*inside, "ip", "link", "set", "lo", "up")
        for network, subnet in _SUBNETS.items():
            wire = ["ip", "link", "add", _wire(network, node), "type", "veth", "peer", "name"]
            _run(*wire, network, "netns", str(holder.pid))
            _run(*inside, "ip", "addr", "add", f"{subnet}.{node}/24", "dev", network)
            _run(*inside, "ip", "link", "set", network, "up")
            _run("ip", "link", "set", _wire(network, node), "master", network, "up")

    def _program(self, node: int) -> list[str]:
        return [*self._inside(node), *delaylog_program()]

    def _inside(self, node: int) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[node].pid}/ns/net", "--"]

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        for holder in self._holders.values():
            holder.communicate(timeout=_TIMEOUT_S)

    def cut(self, node: int) -> None:
        """Drop all packets between the node and its peers."""
        _run("ip", "link", "set", _wire(_PEERS, node), "nomaster")

    def heal(self, node: int) -> None:
        """Connect the node with its peers again."""
        _run("ip", "link", "set", _wire(_PEERS, node), "master", _PEERS)

    def filter(self, node: int, rules: Mapping[str, str]) -> None:
        """Apply a rule of nftables to packets from the node's peers or to them.

        The keys of `rules` are `input` and `output`. Packets from and to clients pass.
        """
        lines = ["add table inet drill"]
        for chain, rule in rules.items():
            hook = f"{{ type filter hook {chain} priority 0; }}"
            lines += [
                f"add chain inet drill {chain} {hook}",
                f"add rule inet drill {chain} {_DEVICES[chain]} {_PEERS} {rule}",
            ]
        _run(*self._inside(node), "nft", "\n".join(lines))

    def unfilter(self, node: int) -> None:
        """Let all packets pass again."""
        # Deleting a table that does not exist would fail.
        _run(*self._inside(node), "nft", "add table inet drill; delete table inet drill")


def _wire(network: str, node: int) -> str:
    return f"{network}-{node}"


def _run(*command: str) -> None:
    """Run a command. Raises DrillError if it is missing or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except FileNotFoundError:
        raise DrillError(f"`{command[0]}` is not installed. {HELP}") from None
    if done.returncode:
        raise DrillError(f"`{' '.join(command)}` failed: {done.stderr.strip()}. {HELP}")


# ----------------------------------------------------------------------------------- partitions

CUT_S: Final = 2.0
GATE_MS: Final = Timing().gate_ms
WITNESS_AFTER_MS: Final = 100
"""So long after the last acknowledged send the gate has closed: the leader that was cut off must
not deliver messages any more."""


async def partition(stage: Stage) -> None:
    """Cut off the leader and a follower, in turn."""
    trio = stage.trio
    assert isinstance(trio, NetworkTrio)
    if len(stage.rounds) % 2 == 0:
        await cut_leader(stage, "leader cut off", trio.cut, trio.heal, CUT_S)
    else:
        await cut_follower(stage, trio)


async def cut_leader(
    stage: Stage, what: str, cut: Callable[[int], None], heal: Callable[[int], None], cut_s: float
) -> None:
    """Cut off the leader for `cut_s`. Clients still reach it, but it must not serve them."""
    trio = stage.trio
    leader = await trio.leader()
    logs = LogMark(trio.nodes)
    fault_ms = wall_ms()
    cut(leader)
    after_ms = wall_ms()
    strike = Strike(what, leader, fault_ms, after_ms, after_ms)
    sends = stage.load.timeline.sends
    try:
        # A cut that lets short packets through takes effect later than others.
        while wall_ms() < max(sends[-1].ended_ms, after_ms) + WITNESS_AFTER_MS:
            await asyncio.sleep(0.01)
            if wall_ms() > fault_ms + 1_000 * cut_s:
                raise DrillError(f"{what}: node {leader} acknowledged sends all the time")
        strike.leader_ms = max(sends[-1].ended_ms, after_ms) + GATE_MS
        async with Witness(trio.urls[leader], stage) as witness:
            await asyncio.sleep(max(cut_s - (wall_ms() - fault_ms) / 1000, 0.0))
            heal(leader)
            await witness.report_answers(f"node {leader}, cut off for {cut_s:.0f} s,", leader, logs)
    finally:
        heal(leader)
    one = await stage.serving_again(strike)
    await stage.all_back(one)


async def cut_follower(stage: Stage, trio: NetworkTrio) -> None:
    """Cut off a follower. The others go on, and its return must not force an election."""
    leader, followers = await trio.others()
    follower = stage.random.choice(followers)
    async with stage.undisturbed("follower cut off", leader) as one:
        trio.cut(follower)
        try:
            await asyncio.sleep(CUT_S)
        finally:
            trio.heal(follower)
        await stage.all_back(one)


# -------------------------------------------------------------------------------------- filters

FILTERED_S: Final = 8.0
"""Longer than the time within which another node has to serve."""
SETTLE_S: Final = 3.0
"""After the end of the cut changes of the leader are counted for this time."""
CHANGES_MAX: Final = 1
_DROP: Final = "meta l4proto tcp drop"
_RESET: Final = "meta l4proto tcp reject with tcp reset"
_LONG: Final = "meta l4proto tcp meta length 700-65535 drop"
"""What a tunnel with a wrong MTU does, if no message of ICMP tells the sender."""

Rules = dict[str, str]
CUTS: Final[tuple[tuple[str, Rules], ...]] = (
    ("TCP cut", {"input": _DROP, "output": _DROP}),
    ("TCP to the leader cut", {"input": _DROP}),
    ("TCP from the leader cut", {"output": _DROP}),
    ("TCP of the leader reset", {"input": _RESET, "output": _RESET}),
)


async def cut_tcp(stage: Stage) -> None:
    """Cut TCP between the leader and its peers, each round in another way."""
    await _filter_leader(stage, *CUTS[len(stage.rounds) % len(CUTS)])


async def black_hole(stage: Stage) -> None:
    """Drop long segments of TCP between the leader and its peers."""
    await _filter_leader(stage, "", {"input": _LONG, "output": _LONG})


async def _filter_leader(stage: Stage, what: str, rules: Rules) -> None:
    trio = stage.trio
    assert isinstance(trio, NetworkTrio)
    healed: list[LogMark] = []

    def heal(leader: int) -> None:
        trio.unfilter(leader)
        healed.append(LogMark(trio.nodes))

    def cut(leader: int) -> None:
        trio.filter(leader, rules)

    await cut_leader(stage, what, cut, heal, FILTERED_S)
    await asyncio.sleep(SETTLE_S)
    changes = len(healed[0].entries(LEADS))
    if changes > CHANGES_MAX:
        stage.broken.append(
            f"round {len(stage.rounds)}: the leader changed {changes} times after the cut had "
            f"ended; {CHANGES_MAX} is allowed"
        )
