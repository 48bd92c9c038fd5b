"""The files: no acknowledged line is lost, and `verify` raises no false alarm after any fault.

Method: random sequences of writes, restarts, power cuts, faults, and clock changes on a disk in
memory, against a list of acknowledged lines; then single cases.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.host.audit.files import (
    BATCH_BYTES,
    AuditFiles,
    file_name,
    first_lines,
    torn_at,
)
from delaylog.broker.host.audit.lines import AuditHead, AuditLine
from delaylog.broker.host.audit.settings import AuditSettings
from delaylog.storage.errors import DiskFailedError, DiskFullError, StorageError
from tests.broker.host.audit.audit_world import (
    DAY_MS,
    ID,
    NOW_MS,
    PLACE,
    SMALL,
    a_line,
    files_on,
    lines_of,
    verified,
    write_all,
)
from tests.effort import tries
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival


class Killed(BaseException):
    """The process ends here; the disk goes on."""


@dataclass
class World:
    """The log, its disk, and what was acknowledged."""

    disk: FakeDisk = field(default_factory=FakeDisk)
    now_ms: int = NOW_MS
    made: int = 0
    pending: list[AuditLine] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    heads: list[AuditHead] = field(default_factory=list)
    days_passed: bool = False

    def __post_init__(self) -> None:
        self.files = files_on(self.disk)
        self.disk.sync_all()

    def write(self, count: int, fault: str = "", after: int = 0) -> None:
        for _ in range(count):
            self.made += 1
            self.pending.append(a_line(f"call{self.made}", self.now_ms))
        at = self.disk.count + after
        if fault == "full":
            self.disk.full_at = range(at, at + 5)
        elif fault == "failed":
            self.disk.fail_at = frozenset({at})
        try:
            while self.pending:
                written = self.files.write(self.pending, self.now_ms)
                self.acknowledged += [line.call for line in self.pending[:written]]
                del self.pending[:written]
            self.files.remove_old(self.now_ms)
        except StorageError:
            assert fault
        self.disk.full_at = self.disk.fail_at = frozenset()
        if self.files.head is not None:
            self.heads.append(self.files.head)

    def restart(self) -> None:
        """The process is killed: what it has not written is gone."""
        self.pending.clear()
        self.files = AuditFiles(self.disk, PLACE, 2, SMALL, ID)

    def write_until_killed(self, count: int, after: int) -> None:
        at = self.disk.count + after

        def strike() -> None:
            if self.disk.count == at:
                raise Killed

        self.disk.on_operation = strike
        with suppress(Killed):
            self.write(count)
        self.disk.on_operation = lambda: None
        self.restart()

    def cut_power(self, after: int, survival: Survival, seed: int) -> None:
        self.disk.crash_at = self.disk.count + after
        with suppress(DiskCrashed):
            self.write(8)
        self.disk = self.disk.restart(survival, seed)
        self.restart()

    def step_clock(self, days: int) -> None:
        self.days_passed |= days > 0
        self.now_ms += days * DAY_MS

    def check(self) -> None:
        report = verified(self.disk, self.heads)
        assert report.damage == []
        lines = lines_of(self.disk)
        if not lines:
            assert not self.acknowledged
            return
        assert [line.n for line in lines] == list(range(lines[0].n, lines[-1].n + 1))
        calls = [line.call for line in lines if line.call != "audit"]
        assert len(set(calls)) == len(calls)
        if lines[0].n == 1:
            assert [each for each in calls if each in set(self.acknowledged)] == self.acknowledged
        else:
            assert self.days_passed
            kept = [each for each in self.acknowledged if each in set(calls)]
            assert kept == self.acknowledged[len(self.acknowledged) - len(kept) :]


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 12)),
    st.tuples(
        st.just("write"), st.integers(0, 9), st.sampled_from(["full", "failed"]), st.integers(1, 9)
    ),
    st.tuples(st.just("restart")),
    st.tuples(
        st.just("cut_power"), st.integers(1, 14), st.sampled_from(SURVIVALS), st.integers(0, 99)
    ),
    st.tuples(st.just("step_clock"), st.integers(-4, 4)),
)


@settings(max_examples=tries(300))
@given(st.lists(STEPS, max_size=14))
def test_acknowledged_lines_survive_and_nothing_looks_damaged(
    steps: list[tuple[object, ...]],
) -> None:
    world = World()
    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
        world.check()
    world.write(1)
    assert not world.pending
    world.check()


@pytest.mark.parametrize("survival", SURVIVALS)
def test_power_is_cut_at_every_operation(survival: Survival) -> None:
    """Start, write, begin a file and remove old ones, cut at each operation in turn."""
    for at in range(1, 60):
        for seed in range(3):
            world = World()
            for _ in range(3):
                world.write(6)
            world.step_clock(5)
            world.cut_power(at, survival, seed)
            world.check()
            world.write(2)
            world.check()


@pytest.mark.parametrize("survival", ["nothing", "everything"])
@pytest.mark.parametrize("days", [0, 1])
@pytest.mark.parametrize("fault", ["full", "failed", "failed and restarted", "killed"])
def test_a_fault_at_every_operation(fault: str, days: int, survival: Survival) -> None:
    """In the first write and in a later one. Then lines are written, and the power is cut."""
    for lines_before in (0, 3):
        for at in range(1, 14):
            world = World()
            if lines_before:
                world.write(lines_before)
            if fault == "killed":
                world.write_until_killed(2, at)
            else:
                world.write(2, fault.removesuffix(" and restarted"), at)
            world.check()
            if fault == "failed and restarted":
                world.restart()
            if fault == "full":
                # What was written of the lines reaches the disk with time.
                world.disk.sync_all()
            world.step_clock(days)
            world.write(1)
            world.check()
            world.disk = world.disk.restart(survival)
            world.restart()
            world.check()
            world.write(1)
            world.check()


def test_a_start_that_fails_is_repeated() -> None:
    """The line of the start says what was cut, at whichever operation it failed."""
    for at in range(1, 9):
        disk = FakeDisk()
        write_all(files_on(disk), [a_line()])
        path = f"{PLACE}/{file_name(1)}"
        disk.put(path, disk.content(path) + b"torn")
        files = files_on(disk)
        disk.fail_at = frozenset({disk.count + at})
        with suppress(DiskFailedError):
            files.write([], NOW_MS)
        disk.fail_at = frozenset()
        files.write([], NOW_MS)
        assert lines_of(disk)[3].facts == {"cut_bytes": 4}


def test_a_new_file_begins_by_size_and_after_a_day() -> None:
    disk = FakeDisk()
    files = files_on(disk)
    write_all(files, [a_line()])
    write_all(files, [a_line()], NOW_MS + DAY_MS - 1)
    assert first_lines(disk, PLACE) == [1]
    write_all(files, [a_line()], NOW_MS + DAY_MS)
    assert first_lines(disk, PLACE) == [1, 5]
    for _ in range(6):
        write_all(files, [a_line()], NOW_MS + DAY_MS)
    assert first_lines(disk, PLACE) == [1, 5, 11]
    begun = [line for line in lines_of(disk) if line.outcome == "file_begun"]
    assert [line.n for line in begun] == [1, 5, 11]


@pytest.mark.parametrize(
    ("kept", "days", "count"),
    [
        (AuditSettings(file_bytes=1, keep_days=2), 2, 1),
        (AuditSettings(file_bytes=1, keep_days=2), 3, 2),
        (AuditSettings(file_bytes=1, keep_days=0), 3_000, 0),
        (AuditSettings(file_bytes=1, keep_days=0, keep_files=1), 0, 3),
    ],
)
def test_old_files_are_removed_by_age_and_count(kept: AuditSettings, days: int, count: int) -> None:
    """A removal names the file, its last line and its chain. It may begin a file itself."""
    disk = FakeDisk()
    files = files_on(disk, kept)
    heads = []
    for day in range(3):
        write_all(files, [a_line(), a_line()], NOW_MS + day * DAY_MS)
        assert files.head is not None
        heads.append(files.head)
    before = first_lines(disk, PLACE)
    write_all(files, [a_line()], NOW_MS + (2 + days) * DAY_MS)
    files.remove_old(NOW_MS + (2 + days) * DAY_MS)
    gone = set(before) - set(first_lines(disk, PLACE))
    removed = [line for line in lines_of(disk) if line.outcome == "removed"]
    assert [line.facts["file"] for line in removed] == [file_name(first) for first in sorted(gone)]
    assert gone == set(before[:count])
    assert verified(disk, heads).damage == []
    if gone:
        assert removed[-1].facts["chain"] == heads[len(gone) - 1].chain


def test_a_removal_that_fails_is_repeated() -> None:
    disk = FakeDisk()
    files = files_on(disk, AuditSettings(file_bytes=1, keep_files=1))
    write_all(files, [a_line()])
    write_all(files, [a_line()])
    disk.fail_at = range(disk.count + 1, disk.count + 9)
    with pytest.raises(DiskFailedError):
        files.remove_old(NOW_MS)
    disk.fail_at = frozenset()
    files.remove_old(NOW_MS)
    assert 1 not in first_lines(disk, PLACE)
    assert verified(disk).damage == []


def test_a_killed_process_leaves_an_incomplete_line() -> None:
    """It is cut, and the line of the start says how much was."""
    disk = FakeDisk()
    write_all(files_on(disk), [a_line("first"), a_line("second")])
    path = f"{PLACE}/{file_name(1)}"
    whole = disk.content(path)
    disk.put(path, whole[:-5])
    assert [note.what for note in verified(disk).notes] == [
        f"a torn tail of {len(whole.splitlines()[-1]) - 4} bytes; a start cuts it"
    ]
    write_all(files_on(disk), [a_line("third")])
    lines = lines_of(disk)
    assert [line.call for line in lines] == ["audit", "audit", "first", "audit", "third"]
    assert lines[3].facts == {"cut_bytes": len(whole.splitlines()[-1]) - 4}
    assert disk.listdir(PLACE) == [file_name(1)]
    assert verified(disk).notes == []


def test_whole_lines_that_are_cut_are_kept_aside() -> None:
    """After zeros of a power cut, or damage, complete lines may follow: they may be evidence."""
    disk = FakeDisk()
    write_all(files_on(disk), [a_line("first"), a_line("second"), a_line("third")])
    path = f"{PLACE}/{file_name(1)}"
    whole = disk.content(path)
    at = whole.index(b"second")
    start = whole.rindex(b"\n", 0, at) + 1
    disk.put(path, whole[:at] + b"\0\0" + whole[at + 2 :])
    write_all(files_on(disk), [a_line("fourth")])
    calls = [line.call for line in lines_of(disk) if line.call != "audit"]
    assert calls == ["first", "fourth"]
    aside = f"{file_name(1)}.cut-{start}"
    assert disk.content(f"{PLACE}/{aside}").endswith(whole[at + 2 :])
    report = verified(disk)
    assert report.damage == []
    assert [note.path for note in report.notes] == [f"audit/{aside}"]


def test_a_file_without_any_line_is_begun_again() -> None:
    """The process was killed while it began a file."""
    disk = FakeDisk()
    files = files_on(disk)
    write_all(files, [a_line()])
    assert files.head is not None
    following = f"{PLACE}/{file_name(files.head.n + 1)}"
    disk.put(following, b'{"n":4,')
    write_all(files_on(disk), [a_line()])
    assert first_lines(disk, PLACE) == [1, files.head.n + 1]
    assert lines_of(disk)[-2].facts == {"cut_bytes": 7}
    assert verified(disk, [files.head]).damage == []


def test_an_unreadable_file_is_not_cut_away() -> None:
    """A damaged end is no reason to begin again at 1, nor to lose what can still be read."""
    disk = FakeDisk()
    files = files_on(disk, AuditSettings())
    write_all(files, [a_line() for _ in range(5_000)])
    assert files.head is not None
    path = f"{PLACE}/{file_name(1)}"
    whole = disk.content(path)
    assert len(whole) > BATCH_BYTES
    disk.put(path, whole + b"x\n" * (2 * BATCH_BYTES))
    write_all(again := files_on(disk, AuditSettings()), [a_line()])
    assert again.head is not None
    assert again.head.n == files.head.n + 2
    assert verified(disk, [files.head]).damage == []


def test_a_write_is_bounded() -> None:
    """So the damage of a power cut is."""
    disk = FakeDisk()
    files = files_on(disk, AuditSettings())
    lines = [a_line() for _ in range(10_000)]
    written = files.write(lines, NOW_MS)
    size = len(disk.content(f"{PLACE}/{file_name(1)}"))
    assert BATCH_BYTES <= size <= BATCH_BYTES + 400
    assert 0 < written < len(lines)
    assert files.head is not None
    assert files.head.n == written + 2


def test_a_full_disk_changes_nothing() -> None:
    disk = FakeDisk()
    files = files_on(disk)
    disk.full_at = range(1, 100)
    with pytest.raises(DiskFullError):
        files.write([a_line()], NOW_MS)
    assert files.head is None
    disk.full_at = frozenset()
    write_all(files, [a_line()])
    before = files.head
    disk.full_at = range(1, 100)
    with pytest.raises(DiskFullError):
        files.write([a_line()], NOW_MS)
    assert files.head == before


@pytest.mark.parametrize(
    ("tail", "whole"),
    [(b"", 0), (b"a\n", 2), (b"a\nb", 2), (b"a\nb\0\nc\n", 2), (b"\0\0", 0), (b"abc", 0)],
)
def test_torn(tail: bytes, whole: int) -> None:
    assert torn_at(tail) == whole
