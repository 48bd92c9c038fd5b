"""Definitions: in the log, then in a file, which is rewritten when most of it is stale; and those
that are kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgpack
import pytest

from delaylog.broker.engine.schedules import definitions as module
from delaylog.broker.engine.schedules.columns import Column
from delaylog.broker.engine.schedules.definitions import (
    ENTRY_BYTES,
    HEADER,
    DefinitionCache,
    decode,
    encode,
)
from delaylog.broker.engine.schedules.table import named_files
from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.work import Work
from tests.broker.engine.schedules.tables import Rig, a_schedule, run
from tests.effort import tries
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeFile, Survival


def test_a_record_has_these_bytes() -> None:
    """Checksum, size, number and the packed schedule; another one's record is not taken for it."""
    raw = encode(7, b"abc")
    assert raw.hex() == "8a13d347" + "03000000" + "0700000000000000" + "616263"
    assert decode(raw, 7, 3) == b"abc"
    assert decode(raw, 8, 3) is None
    assert decode(raw[:-1], 7, 3) is None
    assert decode(raw[:-1] + b"d", 7, 3) is None
    assert HEADER.size == 16


def test_the_log_is_needed_until_a_checkpoint_has_stored_them() -> None:
    """From the first definition on that is in the log only."""
    rig = Rig()
    rig.apply({"zones": "2026a"})
    rig.add("a", 10)
    rig.add("b", 20)
    assert rig.table.log_from(1_000) == 100
    saved = rig.checkpoint()
    assert saved["log_from"] == len(rig.frames) * 100
    assert rig.table.log_from(1_000) == 1_000
    before = rig.contents()
    rig.frames.clear()
    other = rig.empty()
    other.restore(saved)
    assert rig.contents(other) == before


def test_what_changes_while_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that is put again stays in the log, one that is dropped leaves no trace."""
    monkeypatch.setattr(module, "STEP_RECORDS", 2)
    rig = Rig()
    numbers = [rig.add(f"s{at}", 10) for at in range(6)]
    work = rig.table.store_definitions()
    jobs = 0
    for step in work:
        if callable(step):
            step()
            jobs += 1
            if jobs == 2:
                # The first two are copied, and not entered yet.
                rig.put(a_schedule(numbers[0], "s0", 99))
                rig.drop(numbers[1])
                rig.put(a_schedule(numbers[5], "s5", 98))
    assert rig.table.log_from(5_000) == 600
    before = rig.contents()
    rig.table._cache._entries.clear()
    assert rig.contents() == before
    found = [rig.table.get(numbers[at]) for at in (0, 1, 5)]
    assert [one and one.progress.next_ms for one in found] == [99, None, 98]
    rig.checkpoint()
    assert rig.table.log_from(5_000) == 5_000


def test_a_stale_file_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays until no checkpoint names it; a rewrite that failed goes on later."""
    monkeypatch.setattr(module, "SPARE_BYTES", 1_000)
    rig = Rig()
    numbers = [rig.add(f"s{at}", 10, body=b"x" * 200) for at in range(10)]
    first = rig.checkpoint()
    for number in numbers[:9]:
        rig.drop(number)
    second = rig.checkpoint()
    assert second["definitions"][0] > first["definitions"][0]
    assert second["definitions"][1] < first["definitions"][1] // 4
    before = rig.contents()
    other = rig.empty()
    other.restore(second)
    assert rig.contents(other) == before
    rig.drop(numbers[9])
    assert set(named_files(rig.checkpoint())) == {f"{rig.table._rows.number}.rows"}


def test_a_rewrite_that_was_cut_short_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions are in two files for a while, which no checkpoint names."""
    monkeypatch.setattr(module, "SPARE_BYTES", 1_000)
    monkeypatch.setattr(module, "STEP_RECORDS", 2)
    rig = Rig()
    numbers = [rig.add(f"s{at}", 10, body=b"x" * 200) for at in range(10)]
    rig.checkpoint()
    for number in numbers[:6]:
        rig.drop(number)
    work, steps = rig.table.store_definitions(), 0
    for step in work:
        if callable(step):
            steps += 1
            if steps == 3:
                with pytest.raises(DiskFullError):
                    work.throw(DiskFullError("full"))
                break
            step()
    before = rig.contents()
    rig.table._cache._entries.clear()
    assert rig.contents() == before
    saved = rig.checkpoint()
    run(rig.table.collect(set(named_files(saved))))
    rig.table._cache._entries.clear()
    assert rig.contents() == before


def test_a_frame_that_is_not_there_is_damage() -> None:
    """Another frame at the position of a definition."""
    rig = Rig()
    number = rig.add("a", 10)
    rig.table._cache._entries.clear()
    rig.frames[0] = rig.frames[0].replace(b"put", b"pux")
    with pytest.raises(CorruptionError, match="missing"):
        rig.table.get(number)


def test_two_threads_open_a_file_once() -> None:
    """A second thread opens it while the first one does: one handle is closed at once."""
    rig = Rig()
    number = rig.add("a", 10)
    rig.checkpoint()
    row = rig.table._columns.row(0)
    rig.table.close()
    real, opened = rig.disk.open, list[FakeFile]()

    def read() -> None:
        rig.table._definitions.read(number, row[Column.PLACE], row[Column.SIZE])

    def open_slowly(path: str) -> FakeFile:
        file: FakeFile = real(path)
        opened.append(file)
        if len(opened) == 1:
            read()
        return file

    rig.disk.open = open_slowly
    read()
    assert [file._closed for file in opened] == [True, False]
    read()
    rig.table.close()
    assert [file._closed for file in opened] == [True, True]


def test_a_start_from_the_older_checkpoint_overwrites_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newer one may only be unreadable at the moment: later it gives its contents again."""
    monkeypatch.setattr(module, "SPARE_BYTES", 300)
    for rewritten in (False, True):
        rig = Rig()
        numbers = [rig.add(f"s{at}", 10, body=b"x" * 200) for at in range(4)]
        older, end = rig.checkpoint(), len(rig.frames)
        if rewritten:
            for number in numbers[:3]:
                rig.drop(number)
        later = rig.add("later", 20, body=b"y" * 200)
        newer, wanted = rig.checkpoint(), rig.contents()
        assert (older["definitions"][0] != newer["definitions"][0]) is rewritten
        rig.table.close()
        rig.table = rig.empty()
        rig.table.restore(older)
        for position in sorted(rig.frames)[end:]:
            rig.table.apply(msgpack.unpackb(rig.frames[position]), position)
        rig.drop(later)
        rig.add("other", 30, body=b"z" * 300)
        rig.checkpoint()
        again = rig.empty()
        again.restore(newer)
        assert rig.contents(again) == wanted


class Stopped(Exception):
    """The host has stopped a work."""


def stopped_at(count: int) -> Callable[[Work], None]:
    """Run a work up to a step, and close it there, as a host that stops does."""

    def steps(work: Work) -> None:
        for at, step in enumerate(work):
            if at == count:
                work.close()
                raise Stopped
            if callable(step):
                step()

    return steps


@pytest.mark.parametrize("survival", SURVIVALS)
@pytest.mark.parametrize("how", ["full", "stopped"])
@pytest.mark.parametrize("dropped", [False, True])
def test_after_a_checkpoint_that_failed_the_next_is_whole(
    survival: Survival, how: str, dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at each operation, or a stop at each step, then a checkpoint and a power cut.

    `dropped` = no schedule is left that the failed checkpoint has not copied. Nothing may be copied
    any more, but what was copied is not durable yet.
    """
    monkeypatch.setattr(module, "SPARE_BYTES", 300)
    monkeypatch.setattr(module, "STEP_RECORDS", 2)
    failures = 0
    for at in range(20):
        rig = Rig()
        old = [rig.add(f"old{n}", 10, body=b"x" * 200) for n in range(4)]
        rig.log_from = rig.checkpoint()["log_from"]
        rig.disk.sync_all()
        for number in old[:3]:
            rig.drop(number)
        for n in range(5):
            rig.add(f"new{n}", 10, body=b"y" * 200)
        if how == "full":
            rig.disk.full_at = frozenset([rig.disk.count + 1 + at])
        try:
            rig.checkpoint(stopped_at(at) if how == "stopped" else run)
        except (DiskFullError, Stopped):
            failures += 1
        rig.disk.full_at = frozenset()
        if dropped:
            columns = rig.table._columns
            for slot in columns.where(lambda block: block[Column.PLACE] < 0).tolist():
                rig.drop(columns.number_at(slot))
        before = rig.contents()
        saved = rig.checkpoint()
        rig.log_from = saved["log_from"]
        rig.disk = rig.disk.restart(survival, at)
        other = rig.empty()
        other.restore(saved)
        assert rig.contents(other) == before
    assert failures >= 5


@pytest.mark.parametrize("seed", range(tries(40)))
def test_power_cuts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any operation, also after a full disk: the newest checkpoint and the log behind it give
    the same schedules again.
    """
    monkeypatch.setattr(module, "SPARE_BYTES", 300)
    monkeypatch.setattr(module, "STEP_RECORDS", 2)
    random, rig = Random(seed), Rig()
    rig.disk.sync_all()
    saved, kept = rig.checkpoint(), list[set[str]]()
    at, model = len(rig.frames), dict[int, bytes]()
    for _ in range(40):
        if model and random.random() < 0.5:
            number = random.choice(list(model))
            rig.drop(number)
            del model[number]
        else:
            number = rig.table.next_number
            body = random.randbytes(random.randrange(400))
            one = a_schedule(number, f"s{len(rig.frames)}", 10, body=body)
            rig.put(one)
            model[number] = one.pack()
        if random.random() < 0.6:
            continue
        soon = rig.disk.count + random.randrange(1, 14)
        if random.random() < 0.5:
            rig.disk.crash_at = soon
        else:
            rig.disk.full_at = range(soon, soon + 3)
        try:
            made, there = rig.checkpoint(), len(rig.frames)
            saved, at, kept = made, there, [*kept, set(named_files(made))][-2:]
            rig.log_from = saved["log_from"]
            run(rig.table.collect(set().union(*kept)))
        except DiskFullError:
            pass
        except DiskCrashed:
            rig.disk = rig.disk.restart(random.choice(SURVIVALS), seed)
            rig.table = rig.empty()
            rig.table.restore(saved)
            for position in sorted(rig.frames)[at:]:
                rig.table.apply(msgpack.unpackb(rig.frames[position]), position)
            # Everything can be read from the disk and the log that the checkpoint needs.
            rig.table._cache._entries.clear()
            assert rig.contents() == model
        rig.disk.crash_at, rig.disk.full_at = 0, frozenset()


def test_the_least_recently_used_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes; one that is too large is not kept, nor is what it replaced."""
    monkeypatch.setattr(module, "BYTES_MAX", 10 * ENTRY_BYTES)
    cache = DefinitionCache()
    for number in range(1, 11):
        cache.put(a_schedule(number, f"s{number}", 5), 0)
    assert cache.get(1) is not None
    cache.put(a_schedule(11, "s11", 5), 0)
    assert [number for number in range(1, 12) if cache.get(number) is None] == [2]
    cache.put(a_schedule(3, "s3", 5), 5 * ENTRY_BYTES)
    assert cache.get(3) is None
    cache.drop(4)
    cache.drop(4)
    assert cache.get(4) is None
    assert cache._bytes == 8 * ENTRY_BYTES
