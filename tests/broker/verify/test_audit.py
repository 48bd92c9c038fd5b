"""Verify the audit log: every change of its files is found, up to the newest head at least.

Method: a log of several files, of which the node has removed two, is tampered with in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.access.commands import note_audit_head
from delaylog.broker.host.audit.files import (
    BATCH_BYTES,
    AuditFiles,
    file_name,
    first_line,
    first_lines,
)
from delaylog.broker.host.audit.lines import (
    LINE_BYTES_MAX,
    AuditHead,
    AuditLine,
    decode_line,
    encode_line,
    split_line,
)
from delaylog.broker.host.audit.settings import AuditSettings
from delaylog.broker.verify.audit import verify_audit
from delaylog.broker.verify.folder import verify_folder
from delaylog.broker.verify.report import Report
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.whole_files import write_file
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
from tests.storage.fake_disk import FakeDisk


def make_log() -> tuple[dict[int, bytes], list[AuditHead]]:
    """The files of a log, by their first line, and two heads: the newest is not its last line."""
    disk = FakeDisk()
    files = files_on(disk, AuditSettings(file_bytes=2_000, keep_days=1))
    heads: list[AuditHead] = []
    for day in range(6):
        now_ms = NOW_MS + day * DAY_MS
        write_all(files, [a_line(f"call{day}.{k}", now_ms) for k in range(2)], now_ms)
        if day < 5:
            # The line of a removal would be another one that nobody can cut off.
            files.remove_old(now_ms)
        if day in (3, 5):
            assert files.head is not None
            heads.append(files.head)
        write_all(files, [a_line(f"call{day}.{k}", now_ms) for k in range(2, 4)], now_ms)
    firsts = first_lines(disk, PLACE)
    return {first: disk.content(f"{PLACE}/{file_name(first)}") for first in firsts}, heads


FILES, HEADS = make_log()
FIRST: Final = min(FILES)
LAST: Final = max(FILES)
NEWEST: Final = HEADS[-1].n
LINES: Final = [line for first in sorted(FILES) for line in FILES[first].splitlines(keepends=True)]
HEAD_AT: Final = NEWEST - FIRST
"""Index in LINES of the line that the newest head names."""


def judge(files: dict[int, bytes], heads: list[AuditHead] = HEADS) -> Report:
    disk = FakeDisk()
    disk.mkdir(PLACE)
    for first, data in files.items():
        disk.put(f"{PLACE}/{file_name(first)}", data)
    return verified(disk, heads)


def place_lines(lines: list[bytes]) -> dict[int, bytes]:
    """The files again, after the list of their lines was changed."""
    files, first = dict.fromkeys(FILES, b""), FIRST
    for line in lines:
        if line in LINES and (n := LINES.index(line) + FIRST) in FILES and not files[n]:
            first = n
        files[first] += line
    return files


def test_the_log_itself_is_sound() -> None:
    assert len(FILES) == 4
    assert FIRST > 1
    assert FIRST < HEADS[0].n < NEWEST < FIRST + len(LINES) - 1
    report = judge(FILES)
    assert (report.damage, report.notes) == ([], [])
    assert report.files == 4
    assert report.bytes_read == sum(map(len, FILES.values()))
    assert place_lines(LINES) == FILES


@settings(max_examples=tries(400))
@given(st.sampled_from(sorted(FILES)), st.floats(0, 1, exclude_max=True), st.integers(0, 255))
def test_a_changed_byte(first: int, where: float, byte: int) -> None:
    data = FILES[first]
    at = int(where * len(data))
    assume(data[at] != byte)
    changed = data[:at] + bytes([byte]) + data[at + 1 :]
    report = judge({**FILES, first: changed})
    behind_head = first == LAST and len(data[:at].splitlines()) + LAST > NEWEST
    # A zero, or a missing newline at the very end, is what a power cut may leave.
    assert report.damage or (behind_head and report.notes)
    if byte and at < len(data) - 1:
        assert report.damage


@settings(max_examples=tries(100))
@given(st.integers(0, len(LINES) - 1), st.integers(1, 3))
def test_removed_lines(at: int, count: int) -> None:
    report = judge(place_lines(LINES[:at] + LINES[at + count :]))
    assert bool(report.damage) == (at + count < len(LINES) or at <= HEAD_AT)


@settings(max_examples=tries(100))
@given(st.integers(0, len(LINES)), st.integers(0, len(LINES) - 1))
def test_an_inserted_line(at: int, copied: int) -> None:
    """A copy of a line, and a line made for this place whose successors were not made again."""
    assert judge(place_lines([*LINES[:at], LINES[copied], *LINES[at:]])).damage
    if 0 < at < len(LINES):
        before, _ = decode(LINES[at - 1])
        raw, _ = encode_line(AuditLine(n=before.n + 1, time=before.time), chain_of(LINES[at - 1]))
        assert judge(place_lines([*LINES[:at], raw, *LINES[at:]])).damage


@settings(max_examples=tries(100))
@given(st.integers(0, len(LINES) - 1), st.integers(0, len(LINES) - 1))
def test_swapped_lines(one: int, other: int) -> None:
    assume(one != other)
    lines = list(LINES)
    lines[one], lines[other] = lines[other], lines[one]
    first = sorted(FILES)
    # Each file keeps its number of lines.
    files, at = {}, 0
    for number in first:
        count = FILES[number].count(b"\n")
        files[number] = b"".join(lines[at : at + count])
        at += count
    assert judge(files).damage


@pytest.mark.parametrize("first", sorted(FILES))
def test_a_missing_file(first: int) -> None:
    report = judge({each: data for each, data in FILES.items() if each != first})
    (finding, *_) = report.damage
    following = min((each for each in FILES if each > first), default=0)
    if first == FIRST:
        assert f"lines up to {following - 1} are missing" in finding.what
    elif following:
        assert f"lines {first} to {following - 1} are missing" in finding.what
    else:
        assert "lines were cut" in finding.what
    # The line that excuses the absence of older files was in one of them.
    excuse = b'"last":%d' % (FIRST - 1) in FILES[first]
    assert len(report.damage) == 1 + excuse


def test_no_file_at_all() -> None:
    """After a restore, or a deletion: nothing tells them apart."""
    report = judge({})
    assert report.damage == []
    assert "the folder was restored" in report.notes[0].what
    assert judge({}, []).notes == []


@settings(max_examples=tries(200))
@given(st.floats(0, 1, exclude_max=True))
def test_a_cut_tail(where: float) -> None:
    """Found if it reaches the newest head. Behind it, a cut inside a line is a note."""
    data = FILES[LAST]
    at = int(where * len(data))
    report = judge({**FILES, LAST: data[:at]})
    whole = data[:at].count(b"\n")
    assert bool(report.damage) == (LAST + whole <= NEWEST)
    assert bool(report.notes) == (data[:at] != b"" and data[at - 1 : at] != b"\n")


@settings(max_examples=tries(100))
@given(st.integers(0, len(LINES) - 1), st.booleans())
def test_a_chain_that_was_made_again(at: int, remove: bool) -> None:
    """Without a key anybody can: the heads find it, and without one nothing can."""
    changed = list(LINES)
    chain = chain_of(LINES[at - 1]) if at else str(decode(LINES[0])[0].facts["previous"])
    for index in range(at, len(LINES)):
        line, _ = decode(LINES[index])
        if index == at:
            line.principal = "mallory"
        if "previous" in line.facts:
            line.facts = {"previous": chain, "log": ID}
        if line.outcome == "removed" and index > at:
            assume(False)
        changed[index], chain = encode_line(line, chain)
    if remove:
        # The rest of the log, with numbers of its own.
        changed = changed[:at]
    files, index = {}, 0
    for number in sorted(FILES):
        count = FILES[number].count(b"\n")
        files[number] = b"".join(changed[index : index + count])
        index += count
    assert bool(judge({n: data for n, data in files.items() if data}).damage) == (at <= HEAD_AT)


def test_a_removal_must_name_the_chain() -> None:
    """A line that says that other files were removed does not excuse this."""
    disk = FakeDisk()
    files = files_on(disk, AuditSettings(file_bytes=1, keep_files=2))
    for _ in range(3):
        write_all(files, [a_line()])
    files.remove_old(NOW_MS)
    first, second, *_ = first_lines(disk, PLACE)
    assert first > 1
    assert verified(disk).damage == []
    forged = AuditHead(2, ID, first - 1, "a" * 64)
    assert "no line says" in verified(disk, [forged]).damage[0].what
    disk.unlink(f"{PLACE}/{file_name(first)}")
    assert f"lines up to {second - 1} are missing" in verified(disk).damage[0].what


def test_what_is_no_line() -> None:
    """Findings are bounded, and so is what is read at once."""
    report = judge({**FILES, FIRST: b"junk\n" * 1_000})
    assert report.damage[20].what == "and further lines"
    huge = judge({**FILES, FIRST: b"x" * (BATCH_BYTES + LINE_BYTES_MAX + 1)})
    assert huge.damage[0].what == "bytes that are not lines"
    no_end = judge({**FILES, FIRST: FILES[FIRST][:-1]})
    assert [finding.what for finding in no_end.damage] == [
        f"line {min(each for each in FILES if each > FIRST) - 1} has no end"
    ]


def test_a_long_file_is_read_in_pieces() -> None:
    disk = FakeDisk()
    files = files_on(disk, AuditSettings())
    write_all(files, [a_line() for _ in range(7_000)])
    assert files.head is not None
    assert len(disk.content(f"{PLACE}/{file_name(1)}")) > 2 * BATCH_BYTES
    assert verified(disk, [files.head]).damage == []
    assert len(lines_of(disk)) == files.head.n
    with closing(disk.open(f"{PLACE}/{file_name(1)}")) as file:
        assert first_line(file).outcome == "file_begun"


def test_verify_of_a_folder(open_host: Callable[..., Any]) -> None:
    """`delaylog verify` reads it, and compares it with the heads of the folder's node."""
    host = open_host()
    host.send(3)
    host.checkpoint()
    fs, folder = OsFileSystem(), host.folder
    files = AuditFiles(fs, f"{folder}/audit", 0, SMALL, ID)
    write_all(files, [a_line()])
    files.close()
    assert files.head is not None
    host.sync()

    def verify(*heads: AuditHead) -> list[str]:
        """What is found once the log of messages has these heads too."""
        for head in heads:
            note_audit_head(host.engine.state, head.log, head.node, head.n, head.chain, host.now_ms)
        host.sync()
        report = Report()
        for _ in verify_folder(fs, str(folder), report):
            pass
        assert report.notes == []
        return [finding.what for finding in report.damage]

    assert verify() == verify(files.head) == verify(AuditHead(1, "b1" * 16, 99, "a" * 64)) == []
    assert "lines were cut" in verify(AuditHead(0, ID, 99, "a" * 64))[0]
    host.checkpoint()
    assert "lines were cut" in verify()[0], "also by the checkpoint"
    path = Path(folder) / "audit" / file_name(1)
    path.write_bytes(path.read_bytes().replace(b"alice", b"mallo"))
    assert "does not continue the chain" in verify()[0]


def test_another_audit_log_than_that_of_the_node() -> None:
    """A single broker has recorded its own; members of a cluster may be made anew."""
    disk = FakeDisk()
    files = files_on(disk, AuditSettings())
    write_all(files, [a_line()])
    other = AuditHead(0, "b1" * 16, 5, "a" * 64)
    report = Report()
    for _ in verify_audit(disk, "data", report, [other], 0):
        pass
    assert "not the audit log that the node has written" in report.damage[0].what
    assert files.head is not None
    mine = replace(other, node=2)
    report = verified(disk, [mine, files.head])
    assert report.damage == []
    assert "the folder was restored" in report.notes[0].what


def decode(raw: bytes) -> tuple[AuditLine, str]:
    body, chain = split_line(raw.rstrip(b"\n"))
    return decode_line(body), chain


def chain_of(raw: bytes) -> str:
    return decode(raw)[1]


@pytest.mark.parametrize(("name", "noted"), [("backup.json", False), ("lock", True)])
def test_a_backup_needs_no_audit_log(name: str, noted: bool) -> None:
    disk = FakeDisk()
    disk.mkdir("data")
    write_file(disk, f"data/{name}", [b"{}"])
    report = verified(disk, [AuditHead(2, "b1" * 16, 5, "a" * 64)])
    assert (report.damage, len(report.notes)) == ([], int(noted))
