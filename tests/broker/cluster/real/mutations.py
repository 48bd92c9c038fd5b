"""Faults that are planted in the wiring, to see that the courses over real members find them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.member_role import MemberRole
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.upkeep import checkpoints as upkeep
from delaylog.broker.host.log_commits import PositionWaiters
from delaylog.broker.host.node import Node
from delaylog.replication.leader import Leadership
from delaylog.replication.physical_disk import PhysicalReplicaLog
from delaylog.storage.checkpoint import Kept

Patch = tuple[Any, str, Any]


def _no_retire() -> list[Patch]:
    """A deposed leader's engine goes on."""
    return [(EngineState, "retire", lambda self, commit: None)]


def _committed_is_durable() -> list[Patch]:
    """What this disk has counts as committed."""
    return [(ClusterMember, "committed", lambda self: self._files.physical.durable_position)]


def _always_kept() -> list[Patch]:
    """An engine stands down although something that it had applied was lost."""
    inner = Succession.step_down

    def step_down(self: Succession, commit: int) -> None:
        inner(self, commit)
        self._is_committed = True

    return [(Succession, "step_down", step_down)]


def _shipped_late() -> list[Patch]:
    """Leases go out with the next round, behind the answer."""
    inner = MemberRole.appended

    def appended(self: MemberRole, *, at_once: bool = False) -> None:
        if not at_once:
            asyncio.get_running_loop().call_later(0.15, lambda: inner(self))

    return [(MemberRole, "appended", appended)]


def _no_gate() -> list[Patch]:
    """Nobody asks whether a majority follows."""

    async def until_may_deliver(self: MemberRole, seconds: float) -> bool:
        self.check()
        return True

    # A turn asks once more when it leases.
    return [
        (MemberRole, "until_may_deliver", until_may_deliver),
        (MemberRole, "may_deliver", lambda self: True),
    ]


def _checkpoint_at_log_end() -> list[Patch]:
    """A checkpoint names the end of the log, whatever the engine has seen of it."""
    inner = upkeep.write_checkpoint

    def write(
        fs: Any, folder: str, small: Any, position: int, log_from: int | None = None
    ) -> list[Kept]:
        files = fs.listdir(f"{folder}/log")
        base = max(int(name[:-4]) for name in files)
        file = fs.open(f"{folder}/log/{base:020d}.log")
        end = base + int(file.size())
        file.close()
        return inner(fs, folder, small, max(position, end), log_from)

    return [(upkeep, "write_checkpoint", write)]


def _no_epochs() -> list[Patch]:
    """A checkpoint forgets where epochs begin."""
    inner = upkeep.snapshot

    def snapshot(state: EngineState, now_ms: int) -> dict[str, Any]:
        return inner(state, now_ms) | {"epochs": []}

    return [(upkeep, "snapshot", snapshot)]


def _waiters_wait() -> list[Patch]:
    """Who waits for a commit is not told that the leadership is over."""
    return [(PositionWaiters, "fail_all", lambda self, error: None)]


def _pages_at_once() -> list[Patch]:
    """State pages are written before what they tell is committed."""
    return [(EngineState, "until_committed", lambda self: iter(()))]


def _slots_after_a_cut() -> list[Patch]:
    """The tick slots go on saying that more was durable than is there."""

    def cut(self: PhysicalReplicaLog, position: int) -> None:
        self._last_read = (0, b"")
        self._log.cut(position)
        self.epochs.cut(position)

    return [(PhysicalReplicaLog, "cut", cut)]


def _read_after_a_cut() -> list[Patch]:
    """What was read before a cut is shipped after it."""

    def cut(self: PhysicalReplicaLog, position: int) -> None:
        kept = self._last_read
        inner(self, position)
        self._last_read = kept

    inner = PhysicalReplicaLog.cut
    return [(PhysicalReplicaLog, "cut", cut)]


def _time_of_the_retired() -> list[Patch]:
    """Whoever stands down takes the end of all days for the time."""
    inner = Engine.step_down

    def step_down(self: Engine) -> None:
        inner(self)
        self.state.leader_time_ms = 1 << 62

    return [(Engine, "step_down", step_down)]


def _shared_epochs() -> list[Patch]:
    """A checkpoint in the making sees epochs that begin behind it."""
    inner = upkeep.snapshot

    def snapshot(state: EngineState, now_ms: int) -> dict[str, Any]:
        return inner(state, now_ms) | {"epochs": state.epochs}

    return [(upkeep, "snapshot", snapshot)]


def _changes_while_handing_over() -> list[Patch]:
    """A leader that hands over takes changes all the same."""
    inner = Leadership.may_append

    def may_append(self: Leadership) -> bool:
        return inner(self) or self.serving

    return [(Leadership, "may_append", may_append)]


def _nobody_is_woken() -> list[Patch]:
    """An engine whose leadership ends keeps its waiters."""
    return [(Node, "end_leading", lambda self, why: None)]


MUTATIONS: dict[str, Callable[[], list[Patch]]] = {
    "no_retire": _no_retire,
    "committed_is_durable": _committed_is_durable,
    "always_kept": _always_kept,
    "shipped_late": _shipped_late,
    "no_gate": _no_gate,
    "checkpoint_at_log_end": _checkpoint_at_log_end,
    "no_epochs": _no_epochs,
    "waiters_wait": _waiters_wait,
    "pages_at_once": _pages_at_once,
    "slots_after_a_cut": _slots_after_a_cut,
    "read_after_a_cut": _read_after_a_cut,
    "time_of_the_retired": _time_of_the_retired,
    "shared_epochs": _shared_epochs,
    "changes_while_handing_over": _changes_while_handing_over,
    "nobody_is_woken": _nobody_is_woken,
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    patches = MUTATIONS[name]()
    before = [(target, field, getattr(target, field)) for target, field, _ in patches]
    for target, field, value in patches:
        setattr(target, field, value)
    try:
        yield
    finally:
        for target, field, value in before:
            setattr(target, field, value)
