"""Five nodes that an operator runs: real processes whose clock and disk a test controls.

Beside what `Growing` does it keeps, for each node, everything that it has said over all its lives,
and starts processes that are not meant to come up: with other words, folders or addresses.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from delaylog.client.child_broker import free_ports
from tests.broker.cluster.growing import Growing
from tests.broker.cluster.three_nodes import NODES
from tests.programs import run_program
from tests.waiting import await_that

PROGRAM = Path(__file__).with_name("faulty_node.py")
LIMITS = "[limits]\nreserve_file_bytes = 16777216\n"
END_S = 90.0
LINE_S = 60.0


class Nodes(Growing):
    """Nodes 1 to 5; 1 to 3 are the founders."""

    wait_s = 90
    """Of healing, with other work on the machine and voters that have to fetch everything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        limits = folder / "delaylog.toml"
        limits.write_text(LIMITS)
        self._options = ["--config", str(limits)]
        self._program = PROGRAM
        self.clock_ms = dict.fromkeys(self.http, 0)
        self.full: set[int] = set()
        self.twins = 0

    def launch(
        self, node: int, words: Sequence[str], out: int, log: int
    ) -> subprocess.Popen[bytes]:
        self.control(node)
        return subprocess.Popen(
            [sys.executable, "-P", str(self._program), str(self._control(node)), "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            env={k: v for k, v in os.environ.items() if not k.startswith("DELAYLOG_")},
        )

    def _control(self, node: int) -> Path:
        return self.folder / f"n{node}.control"

    def control(self, node: int) -> None:
        """Let a node know of its clock and disk."""
        said = {"clock_ms": self.clock_ms[node], "full": node in self.full}
        path = self._control(node)
        path.with_suffix(".new").write_text(json.dumps(said))
        path.with_suffix(".new").rename(path)
        if node in self._processes:
            self._processes[node].send_signal(signal.SIGUSR2)

    def reap(self) -> dict[int, int]:
        """Nodes that have ended by themselves, with their statuses."""
        ended = {}
        for node, process in list(self._processes.items()):
            if process.poll() is not None:
                ended[node] = self.ended(node)
        return ended

    # ------------------------------------------------------------------ what is known of it

    def calm_status(self) -> dict[str, Any] | None:
        """The leader's status if there is one leader that all running nodes know."""
        told = {node: self.status(node) for node in self.running}
        leading = [node for node, each in told.items() if each.get("role") == "leader"]
        if len(leading) != 1:
            return None
        status: dict[str, Any] = told[leading[0]]
        return status

    def lacking(self, members: Sequence[int]) -> str | None:
        """Why these nodes are not all sound members; None if they are."""
        status = self.calm_status()
        if status is None:
            return f"no leader is known; { {n: self.status(n).get('role') for n in self.running} }"
        for each in status["members"]:
            node = each["node"]
            if node not in members or each["removed"]:
                continue
            mine = self.status(node)
            if not each["connected"] or mine.get("role") not in ("leader", "follower", "learner"):
                return f"node {node} is {mine.get('role')}, connected: {each['connected']}"
            if mine["version"] != status["version"] or mine["applied"] < status["commit"]:
                return f"node {node} has applied {mine['applied']} of {status['commit']} bytes"
        return None

    def lag_bytes(self, members: Sequence[int]) -> int:
        """How much of the leader's committed log the last of these nodes has not applied."""
        status = self.calm_status()
        if status is None:
            return sys.maxsize
        return max(int(status["commit"] - self.status(node).get("applied", 0)) for node in members)

    # ------------------------------------------------------------------ what must not come up

    def attempt(self, node: int, *words: str, folder: Path | None = None) -> tuple[int, str]:
        """Run a process by words of its own to its end; its status and what it said."""
        folder = folder or self.data_dir(node)
        http = f"127.0.0.1:{free_ports(1)[0]}"
        command = ["--data-dir", str(folder), "--http", http, *words]
        done = run_program(
            sys.executable,
            "-P",
            self._program,
            os.devnull + ".none",
            "serve",
            *command,
            timeout=END_S,
        )
        return done.returncode, done.stdout + done.stderr

    def says(self, node: int, text: str, since: int) -> None:
        """Wait until a node has said it, behind that place of its log."""
        path = self.log_path(node)
        await_that(
            lambda: text in path.read_bytes()[since:].decode(errors="replace"),
            lambda: f"node {node} never said {text!r}\n{self.tails()}",
            seconds=LINE_S,
        )

    def said(self, node: int) -> int:
        """How much a node has said so far."""
        path = self.log_path(node)
        return path.stat().st_size if path.exists() else 0

    def twin(self, node: int, members: Sequence[int]) -> Nodes:
        """Another machine where somebody runs the same node by mistake."""
        self.twins += 1
        folder = self.folder / f"twin{self.twins}"
        folder.mkdir()
        twin = Nodes(folder)
        shutil.copy(self.folder / "cluster.secret", folder / "cluster.secret")
        for each in self.http:
            if each != node:
                twin.http[each], twin.peers[each] = self.http[each], self.peers[each]
        twin.file_for(node, members)
        return twin

    def logs(self) -> list[Path]:
        """Of all nodes, twins too."""
        return sorted(self.folder.glob("**/n?.log"))

    def drop(self, folder: Path) -> None:
        """Remove a data folder."""
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


__all__ = ["NODES", "Nodes"]
