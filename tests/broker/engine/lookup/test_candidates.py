"""Lists and jobs by key or tag find the same messages with the index as without it.

Random traffic of sends, moves, settles, restarts and checkpoints, with near and far hours, is
listed twice: with the index, and by going through all messages. What a send answered is always
found, also after power cuts, a lost or damaged index, compaction, and while a rebuild is under way.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.lookup import text_entries
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.lookup.text_entries import candidates
from delaylog.broker.engine.views import listing as list_found
from delaylog.broker.engine.views.list_page import ListQuery
from delaylog.storage.errors import DiskFullError
from delaylog.storage.layout import HOUR_MS, MessageState
from delaylog.storage.runs import run_store, text_index
from delaylog.storage.runs.run_store import RunWriter
from tests.broker.engine.host import Host
from tests.broker.engine.views.test_listing import (
    Traffic,
    ids_of,
    listed,
    listing_of,
    page_of,
    pages,
    with_limit,
)
from tests.effort import tries
from tests.storage.fake_disk import SURVIVALS, FakeDisk

WANTED = [
    ListQuery(key=b"red"),
    ListQuery(tag=b"b"),
    ListQuery(tag=b"a", key=b"blue"),
    ListQuery(key=b"blue", states=frozenset([MessageState.WAITING, MessageState.READY])),
    ListQuery(tag=b"none"),
]


def whole(host: Host) -> None:
    """Finish the background work on the index."""
    host.engine.run_inline(host.engine.housekeeping.texts_work())
    assert host.engine.state.texts.whole


def both(host: Host, query: ListQuery, limit: int = 3) -> tuple[list[str], list[str]]:
    """Ids with the index and without it."""
    texts, query = host.engine.state.texts, with_limit(query, limit)
    found = ids_of(listed(host, query))
    texts.whole = False
    plain = ids_of(listed(host, query))
    texts.whole = True
    return found, plain


@pytest.mark.long
@settings(max_examples=tries(25), deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_index_lists_what_a_scan_lists(tmp_path_factory: Any, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_store, "SIZE_MIN", 8)
        random = Random(seed)
        patch.setattr(text_index, "COMMON", random.choice([5, 10_000]))
        host = Host(tmp_path_factory.mktemp("find"))
        traffic = Traffic(host, random)
        for _ in range(5):
            traffic.run(12)
            if random.random() < 0.3:
                # The index is lost: a start notices it.
                host.engine.state.texts.clear()
                host.restart()
            whole(host)
            for query in WANTED:
                found, plain = both(host, query)
                assert found == plain, (seed, query)
                assert sorted(found) == sorted(traffic.expected(query))
        host.close()


def test_pages_go_on_in_either_way(host: Any) -> None:
    """A cursor of one way is one of the other: half of the pages come from the index."""
    host.send(
        40,
        delay=[HOUR_MS * (k % 3) + k // 6 for k in range(40)],
        keys=["red" if k % 2 else "blue" for k in range(40)],
    )
    host.flush()
    wanted = ListQuery(key=b"red", limit=3)
    flips = iter(range(100))

    def flip() -> None:
        host.engine.state.texts.whole = bool(next(flips) % 2)

    found = [m for page in pages(host, wanted, flip) for m in page.messages]
    assert len({m.origin for m in found}) == len(found) == 20


@pytest.mark.parametrize("by_ms", [20, HOUR_MS, 90 * HOUR_MS])
def test_messages_that_move_while_a_page_is_made(
    open_host: Any, monkeypatch: pytest.MonkeyPatch, by_ms: int
) -> None:
    """None is missed, whichever slice they move before: within their hour, to one that the page
    comes to, or to one without messages; the order is that of due times."""
    monkeypatch.setattr(list_found, "_TAKE_ROWS", 10)
    monkeypatch.setattr(list_found, "_PUT_ROWS", 4)
    for lead in count(1):
        host = open_host()
        ids = [f"m{k}" for k in range(30)]
        delay = [HOUR_MS * (k % 5) + k for k in range(30)]
        host.send(30, ids=ids, keys=["k"] * 30, delay=delay)
        host.flush()
        query, slices = ListQuery(key=b"k", limit=100), 0
        listing = listing_of(host, query)
        for slices, _ in enumerate(listing.work(), 1):
            if slices == lead:
                for number in range(0, 30, 3):
                    host.reschedule([ids[number]], host.now_ms + delay[number] + by_ms)
        found, cursor = listing.page.messages, listing.page.cursor
        while cursor is not None:
            page = page_of(host, query, cursor)
            found, cursor = found + page.messages, page.cursor
        assert set(ids_of(found)) == set(ids)
        again = [name for name in ids if ids_of(found).count(name) > 1]
        assert not again or all(int(name[1:]) % 3 == 0 for name in again)
        due = [int(m.row["deliver_at"]) for m in found]
        assert due == sorted(due)
        if lead > slices:
            assert lead > 8
            return


def test_a_page_of_a_common_key_looks_at_few_rows(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read of the hours that the page comes to, not of all candidates; and a page whose
    time is used up at once goes on all the same."""
    host.send(500, keys=["k"] * 500, delay=[HOUR_MS * (k // 10) for k in range(500)])
    host.flush()
    monkeypatch.setattr(list_found, "_TAKE_ROWS", 10)
    looked: list[int] = []
    find = list_found.find_origins

    def counted(state: Any, origins: Any, *args: Any) -> Any:
        looked.append(len(origins))
        return find(state, origins, *args)

    monkeypatch.setattr(list_found, "find_origins", counted)
    first = page_of(host, ListQuery(key=b"k", limit=20))
    assert (len(first.messages), sum(looked)) == (20, 40)
    every = listed(host, ListQuery(key=b"k", limit=20))
    assert len(every) == len({m.origin for m in every}) == 500
    seconds = map(float, count())
    none = ListQuery(key=b"k", states=frozenset([MessageState.DEAD]))
    assert listed(host, none, clock=lambda: next(seconds)) == []


def test_an_answered_send_is_found_at_once(host: Any) -> None:
    """In the tail, in the files, after a restart without a checkpoint, and after one with it."""
    host.send(3, ids=["a", "b", "c"], keys=["k", "", "k"], tags=["x,y", "y", ""], delay=HOUR_MS)
    topic = host.topic.number
    for step in ("turn", "flush", "restart", "checkpoint", "restart"):
        getattr(host, step)()
        whole(host)
        assert len(candidates(host.engine.state, topic, MessageFilter(key=b"k"))) == 2
        assert len(candidates(host.engine.state, topic, MessageFilter(tag=b"y"))) == 2
        assert len(candidates(host.engine.state, topic, MessageFilter(key=b"k", tag=b"x"))) <= 2
        assert candidates(host.engine.state, topic, MessageFilter(tag=b"z")).tolist() == []
        assert candidates(host.engine.state, topic, MessageFilter(key=b"")) is None


def test_common_texts_go_through_all(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many messages have the tag: no candidates, and the list is whole all the same."""
    monkeypatch.setattr(text_index, "COMMON", 10)
    host.send(30, tags=["t"] * 30, keys=[f"{k % 15}" for k in range(30)], delay=HOUR_MS)
    host.checkpoint()
    state, topic = host.engine.state, host.topic.number
    assert candidates(state, topic, MessageFilter(tag=b"t")) is None
    assert len(listed(host, ListQuery(tag=b"t"))) == 30
    # A rare key narrows a common tag.
    assert len(candidates(state, topic, MessageFilter(tag=b"t", key=b"3"))) == 2


@pytest.mark.parametrize("action", ["cancel", "reschedule"])
def test_jobs_act_on_the_same_messages(host: Any, action: str) -> None:
    """A job by key changes exactly the messages with that key, hour by hour, and stops there."""
    keys = ["k" if k % 10 == 0 else f"other-{k}" for k in range(60)]
    host.send(60, keys=keys, delay=[HOUR_MS * (k % 4) + 60_000 for k in range(60)])
    host.checkpoint()
    host.send(5, keys=["k"] * 5, delay=2 * HOUR_MS)
    due = host.now_ms + 9 * HOUR_MS if action == "reschedule" else None
    job = host.run_job(action, MessageFilter(key=b"k"), deliver_at_ms=due)
    assert (job.state, job.matched, job.done) == ("done", 11, 11)
    left = listed(host, ListQuery(states=frozenset([MessageState.WAITING])))
    changed = [m for m in left if m.head.key == b"k"]
    if action == "cancel":
        assert (len(left), changed) == (54, [])
    else:
        assert {int(m.row["deliver_at"]) for m in changed} == {due}


def test_compaction_and_removed_hours(host: Any) -> None:
    """What ended is not found when its rows are gone, what moved is found at its new place."""
    host.configure(ended_keep_ms=0)
    host.send(20, tags=["t,u"] * 20, delay=1_000)
    host.advance(2_000)
    taken = host.receive(20)
    host.ack(taken[:18])
    host.nack(taken[18:], 5 * HOUR_MS)
    host.advance(3 * HOUR_MS)
    host.checkpoint(3)
    for step in ("turn", "restart"):
        getattr(host, step)()
        whole(host)
        for query in (ListQuery(tag=b"u"), ListQuery(tag=b"t")):
            found, plain = both(host, query)
            assert found == plain
            assert len(found) == 2


def test_a_full_disk_loses_no_entry(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that fails is told to the host, which tries again later; look-ups find everything."""

    def full(*_: Any) -> Any:
        raise DiskFullError("no space left")

    monkeypatch.setattr(text_entries, "RECENT_MAX", 2)
    host.send(5, keys=["k"] * 5, delay=HOUR_MS)
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "add", full)
        with pytest.raises(DiskFullError):
            host.engine.run_inline(host.engine.housekeeping.texts_work())
        host.send(2, keys=["k"] * 2, delay=HOUR_MS)
        assert len(listed(host, ListQuery(key=b"k"))) == 7
    host.engine.run_inline(host.engine.housekeeping.texts_work())
    assert len(listed(host, ListQuery(key=b"k"))) == 7
    host.checkpoint()
    host.restart()
    whole(host)
    assert both(host, ListQuery(key=b"k"))[0] == ids_of(listed(host, ListQuery()))


def test_a_rebuild_on_a_full_disk_keeps_little_in_memory(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at the first run that cannot be written, and begins anew: memory is bounded however
    often it is tried. What is sent meanwhile is found in the end."""

    def full(*_: Any) -> Any:
        raise DiskFullError("no space left")

    host.send(300, keys=["k"] * 300, delay=[HOUR_MS * (k % 3) for k in range(300)])
    host.checkpoint()
    host.engine.state.texts.clear()
    host.restart()
    monkeypatch.setattr(text_entries, "RECENT_MAX", 50)
    texts = host.engine.state.texts
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "add", full)
        for _ in range(5):
            with pytest.raises(DiskFullError):
                host.engine.run_inline(host.engine.housekeeping.texts_work())
            host.send(2, keys=["k"] * 2, delay=HOUR_MS)
            entries = [*texts._flushing, texts._recent]
            assert sum(len(refs) for batch in entries for refs in batch.refs) < 200
            assert not texts.whole
            assert len(listed(host, ListQuery(key=b"k"))) > 300
    whole(host)
    found, plain = both(host, ListQuery(key=b"k"), limit=100)
    assert found == plain
    assert len(found) == 310


@pytest.mark.parametrize("survival", SURVIVALS)
def test_power_cuts(survival: Any) -> None:
    """After any cut every message that a GET finds is found by its key and its tag."""
    for seed in range(3):
        random = Random(seed)
        host = Host("/d", fs=FakeDisk())
        for number in range(30):
            host.send(
                1,
                ids=[f"m{number}"],
                keys=[f"k{number % 3}"],
                tags=[f"t{number % 4}"],
                delay=random.choice([1_000, HOUR_MS, 60 * HOUR_MS]),
            )
            act = random.choice(["turn", "flush", "checkpoint", "cut", "turn"])
            if act == "cut":
                host.lose_power(survival, seed * 100 + number, loses_ids=False)
            else:
                getattr(host, act)()
        whole(host)
        names = [f"m{number}" for number in range(30)]
        stored = [n for n in names if host.state_of(n) is not None]
        for number in range(3):
            found, plain = both(host, ListQuery(key=b"k%d" % number))
            assert sorted(found) == sorted(plain)
            assert sorted(found) == sorted(n for n in stored if int(n[1:]) % 3 == number)
        host.close()
