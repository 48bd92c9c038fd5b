"""Three nodes in network namespaces, each of which can be cut off from the others.

Each node is in two networks, one with its peers and one with the drill's clients. So clients still
reach a node that is cut off from its peers: only then could it answer wrongly. A cut drops packets
silently, like a broken switch; no connection is closed. The drill itself runs inside a namespace
(`own_network`), which disappears with it. It needs the right to create namespaces, and `ip`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.client.child_broker import delaylog_program

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
