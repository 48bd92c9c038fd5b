"""A halt ends spawned work where it stands; large sends leave turns of the loop to single ones.

Work of our own, on a real loop and a real thread; jobs wait for events that the test sets. Tasks
note the turn in which they were let through: who waits, in which order, and that nobody who gives
up takes a turn along.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from inspect import GEN_SUSPENDED, getgeneratorstate
from typing import Any

import pytest

from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host import background
from delaylog.broker.host.background import GAP_TURNS, Background, TurnShares, Turnstile
from delaylog.broker.host.machine import REAL
from delaylog.storage.errors import DiskFailedError, DiskFullError
from delaylog.storage.work import Work
from tests.waiting import until


class Run(AbstractAsyncContextManager["Run"]):
    """A background, and what it told its node."""

    def __init__(self) -> None:
        self.appends = 0
        self.full = 0
        self.ends = 0
        self.fatal: list[BaseException] = []
        self.seen: list[str] = []
        self.held: Work | None = None
        self.begun = threading.Event()
        self.go_on = threading.Event()

    async def __aenter__(self) -> Run:
        loop = asyncio.get_running_loop()
        commits: Any = self
        self.background = Background(
            commits, loop, self.fatal.append, on_end=self._end, machine=REAL
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        self.go_on.set()
        self.background.shutdown()

    def appended(self) -> None:
        self.appends += 1

    def found_full(self) -> None:
        self.full += 1

    def _end(self) -> None:
        self.ends += 1

    def job(self) -> None:
        """A job that ends when the test says so."""
        self.begun.set()
        assert self.go_on.wait(30)
        self.seen.append("job ended")

    def work(self, job: Callable[[], None]) -> Work:
        try:
            yield job
            self.seen.append("went on")
        finally:
            self.seen.append("closed")

    async def works(self) -> None:
        """Once it may go on, work of any name runs, from its begin to its end."""
        self.background.go_on()
        done = asyncio.Event()

        def work() -> Work:
            yield lambda: None
            done.set()

        self.background.spawn("work", work)
        await asyncio.wait_for(done.wait(), 30)

    async def begin(self, job: Callable[[], None]) -> None:
        """Spawn work and wait until its job runs."""
        # Held here, so that it is closed by whoever ends it and not for want of a holder.
        held = self.held = self.work(job)
        self.background.spawn("work", lambda: held)
        await until(self.begun.is_set)


@pytest.fixture
def it() -> Run:
    return Run()


async def test_a_halt_waits_for_the_job_that_runs(it: Run) -> None:
    """Work is closed behind its job, does not go on, and nothing begins meanwhile."""
    await it.begin(it.job)
    halt = asyncio.ensure_future(it.background.halt())
    await asyncio.sleep(0.05)
    assert not halt.done()
    assert it.seen == []
    it.background.spawn("other", lambda: it.work(lambda: it.seen.append("other")))
    it.go_on.set()
    await halt
    assert it.seen == ["job ended", "closed"]
    assert not it.fatal
    ends = it.ends
    await it.works()
    assert it.ends > ends, "who waits for room looks again"
    assert it.seen == ["job ended", "closed"]


async def test_jobs_in_line_do_not_run(it: Run) -> None:
    await it.begin(it.job)
    second = it.work(lambda: it.seen.append("second"))
    it.background.spawn("second", lambda: second)
    await until(lambda: getgeneratorstate(second) == GEN_SUSPENDED)
    halt = asyncio.ensure_future(it.background.halt())
    await asyncio.sleep(0.01)
    it.go_on.set()
    await halt
    assert it.seen == ["job ended", "closed", "closed"]


async def test_work_halted_before_it_began(it: Run) -> None:
    """Its task is cancelled before its first line: its name is free all the same."""
    it.background.spawn("work", lambda: it.work(it.job))
    await it.background.halt()
    assert it.seen == []
    await it.works()


@pytest.mark.parametrize("pause", [None, 5.0])
async def test_work_halted_between_jobs(it: Run, pause: float | None) -> None:
    """In a slice that gave way, or waiting for the log."""

    def slices() -> Work:
        while True:
            yield pause

    it.background.spawn("work", slices)
    await until(lambda: it.appends == (pause is not None))
    await asyncio.sleep(0.01)
    await it.background.halt()
    await it.works()


@pytest.mark.parametrize(
    ("error", "fatal"), [(DiskFailedError("fdatasync failed"), 1), (DiskFullError("full"), 0)]
)
async def test_a_job_that_fails_under_a_halt(it: Run, error: Exception, fatal: int) -> None:
    """A failed disk is not passed over because nobody waits for the job any more."""

    def fail() -> None:
        it.job()
        raise error

    await it.begin(fail)
    halt = asyncio.ensure_future(it.background.halt())
    await asyncio.sleep(0.01)
    it.go_on.set()
    await halt
    assert it.fatal == [error] * fatal
    assert it.seen == ["job ended", "closed"]
    await it.works()


async def test_a_halt_while_work_waits_for_space(it: Run) -> None:
    """The log's next try does not depend on the work that found the disk full."""

    def fail() -> None:
        raise DiskFullError("full")

    it.background.spawn("work", lambda: it.work(fail))
    await until(lambda: it.full)
    await it.background.halt()
    assert not it.fatal
    await it.works()


async def test_a_halt_of_nothing(it: Run) -> None:
    await it.background.halt()
    await it.background.halt()
    await it.works()


async def test_what_somebody_waits_for_goes_no_further(it: Run) -> None:
    """What it looks at is gone: whoever asked is told, and asks the leader."""
    asked = asyncio.ensure_future(it.background.run(it.work(it.job)))
    await until(it.begun.is_set)
    halt = asyncio.ensure_future(it.background.halt())
    await asyncio.sleep(0.01)
    it.go_on.set()
    await halt
    assert it.seen[0] == "job ended"
    with pytest.raises(NotLeadingError):
        await asked
    assert it.seen == ["job ended", "closed"]


async def test_what_waits_for_its_turn_does_not_begin_after_a_halt(it: Run) -> None:
    """A slice leaves turns to other calls, and the next work would begin in the midst of a halt."""
    works = [it.work(it.begun.set), it.work(lambda: it.seen.append("second"))]
    asked = [asyncio.ensure_future(it.background.run(each)) for each in works]
    await asyncio.sleep(0)
    async with it.background.halted():
        await asyncio.sleep(0.02)
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in ended] == [NotLeadingError] * 2
    assert it.begun.is_set()
    assert it.seen == ["closed"], "of the first one"


async def test_nothing_begins_before_it_may_go_on(it: Run) -> None:
    """What is asked for between the halt and the exchange would work for what was dropped."""
    async with it.background.halted():
        it.background.spawn("work", lambda: it.work(lambda: it.seen.append("spawned")))
        with pytest.raises(NotLeadingError):
            await it.background.run(it.work(lambda: it.seen.append("run")))
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.02)
    assert it.seen == []
    await it.works()


async def test_whoever_gives_up_in_a_halt_leaves_it_when_it_is_over(it: Run) -> None:
    """What runs was told to end, and has ended when files may be closed next."""

    async def halted() -> None:
        async with it.background.halted():
            raise AssertionError("it was given up before")

    await it.begin(it.job)
    halt = asyncio.ensure_future(halted())
    await asyncio.sleep(0.01)
    halt.cancel()
    await asyncio.sleep(0.01)
    assert not halt.done()
    it.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await halt
    assert it.seen == ["job ended", "closed"]
    await it.works()


async def test_on_the_way_out_nothing_begins(it: Run) -> None:
    await it.begin(it.job)
    it.background.refuse()
    it.background.spawn("other", lambda: it.work(lambda: it.seen.append("other")))
    it.go_on.set()
    await it.background.finished()
    assert it.seen == ["job ended", "went on", "closed"]
    assert it.background.refusing


# Large sends leave turns of the loop to single ones, and wait for nothing while there are none


class Turns:
    """Counts turns of the loop, and who passed in which."""

    def __init__(self) -> None:
        self.shares = TurnShares(time.monotonic)
        self.now = 0
        self.passed: list[tuple[str, int]] = []
        asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self.now += 1
        asyncio.get_running_loop().call_soon(self._count)

    def send(self, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._send(name))

    async def _send(self, name: str) -> None:
        await self.shares.wait_for_turn()
        self.passed.append((name, self.now))


async def test_alone_they_all_pass_at_once() -> None:
    turns = Turns()
    await asyncio.gather(*map(turns.send, "abc"))
    assert len({turn for _, turn in turns.passed}) == 1


async def test_beside_single_sends_they_pass_one_by_one() -> None:
    turns = Turns()
    turns.shares.note_single_send()
    await asyncio.gather(*map(turns.send, "abcd"))
    assert [name for name, _ in turns.passed] == list("abcd")
    at = [turn for _, turn in turns.passed]
    assert all(b - a > GAP_TURNS for a, b in itertools.pairwise(at))


async def test_they_go_on_when_no_single_send_is_expected_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "BESIDE_SECONDS", -1.0)
    turns = Turns()
    turns.shares.note_single_send()
    await asyncio.gather(*map(turns.send, "abc"))
    assert len({turn for _, turn in turns.passed}) == 1


@pytest.mark.parametrize("turns_later", range(2 * GAP_TURNS + 4))
async def test_who_gives_up_takes_no_turn_along(turns_later: int) -> None:
    """Whenever that is: before its turn, as its turn comes, or after it."""
    turns = Turns()
    turns.shares.note_single_send()
    a, b, c = map(turns.send, "abc")
    for _ in range(turns_later):
        await asyncio.sleep(0)
    b.cancel()
    await asyncio.gather(a, b, c, return_exceptions=True)
    await turns.send("d")
    assert [name for name, _ in turns.passed if name != "b"] == list("acd")


async def test_a_gap_of_long_turns_ends_by_time() -> None:
    """So that callers keep a share of a loop whose other calls take long; alone they do not wait
    for the first turn, and do for each further one.
    """
    now = itertools.count().__next__
    for gap_s_max, turns_apart in ((2, 3), (math.inf, GAP_TURNS + 2)):
        turns, stile = Turns(), Turnstile(now, gap_s_max=gap_s_max)
        passed: list[int] = []
        for _ in range(3):
            await stile.pass_one()
            passed.append(turns.now)
        assert passed[0] == 0
        assert passed[2] - passed[1] == turns_apart
