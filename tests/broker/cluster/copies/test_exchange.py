"""Whose copies are taken, and when a copy that has come may still take the folder's place."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.backup.copies import Manifest
from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.copies.incoming_folder import IncomingFolder
from delaylog.broker.host.machine import REAL
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import CopyEnd, CopyOffer, CopyPart, Role
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord

LEADER, OTHER = 2, 3
EPOCH = 0x50002
OWN_TICK = TickRecord(0x30003, Tick(9, 8, 7), 5_000, 6)


class Stage(AbstractAsyncContextManager["Stage"]):
    """Everything around `Copies`, by hand."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.steps: list[str] = []
        self.fatal: list[BaseException] = []
        self.replication = SimpleNamespace(promised=EPOCH, role=Role.FOLLOWER, leader=None)
        self.files = SimpleNamespace(
            slots=SimpleNamespace(newest=OWN_TICK),
            physical=SimpleNamespace(end_position=77),
            close=lambda: self.steps.append("files closed"),
        )
        self.transport = SimpleNamespace(
            send=lambda peer, message: self.sent.append((peer, message)),
            connected=lambda: frozenset({LEADER, OTHER}),
        )
        self.leading = False
        self.suspended = False
        self.engine = SimpleNamespace(close=lambda: self.steps.append("engine closed"))
        self.kept: list[TickRecord] = []
        self.error: Exception | None = None
        self.on_fatal = self.fatal.append
        self.machine = REAL
        self._folder = folder

    async def __aenter__(self) -> Stage:
        self.copies = Copies(OsFileSystem(), str(self._folder), self, self, self, self.reopen)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.copies.stop()

    def fall_silent(self, end: int) -> None:
        self.steps.append(f"silent, {end}")
        self.replication = None  # type: ignore[assignment]

    def take_files(self, files: Any) -> None:
        self.steps.append("new files")

    def go_on(self) -> None:
        self.steps.append("goes on")

    async def stop(self) -> None:
        self.steps.append("succession stopped")

    def start(self) -> None:
        self.steps.append("succession started")

    @property
    def exchange(self) -> Stage:
        return self

    async def suspend(self) -> None:
        self.steps.append("node suspended")

    def resume(self, engine: Any, log: Any) -> None:
        self.steps.append("node resumed")

    def reopen(self) -> tuple[Any, Any]:
        if self.error is not None:
            raise self.error
        self.steps.append("reopened")
        return self.files, self.engine

    def keep(self, tick: TickRecord) -> None:
        """As an incoming folder."""
        self.steps.append("kept")
        self.kept.append(tick)

    def lead(self, progress: dict[int, Any], *, serving: bool = True) -> Any:
        """This node leads, and its folder can be copied."""
        (self._folder / "log").mkdir()
        leader = SimpleNamespace(serving=serving, progress=progress, epoch=0x60001)
        self.replication.leader = leader  # type: ignore[assignment]
        return leader

    def copied(self, epoch: int = EPOCH) -> bool:
        incoming: IncomingFolder = self  # type: ignore[assignment]
        manifest = Manifest("1", "x", 1, end_position=900)
        return self.copies.take_copy(incoming, CopyOffer(epoch, 1), manifest)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_only_the_leader_that_is_followed_may_offer(stage: Stage) -> None:
    with pytest.raises(PeerError, match="not its own"):
        stage.copies.receive(OTHER, CopyOffer(EPOCH, 1))
    stage.copies.receive(LEADER, CopyOffer(EPOCH - (1 << 16), 4))
    assert stage.sent == [(LEADER, CopyEnd(EPOCH - (1 << 16), 4, False))]
    stage.replication.promised = EPOCH + (1 << 16)
    stage.copies.receive(LEADER, CopyOffer(EPOCH, 5))
    stage.replication.promised = EPOCH
    stage.replication.role = Role.PREPARING
    stage.copies.receive(LEADER, CopyOffer(EPOCH, 6))
    stage.replication.role = Role.FOLLOWER
    stage.leading = True
    stage.copies.receive(LEADER, CopyOffer(EPOCH, 7))
    assert [message.copy for _, message in stage.sent] == [4, 5, 6, 7]
    assert not stage.copies.receiver.receiving
    stage.leading = False
    stage.copies.receive(LEADER, CopyOffer(EPOCH, 8))
    assert stage.copies.receiver.receiving
    stage.copies.receive(OTHER, CopyPart(EPOCH, 8, 0, 0, "tick", b"x"))
    assert stage.copies.receiver.receiving, "a part of another peer is passed over"


async def test_the_folder_is_exchanged_in_order(stage: Stage) -> None:
    """Silent first; nothing is open when the copy is moved in; the own tick is kept."""
    assert stage.copied()
    assert stage.copies.exchanging
    assert not stage.copied(), "one at a time"
    await stage.copies.stop()
    assert not stage.copies.exchanging

    assert stage.steps == [
        "silent, 900",
        "succession stopped",
        "node suspended",
        "engine closed",
        "files closed",
        "kept",
        "reopened",
        "new files",
        "node resumed",
        "succession started",
        "goes on",
    ]
    (tick,) = stage.kept
    assert (tick.epoch, tick.tick, tick.durable_end) == (OWN_TICK.epoch, OWN_TICK.tick, 900)
    assert not stage.fatal


@pytest.mark.parametrize("what", ["promised", "candidate", "leads"])
async def test_a_copy_that_comes_too_late_changes_nothing(stage: Stage, what: str) -> None:
    """A promise to another candidate has frozen the log."""

    if what == "promised":
        stage.replication.promised = EPOCH + (1 << 16)
    elif what == "candidate":
        stage.replication.role = Role.ADOPTING
    else:
        stage.leading = True
    assert not stage.copied()
    assert stage.steps == []


async def test_an_exchange_that_fails_ends_the_node(stage: Stage) -> None:
    """The next start goes on from where it was."""
    stage.error = OSError("no")
    assert stage.copied()
    await stage.copies.stop()

    assert stage.fatal == [stage.error]
    assert "goes on" not in stage.steps


async def test_who_is_behind_is_offered_a_copy(stage: Stage) -> None:
    """Only by a leader that serves, and only while it does."""

    progress = {
        LEADER: SimpleNamespace(match=5, behind=False),
        OTHER: SimpleNamespace(match=0, behind=True),
        7: SimpleNamespace(match=0, behind=True),
    }
    leader = stage.lead(progress, serving=False)
    stage.copies.look()
    assert stage.sent == []
    leader.serving = True
    stage.copies.look()
    stage.copies.look()
    assert stage.sent == [(OTHER, CopyOffer(0x60001, 1))]
    assert stage.copies.giving
    stage.replication.leader = None
    stage.copies.look()
    assert not stage.copies.giving
    assert stage.sent[-1] == (OTHER, CopyEnd(0x60001, 1, False))


async def test_a_connected_node_that_is_no_member_ends_nothing(stage: Stage) -> None:
    """A removed node that knows a later configuration is connected: the change that added it again
    was not committed, so this leader does not know it.
    """
    progress = {OTHER: SimpleNamespace(match=0, behind=True)}
    stage.lead(progress)
    stage.copies.look()
    assert stage.sent == [(OTHER, CopyOffer(0x60001, 1))]


async def test_a_node_that_refuses_every_copy_keeps_no_other_node_from_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with too small a disk does."""
    now_s = 1_000.0
    machine = SimpleNamespace(steady_s=lambda: now_s)
    monkeypatch.setattr(stage.copies.giver, "_machine", machine)
    progress = dict.fromkeys((LEADER, OTHER), SimpleNamespace(match=0, behind=True))
    stage.lead(progress)
    offered = []
    for copy in range(1, 5):
        stage.copies.look()
        peer, offer = stage.sent.pop()
        assert offer == CopyOffer(0x60001, copy)
        offered.append(peer)
        stage.copies.receive(peer, CopyEnd(0x60001, copy, False))
        now_s += 100
    assert sorted(offered[:2]) == sorted(offered[2:]) == [LEADER, OTHER]
