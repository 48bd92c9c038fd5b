"""The table: frames, look-ups, checkpoints that are written while it changes, and due times."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.schedules import definitions
from delaylog.broker.engine.schedules.schedule import Progress, Schedule
from delaylog.broker.engine.schedules.table import (
    AwaitedMessages,
    NameIndex,
    ScheduleTable,
    named_files,
)
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.engine.schedules.tables import Rig, a_schedule, numbered, run, through_disk
from tests.effort import tries


def table_of(*dues: int) -> tuple[Rig, list[int]]:
    """A leader's table of schedules, and their numbers."""
    rig = Rig()
    rig.table.lead()
    return rig, [rig.add(f"s{at}", due_ms) for at, due_ms in enumerate(dues)]


def popped(table: ScheduleTable, now_ms: int) -> list[int]:
    """The numbers that are due, each popped once."""
    out = []
    while True:
        table.look_ahead(now_ms)
        one = table.pop_due(now_ms, {})
        if one is None:
            return out
        out.append(one.number)


def test_those_that_fire_next_are_found() -> None:
    """Among many, in order; the paused and ended ones last, and only of some topics."""
    dues = [Random(1).randrange(1, 10**9) for _ in range(50)]
    rig, numbers = table_of(*dues, 0)
    by_due = [number for _, number in sorted(zip(dues, numbers, strict=False))]
    for limit in (1, 7, 50):
        assert rig.table.soonest(limit) == by_due[:limit]
    assert rig.table.soonest(100) == [*by_due, numbers[-1]]
    rig.drop(by_due[0])
    assert rig.table.soonest(2) == by_due[1:3]
    topic = a_schedule(1, "x", 1).topic
    assert rig.table.soonest(3, np.array([topic], np.int64)) == by_due[1:4]
    assert rig.table.soonest(3, np.array([topic + 1], np.int64)) == []


def test_stale_due_times_are_passed_over() -> None:
    """Of a schedule that was moved, paused or dropped, or that a slice has moved already."""
    rig, (a, b, c, d) = table_of(10, 10, 10, 10)
    rig.table.look_ahead(5)
    rig.move(a, Progress(50, 50))
    rig.put(a_schedule(b, "s1", 10, note="paused"))
    rig.drop(c)
    rig.table.look_ahead(10)
    assert rig.table.pop_due(10, {d: Progress(40, 40)}) is None


def test_a_start_finds_the_same_order() -> None:
    """From the state alone; a buffered firing is looked at first, and a follower has no order."""
    rig, (a, b, c) = table_of(30, 10, 20)
    rig.move(c, Progress(40, 40, buffered_ms=5))
    rig.table.follow()
    assert rig.table.wakes.next_ms() is None
    rig.table.lead()
    assert popped(rig.table, 30) == [c, b, a]


def test_a_message_that_ended_wakes_its_schedule_once() -> None:
    """By its origin, if it still waits for that message; a purge ends those of a topic."""
    rig, (a, b) = table_of(100, 100)
    waits = Progress(100, 100, buffered_ms=5)
    rig.move(a, waits)
    rig.table.awaited.add(77, a)
    rig.table.ended([5, 6])
    assert popped(rig.table, 50) == []
    rig.table.ended([5, 77])
    assert popped(rig.table, 50) == [a]
    rig.table.ended([77])
    assert popped(rig.table, 50) == []
    rig.table.awaited.add(78, b)
    rig.table.ended([78])
    assert popped(rig.table, 50) == []
    rig.table.awaited.add(79, a)
    rig.table.purged(2)
    assert popped(rig.table, 50) == []
    rig.table.purged(1)
    assert popped(rig.table, 50) == [a]


def test_a_dropped_schedule_awaits_nothing() -> None:
    """Though the message lives on: the hint would grow by schedules that come and go."""
    rig, (a, b) = table_of(100, 100)
    other = rig.add("s0", 100, topic=2)
    for origin, number in ((77, a), (78, b), (79, b), (80, other)):
        rig.table.awaited.add(origin, number)
    rig.drop(a)
    assert rig.table.awaited.schedules() == [b, other]
    rig.table.drop_topic(1)
    assert rig.table.awaited.schedules() == [other]
    assert len(rig.table.awaited) == 1


def test_the_release_of_the_zones() -> None:
    """The first writer's; an older writer is noted until all was computed anew."""
    rig, (a,) = table_of(10)
    assert (rig.table.zones, rig.table.mixed) == ("2026a", False)
    rig.by = "2025z"
    rig.move(a, Progress(5, 5))
    assert (rig.table.zones, rig.table.mixed) == ("2026a", True)
    rig.apply({"zones": "2026b"})
    assert (rig.table.zones, rig.table.mixed) == ("2026b", False)


def test_a_number_names_one_schedule_only() -> None:
    """A place is used again, with another number; frames about the old one change nothing."""
    rig, (a, b) = table_of(10, 20)
    rig.drop(a)
    again = rig.add("s0", 30)
    assert (a, b, again) == (numbered(1, 0), numbered(2, 1), numbered(3, 0))
    rig.move(a, Progress(99, 99))
    rig.drop(a)
    found = rig.table.get(again)
    assert found is not None
    assert found.progress == Progress(30, 30)
    assert rig.table.get(a) is None
    assert rig.table.get(0) is None
    assert rig.table.get(numbered(9, 9)) is None


def test_names_with_one_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is refused by the caller of `collides`."""
    rig, _ = table_of(1)
    assert not rig.table.collides(1, "s0")
    assert not rig.table.collides(1, "new")
    monkeypatch.setattr(rig.table, "hash_of", lambda _: 5)
    rig.add("a", 5)
    assert rig.table.find(1, "b") is None
    assert rig.table.collides(1, "b")
    assert not rig.table.collides(1, "a")


def test_a_checkpoint_is_of_one_moment() -> None:
    """Its rows are written while schedules move, come and go."""
    rig, numbers = table_of(10, 20, 30)
    before = rig.contents()
    run(rig.table.store_definitions())
    saved = rig.table.snapshot(1_000)
    work = rig.table.store_rows(saved)
    next(work)
    rig.move(numbers[1], Progress(99, 99))
    rig.drop(numbers[0])
    rig.add("new", 40)
    rig.put(a_schedule(numbers[2], "s2", 31))
    run(work)
    rig.table.end_snapshot()
    other = rig.empty()
    other.restore(through_disk(saved))
    assert rig.contents(other) == before
    assert other.next_number == numbered(4, 3)
    assert (other.zones, other.mixed) == ("2026a", False)


def test_an_unchanged_table_writes_no_rows_again() -> None:
    """A checkpoint of a quiet broker costs nothing; files that none names are removed."""
    rig, (a, _) = table_of(10, 20)
    first = rig.checkpoint()
    assert rig.checkpoint()["rows"] == first["rows"]
    rig.move(a, Progress(50, 50))
    second = rig.checkpoint()
    assert second["rows"] != first["rows"]
    assert second["definitions"] == first["definitions"]
    kept = [set(named_files(first)), set(named_files(second))]
    run(rig.table.collect(kept[0] | kept[1]))
    assert set(rig.disk.listdir("data/schedules")) == kept[0] | kept[1]
    run(rig.table.collect(kept[1]))
    assert set(rig.disk.listdir("data/schedules")) == kept[1]


def test_an_empty_table_has_no_files() -> None:
    """A broker without schedules has no folder for them."""
    rig = Rig()
    saved = rig.checkpoint()
    run(rig.table.collect(set()))
    assert named_files(saved) == {}
    assert not rig.disk.exists("data/schedules")
    other = rig.empty()
    other.restore(saved)
    assert len(other) == 0


@pytest.mark.long
def test_memory_does_not_depend_on_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 schedules with 32 MB of bodies, which a checkpoint has stored and which have moved."""
    monkeypatch.setattr(definitions, "BYTES_MAX", 100_000)
    tracemalloc.start()
    rig = Rig(OsFileSystem(), folder=str(tmp_path / "data"))
    numbers = [rig.add(f"s{at}", 1_000 + at, body=b"x" * 4_000) for at in range(8_000)]
    rig.checkpoint()
    rig.frames.clear()
    rig.table.lead()
    for number in numbers:
        assert rig.table.get(number) is not None
        rig.move(number, Progress(99_000, 99_000))
        rig.frames.clear()
    rig.checkpoint()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rig.table.close()
    # Two blocks of 458 kB, the index of names, and the numbers of this test.
    assert size < 2_500_000


@pytest.mark.parametrize("suffix", ["rows", "definitions"])
@pytest.mark.parametrize("missing", [False, True])
def test_damage_is_an_error(suffix: str, missing: bool) -> None:
    """Of rows at the start, of a definition when it is read."""
    rig, numbers = table_of(10, 20)
    saved = rig.checkpoint()
    path = next(f"data/schedules/{name}" for name in named_files(saved) if name.endswith(suffix))
    if missing:
        rig.disk.unlink(path)
    else:
        rig.disk.flip(path, 8 * 40)
    rig.table.close()
    other = rig.empty()

    def read() -> None:
        other.restore(saved)
        other.get(numbers[0])

    with pytest.raises(CorruptionError, match=r"damaged|missing"):
        read()


@pytest.mark.parametrize("seed", range(tries(20)))
def test_a_table_is_a_dict_of_schedules(seed: int) -> None:
    """Random frames against a dict; checkpoints are written while the table changes."""
    random, rig = Random(seed), Rig()
    model: dict[int, Schedule] = {}
    saved: tuple[dict[str, Any], dict[int, bytes]] | None = None
    for _ in range(60):
        what = random.randrange(8)
        if what < 3 or not model:
            number = rig.table.next_number
            name, topic = f"s{random.randrange(10**6)}", random.randrange(1, 4)
            one = a_schedule(number, name, random.randrange(1_000), topic=topic)
            rig.put(one)
            model[number] = one
        elif what == 3:
            number = random.choice(list(model))
            body = random.randbytes(random.choice((0, 10, 3_000)))
            old = model[number]
            model[number] = a_schedule(number, old.name, 5, topic=old.topic, body=body)
            rig.put(model[number])
        elif what == 4:
            number, to = random.choice(list(model)), Progress(*random.sample(range(10**12), 8))
            rig.move(number, to)
            model[number] = model[number].at(to)
        elif what == 5:
            number = random.choice(list(model))
            rig.drop(number)
            del model[number]
        elif what == 6:
            topic = random.randrange(1, 9)
            rig.table.drop_topic(topic)
            model = {number: one for number, one in model.items() if one.topic != topic}
        else:
            saved = rig.checkpoint(), {number: one.pack() for number, one in model.items()}
        packed = {number: one.pack() for number, one in model.items()}
        assert rig.contents() == packed
        topics = Counter(one.topic for one in model.values())
        assert [rig.table.has_some(topic) for topic in range(1, 4)] == [
            topic in topics for topic in range(1, 4)
        ]
    for one in model.values():
        found = rig.table.find(one.topic, one.name)
        assert found is not None
        assert found.number == one.number
    if saved is not None:
        other = rig.empty()
        other.restore(saved[0])
        assert rig.contents(other) == saved[1]


@pytest.mark.parametrize("seed", range(tries(20)))
def test_awaited_messages_are_a_list_of_pairs(seed: int) -> None:
    """A schedule is forgotten with all of its messages when one ends; nothing else remains."""
    random, awaited = Random(seed), AwaitedMessages()
    model: dict[int, int] = {}
    for _ in range(200):
        # A message belongs to one schedule.
        origin = random.randrange(30)
        number = origin % 7
        what = random.randrange(4)
        if what < 2:
            awaited.add(origin, number)
            model[origin] = number
        elif what == 2:
            awaited.forget(number)
            model = {other: of for other, of in model.items() if of != number}
        else:
            origins = random.sample(range(40), 3)
            ended = {model[origin] for origin in origins if origin in model}
            assert awaited.ended(origins) == ended
            model = {other: of for other, of in model.items() if of not in ended}
        assert len(awaited) == len(model)
        assert sorted(awaited.schedules()) == sorted(set(model.values()))
    awaited.clear()
    assert (len(awaited), awaited.schedules()) == (0, [])


def test_an_index_of_names_is_a_dict() -> None:
    """Entered, replaced, forgotten and entered again."""
    random, index, model = Random(1), NameIndex(), dict[int, int]()
    hashes = [random.randrange(-(2**63), 2**63) or 1 for _ in range(2_000)]
    for slot in range(9_000):
        hash_ = random.choice(hashes)
        if random.random() < 0.6:
            index.put(np.array([hash_]), np.array([slot]))
            model[hash_] = slot
        elif hash_ in model:
            index.forget(np.array([hash_]))
            del model[hash_]
    assert {hash_: index.find(hash_) for hash_ in hashes} == {
        hash_: model.get(hash_) for hash_ in hashes
    }


def test_an_index_does_not_grow_with_what_was_forgotten() -> None:
    """A hundred thousand schedules that came and went, one at a time."""
    index = NameIndex()
    for hash_ in range(1, 100_000):
        index.put(np.array([hash_]), np.array([0]))
        index.forget(np.array([hash_]))
    assert index._table.slots <= 8_192
