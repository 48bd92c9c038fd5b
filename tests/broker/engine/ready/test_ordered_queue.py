"""The ordered queue against a plain sorted list, with bounds so small that every part is used.

Keys come from few values (ties everywhere) and from the ends of int64; the disk fills and frees at
any time. Whatever happens, each pop gives exactly what the list gives, nothing lost, nothing twice.
What is given back takes the place it had: before what came up behind it, behind what is lower.
"""

from __future__ import annotations

from bisect import insort
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from delaylog.broker.engine.ready.ordered_queue import (
    NO_RANKED,
    OrderedQueue,
    RankedRun,
    Reading,
    rank_order,
)
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array
from tests.effort import tries
from tests.storage.fake_disk import FakeDisk

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
KEYS = st.one_of(
    st.integers(0, 3),
    st.integers(-50, 50),
    st.integers(0, 10_000),
    st.sampled_from([INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX]),
)


class Runs:
    """Makes run files on a disk and counts them."""

    def __init__(self, disk: FakeDisk | OsFileSystem, folder: str = "") -> None:
        self.disk = disk
        self.folder = folder
        self.made = 0

    def __call__(self) -> ScratchQueue:
        self.made += 1
        return ScratchQueue(self.disk, f"{self.folder}{self.made}.run")


class OrderedQueueMachine(RuleBasedStateMachine):
    """The model: a list of (first, second, arrival, ref)."""

    @initialize(head_max=st.sampled_from([4, 64, 300, 3_000]), fan=st.integers(2, 4))
    def begin(self, head_max: int, fan: int) -> None:
        self.disk = FakeDisk()
        self.queue = OrderedQueue(Runs(self.disk), head_max, merge_runs=fan)
        self.model: list[tuple[int, int, int, int]] = []
        self.arrivals = 0
        self.time = 0
        self.handed_out: list[tuple[int, int, int, int]] = []

    def push_keys(self, first: list[int], second: list[int]) -> None:
        refs = np.arange(self.arrivals, self.arrivals + len(first)) * 7 + 1
        arrivals = range(self.arrivals, self.arrivals + len(first))
        for keys in zip(first, second, arrivals, refs.tolist(), strict=True):
            insort(self.model, keys)
        self.arrivals += len(first)
        columns = np.array([first, second], np.int64).reshape(2, -1)
        self.queue.push(refs, columns[0], columns[1])
        columns[:] = 0  # What the queue keeps is its own.

    @rule(keys=st.lists(st.tuples(KEYS, KEYS), max_size=30))
    def push(self, keys: list[tuple[int, int]]) -> None:
        self.push_keys([k[0] for k in keys], [k[1] for k in keys])

    @rule(
        count=st.integers(1, 400),
        seed=st.integers(0, 2**32),
        priorities=st.sampled_from([1, 2, 10, 2**62]),
        shape=st.sampled_from(["random", "rising", "falling", "same", "ties"]),
    )
    def push_many(self, count: int, seed: int, priorities: int, shape: str) -> None:
        random = Random(seed)
        first = [random.randrange(priorities) for _ in range(count)]
        if shape == "random":
            second = [random.randrange(2**40) for _ in range(count)]
        elif shape == "same":
            second = [5] * count
        elif shape == "ties":
            second = [random.randrange(8) for _ in range(count)]
        else:
            sign = 1 if shape == "rising" else -1
            second = [sign * (self.time + at // 3) for at in range(count)]
            self.time += count
        self.push_keys(first, second)

    @rule(count=st.one_of(st.integers(0, 10), st.integers(0, 600)))
    def pop(self, count: int) -> None:
        self.handed_out = self.model[:count]
        del self.model[:count]
        found = self.queue.pop(count).tolist()
        assert found == [entry[3] for entry in self.handed_out]

    @rule(keep=st.integers(0, 20))
    def give_back(self, keep: int) -> None:
        entries, self.handed_out = self.handed_out[keep:], []
        for entry in entries:
            insort(self.model, entry)
        self.queue.push_front(np.array([entry[3] for entry in entries], np.int64))

    @rule(operations=st.integers(1, 60))
    def fill_disk(self, operations: int) -> None:
        self.disk.full_at = range(self.disk.count + 1, self.disk.count + operations)

    @rule()
    def free_disk(self) -> None:
        self.disk.full_at = frozenset()

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.model.clear()
        self.handed_out.clear()
        assert self.disk.listdir("") == [], "files go with what was in them"

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert len(self.queue) == len(self.model)
        # A run that a full disk kept from its first byte is counted and has no file.
        assert len(self.disk.listdir("")) <= self.queue.files
        assert self.queue.in_memory_count <= len(self.queue)
        if len(self.queue) == 0:
            assert self.queue.files == 0

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.pop(10**9)
            assert self.disk.listdir("") == []


OrderedQueueMachine.TestCase.settings = settings(
    max_examples=tries(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_machine = pytest.mark.filterwarnings("error")(OrderedQueueMachine.TestCase)


@pytest.mark.parametrize("head_max", [4, 64, 300, 1_000, 3_000])
@pytest.mark.parametrize("ways", [8, 300, 2**62])
def test_long_mixes_of_small_and_large_pushes_and_pops(head_max: int, ways: int) -> None:
    """What the machine reaches by luck only: a backlog that comes and goes, ties in every part."""
    machine = OrderedQueueMachine()
    machine.begin(head_max, 3)
    random = Random(head_max + ways)
    for step in range(max(300, tries(700))):
        larger = (step // 100) % 3
        count = random.choice((1, 3, 20, 200 if larger == 0 else 30))
        # Now and then lower keys than any before: all of them are urgent.
        low = random.choice((0, 0, -step, step))
        first = [random.randrange(2) for _ in range(count)]
        machine.push_keys(first, [low + random.randrange(ways) for _ in range(count)])
        machine.pop(random.choice((0, 1, 5, 25, 250 if larger == 2 else 20)))
        if step % 7 == 0:
            machine.give_back(random.randrange(10))
        if step % 50 == 0:
            machine.free_disk()
        elif step % 31 == 0:
            machine.fill_disk(random.randrange(1, 30))
        machine.counts()
    machine.teardown()


def int64s(*values: int) -> Int64Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize("wide", [(0, 3), (0, 2**31), (INT64_MIN, INT64_MAX)])
@pytest.mark.parametrize("other", [(0, 1), (0, 2**50), (INT64_MIN, INT64_MAX)])
def test_order_is_the_stable_one_for_every_width(
    wide: tuple[int, int], other: tuple[int, int]
) -> None:
    random = np.random.default_rng(3)
    for count in (0, 1, 2, 3, 1_000):
        entries = np.zeros((3, count), np.int64)
        entries[0] = random.integers(*wide, count, endpoint=True)
        entries[1] = random.integers(*other, count, endpoint=True)
        if count > 10:
            entries[:, 5:9] = entries[:, 1:5]
            entries[:2, 0] = wide[1], other[0]
            entries[:2, -1] = wide[0], other[1]
        expected = np.lexsort((entries[1], entries[0]))
        assert rank_order(entries).tolist() == expected.tolist()


def test_order_of_more_than_the_places_packed() -> None:
    entries = np.zeros((3, 2**21 + 2), np.int64)
    entries[0, ::2] = 1
    assert np.array_equal(rank_order(entries), np.argsort(entries[0], kind="stable"))


@pytest.mark.parametrize("shape", ["random", "rising", "falling", "same"])
def test_a_large_queue_keeps_few_files_and_little_memory(tmp_path: Path, shape: str) -> None:
    """A backlog of a hundred times the bound, as a topic with a consumer that is down makes it."""
    head_max, total = 512, 60_000
    queue = OrderedQueue(Runs(OsFileSystem(), f"{tmp_path}/"), head_max, merge_runs=4)
    random = np.random.default_rng(1)
    second = {
        "random": random.integers(0, 10**7, total),
        "rising": np.arange(total) // 3,
        "falling": -np.arange(total) // 3,
        "same": np.zeros(total, np.int64),
    }[shape]
    first = random.integers(0, 5, total) if shape == "random" else np.zeros(total, np.int64)
    held = files = 0
    for at in range(0, total, 100):
        part = slice(at, at + 100)
        queue.push(np.arange(at, at + 100), first[part], second[part])
        held, files = max(held, queue.in_memory_count), max(files, queue.files)
    assert len(queue) == total
    out = []
    while len(queue):
        out.append(queue.pop(777))
        held, files = max(held, queue.in_memory_count), max(files, queue.files)
    assert np.array_equal(np.concatenate(out), np.lexsort((second, first)))
    assert held <= 4 * head_max
    assert files <= 4 * 7
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_entries_in_memory_and_space_takes_them_back() -> None:
    disk = FakeDisk()
    queue = OrderedQueue(Runs(disk), 64, merge_runs=3)
    disk.full_at = range(1, 10**9)
    keys = np.random.default_rng(5).integers(0, 1_000, 6_000)
    for at in range(0, 5_000, 50):
        queue.push(np.arange(at, at + 50), keys[at : at + 50], np.zeros(50, np.int64))
    assert queue.files == 0
    assert queue.in_memory_count == 5_000
    assert disk.listdir("") == []
    disk.full_at = frozenset()
    for at in range(5_000, 6_000, 10):
        queue.push(np.arange(at, at + 10), keys[at : at + 10], np.zeros(10, np.int64))
    assert queue.in_memory_count <= 4 * 64, "space that returned is used"
    assert np.array_equal(queue.pop(6_000), np.argsort(keys, kind="stable"))


def test_a_disk_that_fills_during_a_merge_loses_nothing() -> None:
    disk = FakeDisk()
    sources = []
    for at in range(3):
        source = RankedRun(np.array([range(at, 300, 3), [0] * 100, range(at, 300, 3)], np.int64))
        source.write(Runs(disk, f"source{at}-"))
        sources.append(source)
    run = RankedRun(NO_RANKED, sources)
    make = Runs(disk, "target-")
    reading = Reading(1, 2)
    run.merge_some(50, reading, make)
    disk.full_at = range(1, 10**9)
    run.merge_some(50, reading, make)
    run.merge_some(50, reading, make)
    assert run.in_memory_count < 150, "one step stays in memory, not each"
    assert run.peek(120, reading)[2].tolist() == list(range(120))
    run.drop(120)
    disk.full_at = frozenset()
    while not run.merged:
        run.merge_some(50, reading, make)
    assert not run.in_memory
    assert run.peek(180, reading)[2].tolist() == list(range(120, 300))
    run.drop(180)
    assert disk.listdir("") == []


def test_a_merge_that_ends_on_a_full_disk_is_not_taken_for_a_run_in_memory() -> None:
    """Its file is read empty while the last step still waits for space."""
    disk = FakeDisk()
    reading = Reading(1, 2)
    make = Runs(disk)
    columns = [np.array([range(at, 40, 2), [0] * 20, range(at, 40, 2)]) for at in (0, 1)]
    run = RankedRun(NO_RANKED, [RankedRun(column) for column in columns])
    run.merge_some(10, reading, make)
    disk.full_at = range(1, 10**9)
    run.merge_some(100, reading, make)
    assert run.merged
    while disk.content("1.run"):
        run.drop(run.peek(1, reading).shape[1])
        if not disk.exists("1.run"):
            break
    assert not run.in_memory
    left = len(run)
    assert run.peek(left, reading)[2].tolist() == list(range(40 - left, 40))
    assert run.in_memory


def test_a_changed_block_is_an_error_and_nothing_is_taken() -> None:
    disk = FakeDisk()
    queue = OrderedQueue(Runs(disk), 64)
    queue.push(np.arange(500), np.arange(500), np.zeros(500, np.int64))
    assert queue.pop(3).tolist() == [0, 1, 2]
    queue.push(np.arange(500, 600), np.arange(500, 600), np.zeros(100, np.int64))
    disk.flip(disk.listdir("")[0], 8 * 3 * 200)
    before = len(queue)
    with pytest.raises(CorruptionError):
        queue.pop(400)
    assert len(queue) == before


def test_urgent_refs_overtake_and_returned_refs_take_their_places() -> None:
    queue = OrderedQueue(Runs(FakeDisk()), 64)
    queue.push(int64s(1, 2, 3), int64s(5, 5, 5), int64s(1, 1, 0))
    assert queue.pop(1).tolist() == [3]
    queue.push(int64s(4, 5), int64s(5, 4), int64s(1, 9))
    queue.push_front(int64s(3))
    assert queue.pop(2).tolist() == [5, 3]
    assert queue.pop(2).tolist() == [1, 2]
    queue.push_front(int64s(2))
    queue.push_front(int64s(1))
    assert queue.pop(9).tolist() == [1, 2, 4]


def test_what_the_queue_does_not_know_goes_first() -> None:
    """It was popped long ago, or from the queue before this one."""
    queue = OrderedQueue(Runs(FakeDisk()), 64)
    queue.push(int64s(1, 2), int64s(5, 6), int64s(1, 1))
    queue.push_front(int64s(9, 8))
    assert queue.pop(3).tolist() == [9, 8, 1]
    queue.push(int64s(1), int64s(7), int64s(0))
    assert queue.pop(2).tolist() == [2, 1]
    queue.push_front(int64s(2, 1))
    queue.push(int64s(3), int64s(6), int64s(2))
    assert queue.pop(3).tolist() == [2, 3, 1], "the keys that it had last count"
    for at in range(0, 40_000, 8_000):
        queue.push(np.arange(at, at + 8_000), np.zeros(8_000, np.int64), np.arange(8_000))
        queue.pop(8_000)
    queue.push(int64s(-1), int64s(-1), int64s(0))
    queue.push_front(int64s(7, 32_007))
    assert queue.pop(3).tolist() == [7, -1, 32_007]
