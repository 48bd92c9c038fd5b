"""Three brokers that are one cluster, as child processes on free loopback ports.

The one rule of broker_process.py holds here too: leaving the block kills them all.
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from broker_process import Brokers, ServerError, ServerProcess

from delaylog.client.child_broker import free_ports

NODES: Final = (1, 2, 3)
LEADER_TIMEOUT_S: Final = 20.0


class Cluster:
    """Three nodes; the folder belongs to the caller."""

    def __init__(self, program: Sequence[str], folder: Path) -> None:
        self._program = list(program)
        self._folder = folder
        ports = free_ports(2 * len(NODES))
        self.ports = dict(zip(NODES, ports[: len(NODES)], strict=True))
        secret = folder / "cluster.secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        lines = ['cluster = "bench"', 'secret_file = "cluster.secret"']
        for node, peer in zip(NODES, ports[len(NODES) :], strict=True):
            lines += [f"[members.{node}]", f'peer = "127.0.0.1:{peer}"']
            lines += [f'http = "127.0.0.1:{self.ports[node]}"']
        self._file = folder / "cluster.toml"
        self._file.write_text("\n".join(lines) + "\n")
        self.nodes: dict[int, ServerProcess] = {}

    def node(self, node: int, *, new: bool = False) -> ServerProcess:
        """A node, not started yet."""
        command = [
            *self._program,
            "serve",
            *("--data-dir", str(self._folder / f"node-{node}")),
            *("--http", f"127.0.0.1:{self.ports[node]}"),
            *("--cluster", str(self._file), "--node", str(node)),
            *(["--new-cluster"] if new else []),
        ]
        return ServerProcess(command, log_path=self._folder / f"node-{node}.log", metered=True)

    def leader(self) -> int:
        """Who answers for the cluster."""
        until = time.monotonic() + LEADER_TIMEOUT_S
        while time.monotonic() < until:
            for node, process in self.nodes.items():
                if process.running and _leads(self.ports[node]):
                    return node
            time.sleep(0.02)
        raise ServerError(f"no node leads within {LEADER_TIMEOUT_S:.0f} s")

    def cpu_seconds(self) -> float:
        """Processor time of all nodes that run."""
        return sum(node.cpu_seconds() for node in self.nodes.values() if node.running)


@contextmanager
def cluster(brokers: Brokers) -> Iterator[Cluster]:
    """A new cluster that has a leader, in a folder that is gone afterwards."""
    with brokers.folder() as folder, ExitStack() as stack:
        made = Cluster(brokers.program, folder)
        for node in NODES:
            made.nodes[node] = stack.enter_context(made.node(node, new=True))
        made.leader()
        yield made


def ask(port: int, path: str) -> tuple[int, Any]:
    """(status, members) of a GET; a status of 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        raw = response.read()
    except OSError:
        return 0, None
    finally:
        connection.close()
    return response.status, json.loads(raw) if response.status == 200 else None


def _leads(port: int) -> bool:
    return ask(port, "/v1/topics")[0] == 200
