"""Chain heads that a worker thread loads while the loop works on the same hour.

Method: the loop's work runs inside the load, at the moment when the heads have been read, or are
about to be: there a thread may stand still for as long as the system likes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delaylog.storage.hours import open_hours
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.layout import HOUR_MS
from tests.storage.fake_disk import FakeDisk
from tests.storage.hours.hour_model import FIRST, Model, check_chains, open_store, run

Rebuild = Callable[..., SecondIndex]


def filled() -> tuple[HourStore, Model]:
    """An hour whose heads have neither a file nor a place in memory."""
    store, model = open_store(FakeDisk()), Model()
    add(store, model)
    run(store.flusher.flush(upto=model.position))
    store.folders.hour(FIRST).heads.forget()
    return store, model


def add(store: HourStore, model: Model) -> None:
    model.add(store, [FIRST * HOUR_MS + k % 3 * 1_000 for k in range(9)], [b"x"] * 9, 0)


def once(monkeypatch: pytest.MonkeyPatch, during: Callable[[Rebuild], Rebuild]) -> None:
    """Replace the next rebuild of heads."""
    real = open_hours.rebuild

    def rebuild(parts: list[object]) -> SecondIndex:
        monkeypatch.setattr(open_hours, "rebuild", real)
        return during(real)(parts)

    monkeypatch.setattr(open_hours, "rebuild", rebuild)


@pytest.mark.parametrize("dropped", [False, True])
def test_rows_that_come_during_a_load(monkeypatch: pytest.MonkeyPatch, *, dropped: bool) -> None:
    """Heads without these rows are not used, even if those that have them were dropped again."""
    store, model = filled()
    folder = store.folders.hour(FIRST)

    def during(real: Rebuild) -> Rebuild:
        def rebuild(parts: list[object]) -> SecondIndex:
            found = real(parts)
            add(store, model)
            run(store.flusher.flush(upto=model.position))
            if dropped:
                folder.heads.forget()
            return found

        return rebuild

    once(monkeypatch, during)
    folder.heads.load()
    check_chains(store, model)
    add(store, model)
    run(store.flusher.flush(upto=model.position))
    check_chains(store, model)


def test_a_sync_during_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads that are being rebuilt differ from the file, but cannot be written yet."""
    store, model = filled()

    def during(real: Rebuild) -> Rebuild:
        def rebuild(parts: list[object]) -> SecondIndex:
            run(store.flusher.sync())
            return real(parts)

        return rebuild

    once(monkeypatch, during)
    store.folders.hour(FIRST).heads.load()
    assert store.folders.hour(FIRST).heads.dirty
    check_chains(store, model)
