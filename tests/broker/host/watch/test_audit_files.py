"""The files of the audit log and their lines: no fault loses one that was acknowledged.

Method: random sequences of writes, restarts, power cuts and faults on a disk in memory, against a
list of acknowledged lines; then single cases. Old files are removed by number. Of lines: their
exact bytes, and values that a client chose.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.host.watch.audit_files import (
    FACTS_MAX,
    TEXT_MAX,
    AuditFiles,
    AuditLine,
    printable,
    time_text,
)
from delaylog.storage.errors import DiskFailedError, DiskFullError, StorageError
from tests.effort import tries
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

PLACE = "data/audit"
FILE_BYTES = 100


def files_on(disk: FakeDisk, files_max: int = 100) -> AuditFiles:
    """The log's files, as a new process opens them."""
    return AuditFiles(disk, PLACE, FILE_BYTES, files_max)


def contents(disk: FakeDisk) -> list[bytes]:
    """The bytes of each file, oldest first."""
    names = disk.listdir(PLACE) if disk.exists(PLACE) else []
    return [disk.content(f"{PLACE}/{name}") for name in names if name.endswith(".jsonl")]


def test_the_newest_file_is_moved_away() -> None:
    """The next line begins a file, whose name no file had."""
    world = World()
    world.write()
    names = world.disk.listdir(PLACE)
    world.disk.unlink(f"{PLACE}/{names[-1]}")
    world.write()
    assert len(contents(world.disk)) == 1
    assert not set(names) & set(world.disk.listdir(PLACE))
    world.disk.remove_tree(PLACE)
    world.write()
    assert b"".join(contents(world.disk)) == b"".join(world.acknowledged[-2:])


class Killed(BaseException):
    """The process ends here."""


class World:
    """The files, their disk, and the lines that were acknowledged."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.disk.mkdir("data")
        self.disk.sync_all()
        self.files = files_on(self.disk)
        self.made = 0
        self.acknowledged: list[bytes] = []

    def write(self, fault: str = "", after: int = 0) -> None:
        """Append two lines; a failed write is repeated once, as the log does it."""
        lines = []
        for _ in range(2):
            self.made += 1
            lines.append(b"line %d %s\n" % (self.made, b"x" * (self.made % 30)))
        at = self.disk.count + after
        if fault == "full":
            self.disk.full_at = range(at, at + 5)
        elif fault == "failed":
            self.disk.fail_at = frozenset({at})
        try:
            self.files.append(b"".join(lines))
        except StorageError:
            assert fault
            self.disk.full_at = self.disk.fail_at = frozenset()
            self.files.append(b"".join(lines))
        self.disk.full_at = self.disk.fail_at = frozenset()
        self.acknowledged += lines

    def restart(self) -> None:
        self.files = files_on(self.disk)

    def kill(self, after: int) -> None:
        """The process ends while it writes; the disk goes on."""
        at = self.disk.count + after

        def strike() -> None:
            if self.disk.count == at:
                raise Killed

        self.disk.on_operation = strike
        with suppress(Killed):
            for _ in range(4):
                self.write()
        self.disk.on_operation = lambda: None
        self.restart()

    def cut_power(self, after: int, survival: Survival, seed: int) -> None:
        self.disk.crash_at = self.disk.count + after
        with suppress(DiskCrashed):
            for _ in range(4):
                self.write()
        self.disk = self.disk.restart(survival, seed)
        self.restart()

    def check(self) -> None:
        """Each acknowledged line is there once, in order."""
        found = [line for data in contents(self.disk) for line in data.splitlines(keepends=True)]
        known = set(self.acknowledged)
        assert [line for line in found if line in known] == self.acknowledged


STEPS = st.one_of(
    st.tuples(st.just("write")),
    st.tuples(st.just("write"), st.sampled_from(["full", "failed"]), st.integers(1, 9)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("kill"), st.integers(1, 14)),
    st.tuples(
        st.just("cut_power"), st.integers(1, 14), st.sampled_from(SURVIVALS), st.integers(0, 99)
    ),
)


@settings(max_examples=tries(300))
@given(st.lists(STEPS, max_size=14))
def test_acknowledged_lines_survive(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
        world.check()
    world.write()
    world.check()


@pytest.mark.parametrize("survival", SURVIVALS)
@pytest.mark.parametrize("fault", ["", "full", "failed"])
def test_a_fault_and_a_power_cut_at_every_operation(fault: str, survival: Survival) -> None:
    """In the first write, which makes the folder and a file, and in later ones."""
    for writes_before in (0, 1, 4):
        for fault_at in range(1, 10) if fault else (0,):
            for cut_at in range(1, 12):
                world = World()
                for _ in range(writes_before):
                    world.write()
                world.write(fault, fault_at)
                world.cut_power(cut_at, survival, cut_at)
                world.check()
                world.write()
                world.check()


def test_a_new_file_begins_at_a_size() -> None:
    world = World()
    for _ in range(8):
        world.files.append(b"x" * 39 + b"\n")
    world.restart()
    world.files.append(b"more\n")
    assert [len(data) for data in contents(world.disk)] == [120, 120, 85]
    assert world.disk.listdir(PLACE)[0] == "audit-00000000000000000001.jsonl"


@pytest.mark.parametrize("left", [b"first\nsec", b"first\n\0\0\0\0ond\n"])
def test_the_end_that_a_crash_left_gets_no_more_lines(left: bytes) -> None:
    """A killed process leaves part of a line, a power cut zeros where it was not synced."""
    disk = FakeDisk()
    disk.mkdir("data")
    files_on(disk).append(b"first\n")
    disk.put(f"{PLACE}/{disk.listdir(PLACE)[0]}", left)
    files_on(disk).append(b"third\n")
    files_on(disk).append(b"fourth\n")
    assert contents(disk) == [left, b"third\nfourth\n"]


def test_the_oldest_files_are_removed() -> None:
    disk = FakeDisk()
    disk.mkdir("data")
    files = files_on(disk, files_max=2)
    for number in range(5):
        files.append(b"%d" % number * FILE_BYTES + b"\n")
    assert [data[:1] for data in contents(disk)] == [b"3", b"4"]


def test_a_file_that_cannot_be_removed_does_not_stop_the_log() -> None:
    disk = FakeDisk()
    disk.mkdir("data")
    files = files_on(disk, files_max=1)

    def refuse() -> None:
        if disk.log[-1].startswith("unlink"):
            raise DiskFailedError("it is immutable")

    disk.on_operation = refuse
    for number in range(3):
        files.append(b"%d" % number * FILE_BYTES + b"\n")
    disk.on_operation = lambda: None
    assert [data[:1] for data in contents(disk)] == [b"0", b"1", b"2"]
    files.append(b"3" * FILE_BYTES + b"\n")
    assert [data[:1] for data in contents(disk)] == [b"3"]


@pytest.mark.parametrize(
    ("fault", "error"), [("full_at", DiskFullError), ("fail_at", DiskFailedError)]
)
def test_a_disk_that_refuses_lines(fault: str, error: type[StorageError]) -> None:
    world = World()
    world.files.append(b"first\n")
    setattr(world.disk, fault, range(1 << 40))
    for _ in range(3):
        with pytest.raises(error):
            world.files.append(b"second\n")
    setattr(world.disk, fault, frozenset())
    world.files.append(b"third\n")
    assert contents(world.disk) == [b"first\nthird\n"]


# ---------------------------------------- Lines: their exact bytes, and values that a client chose


NOW_MS = 1_800_000_000_000


def test_the_bytes_of_a_known_line() -> None:
    line = AuditLine(
        time=time_text(NOW_MS + 7),
        node=2,
        principal="alice",
        address="10.0.0.7",
        face="http",
        call="putTopic",
        right="admin",
        topic="reminders",
        request_id="r1",
        facts={"retries_max": 5},
    )
    assert line.encode() == (
        b'{"time":"2027-01-15T08:00:00.007Z","node":2,"principal":"alice","address":"10.0.0.7",'
        b'"face":"http","call":"putTopic","right":"admin","namespace":null,"topic":"reminders",'
        b'"group":null,"count":null,"outcome":"done","request_id":"r1","facts":{"retries_max":5}}\n'
    )


@settings(max_examples=tries(200))
@given(st.text(max_size=400), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_no_value_breaks_or_disguises_a_line(text: str, facts: dict[str, str | int | None]) -> None:
    """Whatever a client sends, the line is one printable line of JSON."""
    raw = AuditLine(principal=text, call=text, topic=text, facts=facts).encode()
    assert raw.endswith(b"\n")
    assert raw.decode()[:-1].isprintable()
    assert json.loads(raw)["call"] == printable(text)


def test_values_are_bounded() -> None:
    wide = "\N{GRINNING FACE}" * 1_000
    many: dict[str, str | int] = {f"{k}{wide}": wide for k in range(100)}
    line = json.loads(AuditLine(call=wide, group=wide, facts=many).encode())
    assert len(line["call"]) == len(line["group"]) == TEXT_MAX
    assert len(line["facts"]) == FACTS_MAX
    assert {len(text) for fact in line["facts"].items() for text in fact} == {TEXT_MAX}
    line = json.loads(AuditLine(facts={"big": 1 << 70}).encode())
    assert line["facts"] == {"big": str(1 << 70)}


def test_control_characters_are_escaped() -> None:
    assert printable("a\nb\x1b[2J\u2028\u202e\ud800") == r"a\nb\x1b[2J\u2028\u202e\ud800"
    assert printable("naïve ☃") == "naïve ☃"


def test_the_documentation_lists_every_field() -> None:
    page = Path("docs/FORMATS.md").read_text()
    part = page[page.index("\n## Audit log") : page.index("\n## Cluster")]
    listed = [row.split("`")[1] for row in part.splitlines() if row.startswith("- `")]
    assert listed[: len(fields(AuditLine))] == [each.name for each in fields(AuditLine)]
