"""Three nodes of an election as processes on loopback, and what they say about who leads.

Times are the nodes' own, of a clock that all processes share, so reading their lines late costs
nothing. The one rule of broker_process.py holds here too: leaving the block kills them all.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

import procfs
from load import LoadError

from delaylog.client.free_ports import free_ports

Found = TypeVar("Found")

NODES: Final = (0, 1, 2)
PROGRAM: Final = Path(__file__).with_name("election_node.py")
PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Said:
    """From `at` on a node's state was this."""

    at: float
    node: int
    leads: bool
    leader: int | None


class ElectionNodes:
    """The processes of one cluster; the folder belongs to the caller."""

    def __init__(self, kind: str, folder: Path, *, look_ms: int) -> None:
        self._kind = kind
        self._folder = folder
        self._look_ms = look_ms
        self._addresses = [f"127.0.0.1:{port}" for port in free_ports(len(NODES))]
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._said: list[Said] = []
        self._heard = threading.Condition()

    def __enter__(self) -> Self:
        for node in NODES:
            self._load(node)
        for node in NODES:
            self._await_loaded(node)
        return self

    def __exit__(self, *error: object) -> None:
        for node in list(self._processes):
            self.kill(node)
        for reader in self._readers:
            reader.join()

    def start(self) -> float:
        """Let all take part at once; returns when that was."""
        begun = time.monotonic()
        for node in NODES:
            self._go(node)
        return begun

    def await_leader(self, *, since: float, but: int | None = None) -> Said:
        """The first word of a node that it leads, later than `since`, from another than `but`."""

        def found() -> Said | None:
            words = [said for said in self._said if said.at >= since and said.leads]
            return min(
                (said for said in words if said.node != but), key=lambda said: said.at, default=None
            )

        return self._await(found, "no leader was elected")

    def await_agreement(self) -> int:
        """Wait until all that run name one leader; returns it."""

        def found() -> int | None:
            latest = {said.node: said for said in self._said}
            words = [latest[node] for node in self._processes if node in latest]
            leaders = {said.leader for said in words}
            if len(words) < len(self._processes) or len(leaders) != 1:
                return None
            (leader,) = leaders
            if leader is None or any(said.leads != (said.node == leader) for said in words):
                return None
            return leader

        return self._await(found, "the nodes did not agree on a leader")

    def led_until(self, node: int, *, since: float) -> float | None:
        """When a node first said, after `since`, that it does not lead."""
        words = [said.at for said in self._said if said.node == node and said.at >= since]
        return min(words, default=None)

    def signal(self, node: int, number: signal.Signals) -> float:
        """Send a signal; returns when that was."""
        at = time.monotonic()
        self._processes[node].send_signal(number)
        return at

    def kill(self, node: int) -> float:
        """End a node as a crash would; returns when that was."""
        at = self.signal(node, signal.SIGKILL)
        process = self._processes.pop(node)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        return at

    def cpu_seconds(self) -> dict[int, float]:
        """Processor time of each node so far."""
        return {node: procfs.cpu_seconds(each.pid) for node, each in self._processes.items()}

    def _load(self, node: int) -> None:
        folder = self._folder / f"node-{node}"
        folder.mkdir()
        words = [self._kind, str(folder), str(node), str(self._look_ms), *self._addresses]
        with (self._folder / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [sys.executable, str(PROGRAM), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _await_loaded(self, node: int) -> None:
        process = self._processes[node]
        assert process.stdout is not None
        if process.stdout.readline() != "loaded\n":
            tail = (self._folder / f"node-{node}.log").read_text(errors="replace")[-1_500:]
            raise LoadError(f"a node of {self._kind} did not start\n{tail}")
        reader = threading.Thread(target=self._read, args=(node, process), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _go(self, node: int) -> None:
        stdin = self._processes[node].stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()

    def _read(self, node: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                words = json.loads(line)
                with self._heard:
                    self._said.append(Said(words["at"], node, words["leads"], words["leader"]))
                    self._heard.notify_all()

    def _await(self, look: Callable[[], Found | None], failure: str) -> Found:
        until = time.monotonic() + PATIENCE_S
        with self._heard:
            while (found := look()) is None:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise LoadError(f"{self._kind}: {failure} within {PATIENCE_S:.0f} s")
                self._heard.wait(left_s)
        return found
