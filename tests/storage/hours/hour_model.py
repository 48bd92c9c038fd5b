"""What hours hold, as plain lists and dicts, and the checks that hold a store against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from delaylog.storage.hours.hour_store import HourStore, find_few
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import (
    BLANK_STATE,
    DEFAULT_GROUP,
    HOUR_MS,
    HOUR_SHIFT,
    STATE_ENTRY,
    MessageState,
    StateArray,
    hour_name,
    hour_of_name,
    make_ref,
)
from delaylog.storage.log.payloads import SendDecision
from delaylog.storage.messages.batch import MessageBatch, TextColumn
from delaylog.storage.messages.rows import place_rows
from delaylog.storage.runs.id_hash import IdHash
from delaylog.storage.work import Work
from tests.storage.fake_disk import FakeDisk

FIRST = 472_222
FOLDER = "data/hours"
TAG = 5
ID_HASH = IdHash(b"k" * 16)


def run(work: Work) -> None:
    """Background work to its end, jobs on the spot."""
    for step in work:
        if callable(step):
            step()


def open_store(
    disk: FakeDisk,
    counts: dict[int, HourCounts] | None = None,
    *,
    far: dict[str, Any] | None = None,
    near_hours: int = 24,
) -> HourStore:
    disk.mkdir("data")
    store = HourStore(disk, FOLDER, near_hours=near_hours)
    store.recover(counts or {}, 1 << 62, far=far)
    return store


@dataclass
class Model:
    """What the rows are: per hour a list of (due, record), and states by ref."""

    hours: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    states: dict[int, tuple[int, int]] = field(default_factory=dict)
    refs: list[int] = field(default_factory=list)
    position: int = 0
    frames: list[tuple[int, Any, int, int]] = field(default_factory=list)

    def add(self, store: HourStore, due: list[int], bodies: list[bytes], floor: int) -> None:
        """One frame into the store and into the model."""
        n = len(due)
        sizes = np.array([len(b) for b in bodies], "<u4")
        ids = [b"" if k % 3 else b"i%d" % k for k in range(n)]
        batch = MessageBatch(
            n,
            deliver_at_ms=np.array(due, "<i8"),
            body=TextColumn(sizes, b"".join(bodies)),
        )
        if n > 2 and n % 2:
            batch.id = TextColumn(np.array([len(i) for i in ids], "<u2"), b"".join(ids))
        else:
            ids = [b""] * n
        decision = SendDecision(1, TAG, floor, -1, 3)
        end = self.position + 64 + sum(map(len, bodies))
        self.frames.append((self.position, batch, floor, end))
        placed = place_rows(batch, decision, FIRST * HOUR_MS - 1, self.position, ID_HASH)
        refs = store.number(placed, end)
        order = range(n) if placed.order is None else placed.order.tolist()
        expected = []
        for row in order:
            hour = max(due[row] // HOUR_MS, floor)
            rows = self.hours.setdefault(hour, [])
            rows.append((due[row], ids[row] + bodies[row]))
            expected.append(make_ref(hour, TAG, len(rows)))
        assert refs.tolist() == expected
        self.refs += expected
        self.position = end

    def row(self, ref: int) -> tuple[int, bytes]:
        return self.hours[ref >> 43][(ref & 0xFFFFFFFF) - 1]


def replay(store: HourStore, model: Model, first: int) -> None:
    """The frames from position `first` on, once more."""
    for position, batch, floor, end in model.frames:
        if position >= first:
            decision = SendDecision(1, TAG, floor, -1, 3)
            store.number(place_rows(batch, decision, FIRST * HOUR_MS - 1, position, ID_HASH), end)


def check_look_ups(store: HourStore, model: Model, wanted: list[int]) -> None:
    refs = np.array(wanted, np.int64)
    stated = [ref for ref in wanted[:16] if store.has_state(ref)]
    assert stated == [ref for ref in wanted[:16] if model.states.get(ref, (0, 0))[0]]
    rows = store.rows(refs)
    expected = [model.row(ref) for ref in wanted]
    assert rows["deliver_at"].tolist() == [due for due, _ in expected]
    assert rows["global_index"].tolist() == [ref & 0xFFFFFFFF for ref in wanted]
    assert rows["origin"].tolist() == wanted
    assert store.check_tags(refs, rows).all()
    assert store.known(refs).all()
    assert store.records(refs, rows) == b"".join(record for _, record in expected)
    entries = store.get_states(refs)
    found = list(zip(entries["state"].tolist(), entries["lease"].tolist(), strict=True))
    assert found == [model.states.get(ref, (0, 0)) for ref in wanted]
    for start in range(0, len(wanted), 5):
        check_few(store, model, wanted[start : start + 5])


def check_few(store: HourStore, model: Model, wanted: list[int]) -> None:
    """Rows one by one are what they are in columns, if they are near and have no state."""
    found = find_few(store, wanted, DEFAULT_GROUP)
    plain = all(ref >> HOUR_SHIFT in store.counts.near for ref in wanted)
    if not plain or any(model.states.get(ref, (0, 0))[0] for ref in wanted):
        assert found is None
        return
    assert found is not None
    rows = store.rows(np.array(wanted, np.int64))
    assert [each.ref for each in found] == wanted
    assert [bytes(each.raw) for each in found] == [row.tobytes() for row in rows]
    assert [tuple(each.row) for each in found] == rows.tolist()
    assert [each.record for each in found] == [model.row(ref)[1] for ref in wanted]
    assert [each.entry for each in found] == [BLANK_STATE] * len(wanted)


def check_chains(store: HourStore, model: Model) -> None:
    """Each second's chain: exactly its rows, newest first, numbered in log order."""
    for hour, expected in model.hours.items():
        folder = store.folders.hour(hour)
        assert folder.row_count == len(expected) == store.counts[hour].rows
        seconds: dict[int, list[int]] = {}
        for index, (due, _) in enumerate(expected, 1):
            seconds.setdefault(max(due - hour * HOUR_MS, 0) // 1000, []).append(index)
        rows = np.concatenate(list(folder.scan_rows()))
        for second, indexes in seconds.items():
            walked = [i for part in folder.walk_second(second, 1 << 32) for i in part]
            assert walked == indexes[::-1]
            assert rows["local_index"][np.array(indexes) - 1].tolist() == list(
                range(1, len(indexes) + 1)
            )
            bound = indexes[len(indexes) // 2]
            walked = [i for part in folder.walk_second(second, bound) for i in part]
            assert walked == [i for i in indexes[::-1] if i <= bound]
            parts = list(folder.walk_second(second, 1 << 32, before=bound, slice_rows=2))
            assert [i for part in parts for i in part] == [i for i in indexes[::-1] if i < bound]
            assert all(len(part) <= 2 for part in parts)
        kept = folder.heads.get()
        again = folder.heads.rebuild()
        assert (kept.newest == again.newest).all()
        assert (kept.count == again.count).all()
        assert kept.covers == again.covers == len(expected)
        assert set(np.flatnonzero(kept.count).tolist()) == set(seconds)
        assert [i for part in folder.walk_second(3_599, 0) for i in part] == []
        for _ in folder.verify():
            pass
        assert int(folder.extents()["count"].sum()) == len(expected)


def disk_name(hour: int) -> str:
    assert hour_of_name(hour_name(hour)) == hour
    return hour_name(hour)


def entries_of(state: MessageState, lease: int = 0, count: int = 1) -> StateArray:
    """States of messages, one of which stands for many, too."""
    entries = np.zeros(count, STATE_ENTRY)
    entries["state"], entries["lease"] = state, lease
    return entries


def small_store() -> tuple[FakeDisk, HourStore, Model]:
    """Two flushed frames in two hours."""
    disk = FakeDisk()
    store, model = open_store(disk), Model()
    for number in range(2):
        due = [(FIRST + k % 2) * HOUR_MS + k * 1_000 for k in range(10)]
        model.add(store, due, [b"body %d" % (k + number) for k in range(10)], FIRST)
        run(store.flusher.flush(upto=model.position))
    return disk, store, model


def noted_reads(
    patch: pytest.MonkeyPatch, kind: type, name: str, size: Callable[..., Any]
) -> list[int]:
    """The `size` of each later call of a method of this class, by its arguments."""
    noted: list[int] = []
    real = getattr(kind, name)

    def call(self: Any, *args: Any) -> Any:
        noted.append(int(size(*args)))
        return real(self, *args)

    patch.setattr(kind, name, call)
    return noted


REGIONS = ("delay.log", "delay.index", "extents")
