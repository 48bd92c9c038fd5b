"""One run of a random operator: steps from a seed, healing, and the verdict.

The seed says what is tried and in which order; what comes of it depends on the machine too, since
processes and clocks are real. A failure is looked for by running its seed again, more than once if
need be.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.broker.cluster.random_operator.field import Field
from tests.broker.cluster.random_operator.judge import (
    Watcher,
    check_history,
    check_leaders,
    check_repeats,
)
from tests.broker.cluster.random_operator.legal import LEGAL
from tests.broker.cluster.random_operator.load import LEASE_MS, Load
from tests.broker.cluster.random_operator.mistakes import MISTAKES
from tests.broker.cluster.random_operator.nodes import Nodes
from tests.programs import run_program
from tests.starts.warm import PROGRAM

ACTIONS = LEGAL | MISTAKES
BETWEEN_S = (0.0, 0.8)
NEVER = ("acknowledged are missing", "This is a bug")
"""Lines that no node may have written."""
EXPECTED = ("StaleFolderError", "No space left on device")
"""Exceptions that end a node, as they should."""


class OperatorRun:
    """One operator at work, in an empty folder."""

    def __init__(self, folder: Path, seed: int, *, ahead_ms: int) -> None:
        self._folder = folder
        self._random = Random(seed)
        self._nodes = Nodes(folder)
        self._history = folder / "history.jsonl"
        self._load = Load(self._nodes, self._history, seed, ahead_ms)
        self._ahead_ms = ahead_ms
        self._field = Field(self._nodes, self._load, self._random)
        self.steps: list[str] = []
        self.counts: Counter[str] = Counter()
        self._seed = seed

    def run(self, count: int, script: Sequence[str] = ()) -> Counter[str]:
        """So many random steps, or those of a script; what was counted. Raises AssertionError."""
        try:
            self._nodes.found(1, 2, 3)
            self._load.begin()
            with Watcher(self._nodes) as watcher:
                for name in script:
                    self._act(name)
                while not script and self.counts["steps"] < count:
                    self._act(self._draw())
                self._heal()
                self._judge(watcher)
        except BaseException as error:
            error.add_note(f"seed {self._seed}; steps:\n" + "\n".join(self.steps))
            raise
        finally:
            self._load.end()
            self._nodes.clean_up()
        return self.counts

    # ------------------------------------------------------------------ steps

    def _draw(self) -> str:
        weights = [weight for weight, _ in ACTIONS.values()]
        (name,) = self._random.choices(list(ACTIONS), weights)
        return name

    def _act(self, name: str) -> None:
        began_ms = int(time.time() * 1000)
        self.steps.append(f"{name} …")
        done = ACTIONS[name][1](self._field)
        if done is None:
            self.steps.pop()
            return
        # Leaders may have come and gone; what they repeat is judged apart.
        self._load.recorder.mark("failover", began_ms, until=int(time.time() * 1000))
        self.steps[-1] = f"{len(self.steps)}. {done} ({time.time() - began_ms / 1000:.1f} s)"
        self.counts["steps"] += 1
        self.counts[name] += 1
        self._field.check()
        time.sleep(self._random.uniform(*BETWEEN_S))

    # ------------------------------------------------------------------ the end

    def _heal(self) -> None:
        """Everything runs, with the right time; then all that is due is consumed."""
        began_ms = int(time.time() * 1000)
        for node in self._nodes.http:
            if self._nodes.clock_ms[node]:
                self._field.step_clock(node, 0)
        self._field.settle()
        self._load.recorder.mark("clock", began_ms, until=int(time.time() * 1000))
        self._load.recorder.mark("failover", began_ms, until=int(time.time() * 1000))
        self._load.stop_sending()
        self._load.drain(self._ahead_ms / 1000 + 4 * LEASE_MS / 1000 + 60)

    def _judge(self, watcher: Watcher) -> None:
        load, nodes = self._load, self._nodes
        lost = [
            name for name in load.far if name not in load.cancelled and load.status_of(name) != 200
        ]
        self._field.settle()
        agreed = {
            (each["cluster_id"], each["version"], str(each["epoch"]))
            for each in map(nodes.status, self._field.members)
        }
        statuses = nodes.stop()
        load.end()
        wrong = [f"{name} is lost" for name in lost]
        if len(agreed) != 1:
            wrong.append(f"the nodes do not agree: {agreed}")
        if any(statuses):
            wrong.append(f"SIGTERM ended nodes with {statuses}")
        wrong += check_leaders(watcher, nodes.logs())
        found, tried = check_history(self._history)
        repeated, count = check_repeats(load.deliveries, self._field.faults)
        wrong += found + repeated
        wrong += [line for path in nodes.logs() for line in _bad_lines(path)]
        for node in self._field.members:
            wrong += self._verify(node)
        self.counts.update(tried)
        self.counts["repeats"] = count
        self.counts["looks"] = watcher.looks
        self.counts["epochs"] = len(watcher.leaders)
        assert not wrong, "\n".join(wrong[:40])

    def _verify(self, node: int) -> list[str]:
        folder = self._nodes.data_dir(node)
        done = run_program(PROGRAM, "verify", folder, timeout=120)
        said = f"{done.stdout}\n{done.stderr}"
        return [] if done.returncode == 0 else [f"the folder of node {node}: {said}"]


def _bad_lines(path: Path) -> list[str]:
    """What no node may say; a line that a kill cut short is passed over."""
    return [
        f"{path.name}: {line[:1_000]}"
        for line in path.read_text(errors="replace").splitlines()
        if any(text in line for text in NEVER)
        or ('"exception"' in line and not any(text in line for text in EXPECTED))
    ]
