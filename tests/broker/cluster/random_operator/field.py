"""What an operator works on, and what it may do without losing data on purpose.

The rule: at most a minority of the voters' disks is lost before all of them are sound again. So
whatever loses a disk first calls `settle`, which brings every member back. Everything else may
happen at any time, to any number of nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.broker.cluster.random_operator.load import Load
from tests.broker.cluster.random_operator.nodes import Nodes

SETTLE_S = 120.0
ENOUGH_S = 5.0
CHANGE_S = 60.0
DONE_ALREADY = ("is a voter already", "is a member already", "there is no member", "is not a voter")
OK_STATUS = 0
STALE_STATUS = 65
FULL_STATUS = 75


class Field:
    """The nodes, the load, and who belongs to the cluster."""

    def __init__(self, nodes: Nodes, load: Load, random: Random) -> None:
        self.nodes = nodes
        self.load = load
        self.random = random
        self.voters = [1, 2, 3]
        self.learners: list[int] = []
        self.copies: dict[int, Path] = {}
        """Old copies of folders; each was followed by a life that all others have met."""
        self.earlier: dict[int, Path] = {}
        """Folders of an earlier cluster of the same name."""
        self.faults: list[tuple[float, float]] = []
        """Stretches of wall time in which ticks or leases may have been lost."""
        self.were_full: set[int] = set()

    # ------------------------------------------------------------------ who

    @property
    def members(self) -> list[int]:
        return sorted([*self.voters, *self.learners])

    @property
    def outside(self) -> list[int]:
        return [node for node in self.nodes.http if node not in self.members]

    @property
    def down(self) -> list[int]:
        return [node for node in self.members if node not in self.nodes.running]

    @property
    def up(self) -> list[int]:
        return [node for node in self.members if node in self.nodes.running]

    def pick(self, nodes: list[int]) -> int:
        return self.random.choice(nodes)

    def follower(self) -> int:
        """A member that does not lead, if there is another one."""
        leader = self.leader()
        return self.pick([node for node in self.up if node != leader] or [leader])

    # ------------------------------------------------------------------ states

    def start(self, *nodes: int, new_cluster: bool = False) -> None:
        """Start nodes, which must come up: their disks get space again."""
        if not nodes:
            return
        for node in nodes:
            self.nodes.file_for(node, self.members)
            # A start may end with FULL_STATUS where not even the reserve makes room.
            if node in self.nodes.full:
                self.fill(node, full=False)
        self.nodes.start(*nodes, new_cluster=new_cluster)

    def end(self, node: int) -> None:
        """Stop a node if it runs, in either way."""
        if node not in self.nodes.running:
            return
        if self.random.random() < 0.5:
            with self.fault():
                self.nodes.kill(node)
        else:
            (status,) = self.nodes.stop(node)
            assert status == OK_STATUS, f"SIGTERM ended node {node} with {status}"

    def leader(self) -> int:
        """Who leads; enough voters are started for that."""
        for node in [node for node in self.voters if node not in self.nodes.running]:
            if len([each for each in self.voters if each in self.nodes.running]) > (
                len(self.voters) // 2
            ):
                break
            self.start(node)
        end = time.monotonic() + ENOUGH_S
        while (status := self.nodes.calm_status()) is None and time.monotonic() < end:
            time.sleep(0.1)
        if status is None:
            # One of them has lost its disk, and counts only once all others are there.
            self.start(*[node for node in self.voters if node not in self.nodes.running])
            status = self.until(self.nodes.calm_status, "nobody came to lead", SETTLE_S)
        return int(status["node"])

    def settle(self) -> None:
        """All members run, hold the log and count."""
        for node in sorted(self.nodes.full):
            self.fill(node, full=False)
        self.check()
        down = self.down
        if down:
            self.start(*down)

        def sound() -> bool:
            nodes = self.nodes
            status = nodes.calm_status()
            if status is None or nodes.lacking(self.members) is not None:
                return False
            counted = {each["node"] for each in status["members"] if each["voter"]}
            return {*self.voters} <= counted

        self.until(
            sound,
            "the nodes are not sound",
            SETTLE_S,
            lambda: f"{self.nodes.lacking(self.members)}; {self.nodes.calm_status()}",
            lambda: self.nodes.lag_bytes(self.members),
        )

    def lose_disks(self) -> None:
        """Before a disk is lost: all others must be sound."""
        self.settle()

    def fill(self, node: int, *, full: bool) -> None:
        """Let a node's disk be full, or have space again."""
        self.were_full.add(node)
        (self.nodes.full.add if full else self.nodes.full.discard)(node)
        self.nodes.control(node)

    def step_clock(self, node: int, offset_ms: int) -> None:
        self.nodes.clock_ms[node] = offset_ms
        self.nodes.control(node)

    # ------------------------------------------------------------------ faults, waiting

    @contextmanager
    def fault(self) -> Iterator[None]:
        """What happens inside may lose ticks that were only in memory."""
        began = time.time()
        try:
            yield
        finally:
            self.faults.append((began, time.time()))

    def until(
        self,
        look: Callable[[], Any],
        text: str,
        deadline_s: float,
        why: Callable[[], str] = str,
        left: Callable[[], int] = int,
    ) -> Any:
        """What `look` finds, once it finds something; no node may end meanwhile.

        The time starts anew whenever less is `left` than ever before: how long a node takes to
        catch up depends on its log and the machine.
        """
        end, least = time.monotonic() + deadline_s, left()
        while not (found := look()):
            self.check()
            if (now := left()) < least:
                end, least = time.monotonic() + deadline_s, now
            assert time.monotonic() < end, f"{text}: {why()}\n{self.nodes.tails()}"
            time.sleep(0.1)
        return found

    def check(self) -> None:
        """No client has failed, no node has ended by itself."""
        if self.load.faults:
            raise self.load.faults[0]
        ended = self.nodes.reap()
        # A disk without any space ends a node; it is started again once there is some.
        ended = {n: s for n, s in ended.items() if s != FULL_STATUS or n not in self.were_full}
        assert not ended, f"ended by themselves, with status: {ended}\n{self.nodes.tails()}"

    def change(self, action: str, *nodes: int, **contact: str) -> str:
        """Ask for a change until it is done; "" or the refusal, which names what to do instead."""
        end = time.monotonic() + CHANGE_S
        while True:
            self.leader()
            answer = self.nodes.change(action, *nodes, **contact)
            if answer.status == 200:
                return ""
            detail = answer.json.get("detail", "") if answer.status else ""
            if answer.status in (400, 409):
                if any(text in detail for text in DONE_ALREADY):
                    return ""
                if "hand over first" in detail:
                    return str(detail)
            assert answer.status in (0, 409, 503), (action, nodes, answer)
            self.check()
            assert time.monotonic() < end, f"{action} {nodes}: {answer}\n{self.nodes.tails()}"
            time.sleep(0.2)
