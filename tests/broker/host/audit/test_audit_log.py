"""The audit log of a node: what is durable when, and what happens while the disk refuses lines.

Method: the real log on a disk in memory, whose thread runs inline, so that each step is one turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from delaylog.broker.host.audit import audit_log
from delaylog.broker.host.audit.audit_log import (
    PENDING_MAX,
    REFUSALS_MAX,
    SYNC_SECONDS,
    AuditError,
    AuditLog,
)
from delaylog.broker.host.audit.files import AuditFiles
from delaylog.broker.host.audit.lines import TEXT_MAX, AuditLine
from delaylog.broker.host.audit.metrics import AuditMetrics
from delaylog.broker.host.audit.settings import AuditSettings
from delaylog.broker.host.machine import RealMachine
from tests.broker.host.audit.audit_world import NOW_MS, lines_of, verified
from tests.storage.fake_disk import FakeDisk

ALWAYS = range(1 << 40)
NEVER: range = range(0)


class Inline(Executor):
    """Runs each call at once; `hold` keeps calls back."""

    def __init__(self) -> None:
        self.hold = False
        self.held: list[Callable[[], None]] = []

    def submit(self, fn: Any, /, *args: Any, **how: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **how))
            except BaseException as error:
                future.set_exception(error)

        if self.hold:
            self.held.append(run)
        else:
            run()
        return future

    def release(self) -> None:
        self.hold = False
        for run in self.held:
            run()
        self.held.clear()


class StillMachine(RealMachine):
    """A machine whose wall clock stands and whose threads run inline."""

    def __init__(self) -> None:
        self.threads = Inline()

    wall_s = staticmethod(lambda: NOW_MS / 1_000)

    def worker(self, name: str) -> Executor:
        return self.threads


def opened(
    disk: FakeDisk,
    machine: RealMachine,
    settings: AuditSettings,
    make_room: Callable[[], bool] = lambda: False,
) -> AuditLog:
    """The audit log of node 2."""
    files = AuditFiles(disk, "data/audit", 2, settings, "a" * 32)
    return AuditLog(files, settings, machine, make_room)


class World:
    """A log that has started, and its disk."""

    def __init__(self, mode: str = "changes") -> None:
        self.disk = FakeDisk()
        self.disk.mkdir("data")
        self.disk.sync_all()
        self.machine = StillMachine()
        self.steps = 0
        """Steps that the reserve still has."""
        self.audit = opened(self.disk, self.machine, AuditSettings(mode=mode), self.make_room)

    def make_room(self) -> bool:
        """Give up a step of the reserve, if one is left."""
        if not self.steps:
            return False
        self.steps -= 1
        self.disk.full_at = NEVER
        return True

    async def __aenter__(self) -> World:
        self.audit.start()
        await self.turns()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.disk.full_at = self.disk.fail_at = NEVER
        await self.audit.stop()
        assert verified(self.disk).damage == []

    async def turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def synced(self) -> None:
        await asyncio.sleep(SYNC_SECONDS + 0.1)

    def outcomes(self) -> list[tuple[str, str]]:
        """Call and outcome of each line about a call."""
        lines = lines_of(self.disk)
        return [(line.call, line.outcome) for line in lines if line.call != "audit"]


@pytest.fixture
def world() -> World:
    return World()


def admin(call: str = "putTopic", **how: Any) -> AuditLine:
    return AuditLine(call=call, right="admin", principal="alice", face="http", **how)


def change(call: str = "cancel") -> AuditLine:
    return AuditLine(call=call, right="change", principal="alice", face="http")


async def test_an_administrative_call_waits_until_its_line_is_durable(world: World) -> None:
    world.machine.threads.hold = True
    begun = asyncio.ensure_future(world.audit.begin(admin(facts={"ttl": 5})))
    await world.turns()
    assert not begun.done()
    assert world.outcomes() == []
    world.machine.threads.release()
    await begun
    world.disk = world.disk.restart("nothing")
    (line,) = [each for each in lines_of(world.disk) if each.call != "audit"]
    assert (line.outcome, line.facts, line.node) == ("begun", {"ttl": 5}, 2)
    assert line.time == "2027-01-15T08:00:00.000Z"
    head = world.audit.head()
    assert head is not None
    assert verified(world.disk, [head]).damage == []
    world.audit = opened(world.disk, world.machine, AuditSettings())


async def test_lines_of_one_turn_share_a_sync(world: World) -> None:
    syncs = len([each for each in world.disk.log if each.startswith("sync")])
    await asyncio.gather(*(world.audit.begin(admin()) for _ in range(20)))
    assert len([each for each in world.disk.log if each.startswith("sync")]) == syncs + 1
    assert len(world.outcomes()) == 20


async def test_outcomes_and_changes_are_synced_within_a_second(world: World) -> None:
    await world.audit.begin(admin())
    world.audit.record(admin())
    world.audit.record(change())
    await world.turns()
    assert world.outcomes() == [("putTopic", "begun")]
    await world.synced()
    assert world.outcomes() == [("putTopic", "begun"), ("putTopic", "done"), ("cancel", "done")]
    assert world.audit.pending == 0
    assert world.audit.lines == 3


async def test_many_lines_do_not_wait(world: World) -> None:
    for _ in range(audit_log.WRITE_AT):
        world.audit.record(change())
    await world.turns()
    assert len(world.outcomes()) == audit_log.WRITE_AT


@pytest.mark.parametrize(
    ("mode", "recorded"),
    [
        ("changes", ["admin", "operate", "change"]),
        ("all", ["admin", "operate", "change", "send", "read"]),
        ("off", []),
    ],
)
async def test_modes(mode: str, recorded: list[str]) -> None:
    world = World(mode)
    async with world:
        await world.audit.begin(admin("begin"))
        for right in ("admin", "operate", "change", "send", "read"):
            world.audit.record(AuditLine(call=right, right=right))
        world.audit.refused(AuditLine(call="login", outcome="unauthorized"))
    calls = [call for call, _ in world.outcomes()]
    assert calls == (["begin", *recorded, "login"] if recorded else [])
    assert world.disk.exists("data/audit") == bool(recorded)


async def test_refusals_that_are_alike_share_a_line(world: World) -> None:
    """A stranger that tries tokens at full speed does not fill the disk."""
    for number in range(1_000):
        for address in ("10.0.0.8", "10.0.0.9"):
            line = AuditLine(call="login", address=address, outcome="unauthorized")
            line.request_id = str(number)
            world.audit.refused(line)
        if number % 100 == 0:
            await world.audit.begin(admin())
    await world.synced()
    await world.synced()
    found = [line for line in lines_of(world.disk) if line.call == "login"]
    assert [(line.address, line.count, line.request_id) for line in found] == [
        ("10.0.0.8", 1_000, "0"),
        ("10.0.0.9", 1_000, "0"),
    ]
    world.audit.refused(AuditLine(call="login", address="10.0.0.8", outcome="unauthorized"))
    await world.synced()
    await world.synced()
    assert [line.count for line in lines_of(world.disk) if line.call == "login"][2:] == [1]


async def test_a_stranger_cannot_make_lines_differ(world: World) -> None:
    """A stranger chooses the path, and so the name of the call. A principal's calls are known."""
    for number in range(50):
        for principal in (None, "alice"):
            name = f"/v1/guess-{number}"
            line = AuditLine(call=name, principal=principal, outcome="unauthorized")
            world.audit.refused(line)
    await world.synced()
    await world.synced()
    found = [line for line in lines_of(world.disk) if line.outcome == "unauthorized"]
    assert [line.count for line in found if line.principal is None] == [50]
    assert len([line for line in found if line.principal]) == 50


async def test_a_field_that_was_set_later_is_bounded(world: World) -> None:
    """An unwritable line would stop the log, and with it all administration."""
    line = AuditLine(right="change")
    line.call = "\udcff" * 100_000
    world.audit.record(line)
    await world.synced()
    (found,) = [line for line in lines_of(world.disk) if line.right == "change"]
    assert len(found.call) <= TEXT_MAX


async def test_refusals_from_everywhere_share_a_line_too(world: World) -> None:
    for number in range(3 * REFUSALS_MAX):
        address = f"10.0.{number // 250}.{number % 250}"
        world.audit.refused(AuditLine(call="login", address=address, outcome="unauthorized"))
    await world.synced()
    await world.synced()
    found = [line for line in lines_of(world.disk) if line.outcome == "unauthorized"]
    assert len(found) == REFUSALS_MAX + 1
    assert sum(line.count or 0 for line in found) == 3 * REFUSALS_MAX
    assert (found[-1].call, found[-1].address) == ("audit", None)


@pytest.mark.parametrize(("fault", "full"), [("full_at", True), ("fail_at", False)])
async def test_administrative_calls_are_refused_while_the_disk_refuses_lines(
    world: World, caplog: pytest.LogCaptureFixture, fault: str, full: bool
) -> None:
    """It is logged once. When the disk takes lines again, the refused calls are recorded too."""
    caplog.set_level(logging.INFO, "delaylog.audit")
    setattr(world.disk, fault, ALWAYS)
    for number in range(3):
        with pytest.raises(AuditError, match="was not carried out") as caught:
            await world.audit.begin(admin(f"call{number}"))
        assert caught.value.full is full
    world.audit.record(change())
    assert world.audit.failing is not None
    assert world.audit.failures == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    setattr(world.disk, fault, NEVER)
    await world.audit.begin(admin("works"))
    assert world.audit.failing is None
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert world.outcomes() == [
        ("call0", "begun"),
        ("call0", "audit_failed"),
        ("call1", "begun"),
        ("call1", "audit_failed"),
        ("call2", "begun"),
        ("call2", "audit_failed"),
        ("cancel", "done"),
        ("works", "begun"),
    ]


async def test_administrative_calls_use_the_reserve_of_a_full_disk(world: World) -> None:
    """One step a call; lines that nobody waits for leave it to the messages."""
    world.steps = 1
    world.disk.full_at = ALWAYS
    world.audit.record(change())
    await world.synced()
    assert (world.steps, world.outcomes()) == (1, [])
    await world.audit.begin(admin())
    assert world.steps == 0
    assert world.outcomes() == [("cancel", "done"), ("putTopic", "begun")]
    world.disk.full_at = ALWAYS
    with pytest.raises(AuditError):
        await world.audit.begin(admin())


async def test_a_failing_disk_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "RETRY_SECONDS", 0.05)
    world.disk.full_at = ALWAYS
    world.audit.record(change())
    await world.synced()
    assert world.audit.failures > 0
    world.disk.full_at = NEVER
    await world.synced()
    assert world.outcomes() == [("cancel", "done")]
    assert world.audit.failing is None


async def test_a_disk_that_fails_from_the_start() -> None:
    """The broker serves; administrative calls are refused until the log can be opened."""
    world = World()
    world.disk.fail_at = ALWAYS
    async with world:
        with pytest.raises(AuditError):
            await world.audit.begin(admin())
        assert world.audit.head() is None
        world.disk.fail_at = NEVER
        await world.audit.begin(admin("later"))
        assert world.outcomes()[-1] == ("later", "begun")


async def test_lost_lines_are_counted_in_a_line(world: World) -> None:
    """Memory is bounded while the disk is full: the newest lines find no room."""
    world.disk.full_at = ALWAYS
    for _ in range(PENDING_MAX + 7):
        world.audit.record(change())
    with pytest.raises(AuditError):
        await world.audit.begin(admin("refused"))
    assert world.audit.pending == PENDING_MAX
    assert world.audit.lost == 8
    world.disk.full_at = NEVER
    await world.audit.stop()
    lines = lines_of(world.disk)
    assert sum(line.call == "cancel" for line in lines) == PENDING_MAX
    assert (lines[-1].call, lines[-1].outcome, lines[-1].count) == ("audit", "lost", 8)


async def test_a_bug_is_logged_and_refuses_calls(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(world.disk, "operate", None)
    with pytest.raises(AuditError):
        await world.audit.begin(admin())
    assert caplog.records[0].exc_info
    monkeypatch.undo()


async def test_a_caller_that_leaves_is_recorded(world: World) -> None:
    world.machine.threads.hold = True
    begun = asyncio.ensure_future(world.audit.begin(admin()))
    await world.turns()
    begun.cancel()
    await world.turns()
    world.machine.threads.release()
    await world.synced()
    assert world.outcomes() == [("putTopic", "begun"), ("putTopic", "cancelled")]


async def test_a_stop_writes_what_is_pending_and_refuses_later_calls(world: World) -> None:
    world.machine.threads.hold = True
    begun = asyncio.ensure_future(world.audit.begin(admin()))
    await world.turns()
    world.audit.record(change())
    stopping = asyncio.ensure_future(world.audit.stop())
    await world.turns()
    world.machine.threads.release()
    await stopping
    await begun
    assert [call for call, _ in world.outcomes()] == ["putTopic", "cancel"]
    with pytest.raises(AuditError, match="the node stops"):
        await world.audit.begin(admin())


async def test_a_stop_ends_on_a_full_disk(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.audit.record(change())
    world.disk.full_at = ALWAYS
    await world.audit.stop()
    assert "audit lines are lost at the stop" in caplog.text


async def test_metrics(world: World) -> None:
    registry = CollectorRegistry()
    registry.register(AuditMetrics(world.audit))
    await world.audit.begin(admin())
    world.disk.full_at = ALWAYS
    with pytest.raises(AuditError):
        await world.audit.begin(admin())
    text = generate_latest(registry).decode()
    for sample in (
        "delaylog_audit_lines_total 1.0",
        "delaylog_audit_failures_total 1.0",
        "delaylog_audit_lost_lines_total 0.0",
        "delaylog_audit_failing 1.0",
        "delaylog_audit_pending_lines 2.0",
    ):
        assert sample in text
