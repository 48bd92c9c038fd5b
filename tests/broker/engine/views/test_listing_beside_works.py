"""Lists while other works change the files that they read.

Purpose: a page shows each message with its own id and body, whatever the works between two of its
slices do with rows and records, and never reports a corruption that is none.
Method: a page is made slice by slice. After each number of slices once, another work runs to its
end, or in turns with the page if the two must wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.views.list_page import ListQuery, Page
from delaylog.storage.errors import CorruptionError
from delaylog.storage.hours.compaction import Removal
from delaylog.storage.hours.far import run_stack
from delaylog.storage.layout import HOUR_MS, INDEX_MASK, MessageState, ref_to_id
from delaylog.storage.work import Work
from tests.broker.engine.views.test_listing import listing_of

DELAY_MS = 50 * HOUR_MS
QUERY = ListQuery(frozenset([MessageState.WAITING]), limit=1_000, bodies=True)
Messages = dict[str, bytes]
"""Bodies by id."""


@pytest.fixture(autouse=True)
def small_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_stack, "FAN_IN", 2)


def fill(host: Any, delay_ms: int, *, named: bool, apart_ms: int = 1) -> Messages:
    """Messages of one hour, in files that three flushes have written, after some that are gone;
    with `apart_ms` of an hour, of as many hours.
    """
    out: Messages = {}
    for part in range(3):
        bodies = [b"%d " % part + b"x" * (k % 19) + b"%d" % k for k in range(60)]
        ids = [f"{part}-{k}" + "y" * (k % 7) for k in range(60)] if named else None
        sent = host.send(bodies, delay=[delay_ms + k * apart_ms for k in range(60)], ids=ids)
        out |= zip(ids or host.ids_of(sent), bodies, strict=True)
        # An hour before, so that the records of this hour move when runs are merged.
        host.send([b"earlier"] * 9, delay=delay_ms - HOUR_MS, topic="other")
        host.flush()
    return out


def check(page: Page, messages: Messages, *, ended: set[str]) -> None:
    """Each message once, with its body; those that have `ended` meanwhile may be left out."""
    shown = [m.head.id.decode() or ref_to_id(int(m.row["origin"])) for m in page.messages]
    assert [m.body for m in page.messages] == [messages[name] for name in shown]
    assert len(set(shown)) == len(shown)
    assert messages.keys() - shown <= ended
    due = [int(m.row["deliver_at"]) for m in page.messages]
    assert due == sorted(due)


def merge(host: Any) -> None:
    host.engine.run_inline(host.engine.housekeeping.merge_work(lambda: host.now_ms))


def split(host: Any) -> None:
    host.jump_ahead(20 * HOUR_MS)
    assert host.engine.housekeeping.split_due(host.now_ms)
    host.engine.run_inline(host.engine.housekeeping.split_work())


def split_and_compact(host: Any) -> None:
    split(host)
    host.engine.run_inline(compaction(host))


def compaction(host: Any) -> Work:
    """Removes every third row of the hour: the test has cancelled these messages."""
    hours = host.engine.state.hours
    hour = max(hours.counts)
    gone = np.arange(hours.flushed(hour)) % 3 == 0
    removal = Removal(gone, np.zeros(len(gone), np.bool_), states=False)
    work: Work = hours.compact(hour, removal)
    return work


def every_third(messages: Messages, host: Any) -> list[str]:
    """The messages whose rows `compaction` removes."""
    found = host.find(list(messages))
    return [name for name, m in zip(messages, found, strict=True) if (m.ref & INDEX_MASK) % 3 == 1]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("other", "apart_ms"),
    [(merge, 1), (split, 1), (split_and_compact, 1), (merge, HOUR_MS), (split, HOUR_MS)],
)
def test_far_rows_whose_records_move(
    open_host: Callable[..., Any], other: Callable[[Any], None], apart_ms: int, *, named: bool
) -> None:
    """A merge, or hours that get a folder, give the records other places."""
    for lead in count():
        host = open_host()
        messages = fill(host, DELAY_MS, named=named, apart_ms=apart_ms)
        assert host.engine.state.hours.counts.far_living
        listing, slices = listing_of(host, QUERY), 0
        ended: set[str] = set()
        for slices, _ in enumerate(listing.work(), 1):
            if slices == lead:
                if other is split_and_compact:
                    ended = set(every_third(messages, host))
                    host.cancel(list(ended))
                other(host)
        check(listing.page, messages, ended=ended)
        if lead > slices:
            assert lead > 5
            return


def test_far_rows_that_a_merge_drops(open_host: Callable[..., Any]) -> None:
    """Messages that end while a page is made, and whose rows are removed at once."""
    for lead in count():
        host = open_host()
        host.configure(ended_keep_ms=0)
        messages = fill(host, DELAY_MS, named=True)
        ended, rows = list(messages)[::2], host.engine.state.hours.far.rows
        listing, slices = listing_of(host, QUERY), 0
        for slices, _ in enumerate(listing.work(), 1):
            if slices == lead:
                host.cancel(ended)
                host.advance(10)
                merge(host)
                assert rows.rows == len(messages) - len(ended) + 27
        check(listing.page, messages, ended=set(ended))
        if lead > slices:
            assert lead > 5
            return


def test_near_rows_beside_a_compaction(open_host: Callable[..., Any]) -> None:
    """The page and the replacement of the files take turns, from each slice of the page on."""
    for lead in count():
        host = open_host()
        messages = fill(host, 5 * HOUR_MS, named=True)
        listing, slices, ended = listing_of(host, QUERY), 0, set[str]()
        work: Iterator[object] = iter(())
        for slices, _ in enumerate(listing.work(), 1):
            if slices == lead:
                ended = set(every_third(messages, host))
                host.cancel(list(ended))
                work = compaction(host)
            for step in work:
                if callable(step):
                    step()
                break
        host.engine.run_inline(work)
        check(listing.page, messages, ended=ended)
        if lead > slices:
            assert lead > 5
            return


def test_a_damaged_record_is_reported(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is not its row's, though nothing has moved, is a corruption."""
    fill(host, DELAY_MS, named=True)
    store = host.engine.state.hours
    real = store.records
    monkeypatch.setattr(store, "records", lambda refs, rows: real(refs, rows)[::-1])
    with pytest.raises(CorruptionError, match="a record that is not its row's"):
        host.engine.run_inline(listing_of(host, QUERY).work())
