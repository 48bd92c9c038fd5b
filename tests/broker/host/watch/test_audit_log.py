"""The audit log of a node: what is durable when, and what happens while the disk refuses lines.

Method: the real log on a disk in memory, whose thread runs inline, so that each step is one turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from delaylog.broker.host.machine import RealMachine
from delaylog.broker.host.watch.audit_files import AuditLine, AuditSettings
from delaylog.broker.host.watch.audit_log import (
    PENDING_MAX,
    REFUSALS_MAX,
    SYNC_SECONDS,
    WRITE_AT,
    AuditError,
    AuditLog,
)
from tests.storage.fake_disk import FakeDisk

NOW_MS = 1_800_000_000_000
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


async def nothing() -> None:
    """A call that succeeds at once."""


class World:
    """A log that has started, and its disk."""

    def __init__(self, mode: str = "changes") -> None:
        self.disk = FakeDisk()
        self.disk.mkdir("data")
        self.disk.sync_all()
        self.machine = StillMachine()
        self.steps = 0
        """Steps that the reserve still has."""
        self.audit = AuditLog(
            self.disk, "data/audit", 2, AuditSettings(mode), self.machine, self.make_room
        )

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
        self.machine.threads.release()
        await self.audit.stop()

    async def turns(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def synced(self) -> None:
        await asyncio.sleep(SYNC_SECONDS + 0.1)
        await self.turns()

    async def administer(
        self, call: str = "putTopic", work: Callable[[], Awaitable[None]] = nothing
    ) -> None:
        """Carry out an administrative call."""
        line = admin(call)
        await self.audit.carry(
            "admin", lambda outcome: replace(line, outcome=outcome), work, lambda error: None
        )

    def lines(self) -> list[dict[str, Any]]:
        """Every line of all files but those of starts."""
        names = self.disk.listdir("data/audit") if self.disk.exists("data/audit") else []
        files = [self.disk.content(f"data/audit/{name}") for name in names]
        found = [json.loads(line) for file in files for line in file.splitlines()]
        return [line for line in found if line["outcome"] != "started"]

    def outcomes(self) -> list[tuple[str, str]]:
        """Call and outcome of each line."""
        return [(line["call"], line["outcome"]) for line in self.lines()]


def admin(call: str = "putTopic", **how: Any) -> AuditLine:
    return AuditLine(call=call, right="admin", principal="alice", face="http", **how)


def change(call: str = "cancel") -> AuditLine:
    return AuditLine(call=call, right="change", principal="alice", face="http")


def refusal(address: str, call: str = "login", principal: str | None = None) -> AuditLine:
    return AuditLine(call=call, address=address, principal=principal, outcome="unauthorized")


async def test_an_administrative_call_is_carried_out_after_its_line_is_durable() -> None:
    async with World() as world:
        seen: list[tuple[str, str]] = []

        async def work() -> None:
            world.disk = world.disk.restart("nothing")
            seen.extend(world.outcomes())

        world.machine.threads.hold = True
        call = asyncio.ensure_future(world.administer(work=work))
        await world.turns()
        assert not call.done()
        assert world.outcomes() == []
        world.machine.threads.release()
        await call
        assert seen == [("putTopic", "begun")]
        (line,) = world.lines()
        assert (line["time"], line["node"]) == ("2027-01-15T08:00:00.000Z", 2)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError(), "refused"),
        (KeyError(), "failed"),
        (asyncio.CancelledError(), "client_left"),
    ],
)
async def test_the_outcome_of_a_call_that_ends_by_an_error(
    error: BaseException, outcome: str
) -> None:
    async with World() as world:

        async def work() -> None:
            raise error

        with pytest.raises(type(error)):
            await world.audit.carry(
                "change",
                lambda outcome: replace(change(), outcome=outcome),
                work,
                lambda error: "refused" if isinstance(error, ValueError) else None,
            )
    assert world.outcomes() == [("cancel", outcome)]


async def test_lines_of_one_turn_share_a_sync() -> None:
    async with World() as world:
        syncs = len([each for each in world.disk.log if each.startswith("sync")])
        await asyncio.gather(*(world.administer() for _ in range(20)))
        assert len([each for each in world.disk.log if each.startswith("sync")]) == syncs + 1
        assert len(world.outcomes()) == 20


async def test_outcomes_and_changes_are_synced_within_a_second() -> None:
    async with World() as world:
        await world.administer()
        world.audit.record(change())
        await world.turns()
        assert world.outcomes() == [("putTopic", "begun")]
        await world.synced()
        assert world.outcomes()[1:] == [("putTopic", "done"), ("cancel", "done")]


async def test_many_lines_do_not_wait() -> None:
    async with World() as world:
        for _ in range(WRITE_AT):
            world.audit.record(change())
        await world.turns()
        assert len(world.outcomes()) == WRITE_AT


@pytest.mark.parametrize(
    ("mode", "recorded"),
    [
        ("changes", ["admin", "operate", "change"]),
        ("all", ["admin", "operate", "change", "send", "read"]),
        ("off", []),
    ],
)
async def test_modes(mode: str, recorded: list[str]) -> None:
    async with World(mode) as world:
        await world.administer("carried")
        for right in ("admin", "operate", "change", "send", "read"):
            world.audit.record(AuditLine(call=right, right=right))
        world.audit.refused(refusal("10.0.0.8"))
    calls = [call for call, _ in world.outcomes()]
    assert calls == (["carried", "carried", *recorded, "login"] if recorded else [])
    assert world.disk.exists("data/audit") == bool(recorded)


async def test_refusals_that_are_alike_share_a_line() -> None:
    """A stranger that tries tokens at full speed does not fill the disk."""
    async with World() as world:
        for number in range(1_000):
            for address in ("10.0.0.8", "10.0.0.9"):
                world.audit.refused(replace(refusal(address), request_id=str(number)))
        await world.synced()
        found = [(line["address"], line["count"], line["request_id"]) for line in world.lines()]
        assert found == [("10.0.0.8", 1_000, "0"), ("10.0.0.9", 1_000, "0")]
        world.audit.refused(refusal("10.0.0.8"))
        await world.synced()
        assert [line["count"] for line in world.lines()[2:]] == [1]


async def test_a_stranger_cannot_make_lines_differ() -> None:
    """A stranger chooses the path, and so the name of the call. A principal's calls are known."""
    async with World() as world:
        for number in range(50):
            for principal in (None, "alice"):
                world.audit.refused(refusal("10.0.0.8", f"/v1/guess-{number}", principal))
    found = world.lines()
    assert [line["count"] for line in found if line["principal"] is None] == [50]
    assert len([line for line in found if line["principal"]]) == 50


async def test_refusals_from_everywhere_share_a_line_too() -> None:
    async with World() as world:
        for number in range(3 * REFUSALS_MAX):
            world.audit.refused(refusal(f"10.0.{number // 250}.{number % 250}"))
    found = world.lines()
    assert len(found) == REFUSALS_MAX + 1
    assert sum(line["count"] for line in found) == 3 * REFUSALS_MAX
    assert (found[-1]["call"], found[-1]["address"]) == ("audit", None)


@pytest.mark.parametrize(("fault", "full"), [("full_at", True), ("fail_at", False)])
async def test_administrative_calls_are_refused_while_the_disk_refuses_lines(
    caplog: pytest.LogCaptureFixture, fault: str, full: bool
) -> None:
    """It is logged once. When the disk takes lines again, the refused calls are recorded too."""
    caplog.set_level(logging.INFO, "delaylog.audit")

    async def carried_out() -> None:
        raise AssertionError("carried out")

    async with World() as world:
        setattr(world.disk, fault, ALWAYS)
        for number in range(2):
            with pytest.raises(AuditError, match="was not carried out") as caught:
                await world.administer(f"call{number}", carried_out)
            assert caught.value.full is full
        world.audit.record(change())
        assert world.audit.failing is not None
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        setattr(world.disk, fault, NEVER)
        await world.administer("works")
        assert world.audit.failing is None
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
        assert world.outcomes() == [
            ("call0", "begun"),
            ("call0", "audit_failed"),
            ("call1", "begun"),
            ("call1", "audit_failed"),
            ("cancel", "done"),
            ("works", "begun"),
        ]


async def test_administrative_calls_use_the_reserve_of_a_full_disk() -> None:
    """One step a call; lines that nobody waits for leave it to the messages."""
    async with World() as world:
        world.steps = 1
        world.disk.full_at = ALWAYS
        world.audit.record(change())
        await world.synced()
        assert world.audit.failing is not None
        assert world.steps == 1
        await world.administer()
        assert world.steps == 0
        assert world.outcomes() == [("cancel", "done"), ("putTopic", "begun")]
        world.disk.full_at = ALWAYS
        with pytest.raises(AuditError):
            await world.administer()


async def test_a_failing_disk_is_tried_again() -> None:
    async with World() as world:
        world.disk.full_at = ALWAYS
        world.audit.record(change())
        await world.synced()
        assert world.audit.failing is not None
        world.disk.full_at = NEVER
        await world.synced()
        assert world.outcomes() == [("cancel", "done")]
        assert world.audit.failing is None


async def test_a_disk_that_fails_from_the_start() -> None:
    """The broker serves; administrative calls are refused until the log can be opened."""
    world = World()
    world.disk.fail_at = ALWAYS
    async with world:
        assert world.audit.failing is not None
        with pytest.raises(AuditError):
            await world.administer()
        world.disk.fail_at = NEVER
        await world.administer("later")
        assert world.outcomes()[-1] == ("later", "begun")


async def test_lost_lines_are_counted_in_a_line() -> None:
    """Memory is bounded while the disk is full: the newest lines find no room."""
    async with World() as world:
        world.disk.full_at = ALWAYS
        for _ in range(PENDING_MAX + 7):
            world.audit.record(change())
        with pytest.raises(AuditError):
            await world.administer()
        await world.synced()
        await world.synced()
        world.disk.full_at = NEVER
        await world.audit.stop()
        lines = world.lines()
        assert sum(line["call"] == "cancel" for line in lines) == PENDING_MAX
        last = lines[-1]
        assert (last["call"], last["outcome"], last["count"]) == ("audit", "lost", 9)


async def test_a_bug_is_logged_and_refuses_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with World() as world:
        monkeypatch.setattr(world.disk, "operate", None)
        with pytest.raises(AuditError):
            await world.administer()
        assert caplog.records[0].exc_info
        monkeypatch.undo()


async def test_a_caller_that_leaves_before_its_call_begins_is_recorded() -> None:
    async with World() as world:
        world.machine.threads.hold = True
        call = asyncio.ensure_future(world.administer())
        await world.turns()
        call.cancel()
        await world.turns()
    assert world.outcomes() == [("putTopic", "begun"), ("putTopic", "client_left")]


async def test_a_stop_writes_what_is_pending_and_refuses_later_calls() -> None:
    async with World() as world:
        world.machine.threads.hold = True
        call = asyncio.ensure_future(world.administer())
        await world.turns()
        world.audit.record(change())
        stopping = asyncio.ensure_future(world.audit.stop())
        await world.turns()
        world.machine.threads.release()
        await stopping
        await call
        assert {call for call, _ in world.outcomes()} == {"putTopic", "cancel"}
        with pytest.raises(AuditError, match="the node stops"):
            await world.administer()


async def test_a_stop_ends_on_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as world:
        world.audit.record(change())
        world.disk.full_at = ALWAYS
        await world.audit.stop()
        assert "audit lines are lost at the stop" in caplog.text


async def test_metrics() -> None:
    async with World() as world:
        registry = CollectorRegistry()
        registry.register(world.audit)
        assert "delaylog_audit_failing 0.0" in generate_latest(registry).decode()
        world.disk.full_at = ALWAYS
        with pytest.raises(AuditError):
            await world.administer()
        text = generate_latest(registry).decode()
        assert "delaylog_audit_failing 1.0" in text
        assert "delaylog_audit_lost_lines_total 0.0" in text
