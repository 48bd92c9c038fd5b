"""Lists against looking every message up by its id.

The model is a plain list of the messages that were ever sent: each is found by id, which knows
nothing of hours, chains and zone maps, and those that match are sorted. Random traffic moves them
through every state, into files and back through restarts; pages are taken with small limits, with
little time, by reading hours through and by walking chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.topics import commands as topics
from delaylog.broker.engine.views import listing
from delaylog.broker.engine.views.list_page import (
    CURSOR_TEXT_SIZE,
    SHOWN,
    Cursor,
    Effort,
    Listed,
    ListQuery,
    Page,
)
from delaylog.broker.engine.views.listing import Listing
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_MASK,
    Cause,
    MessageState,
    ref_to_id,
)
from tests.effort import tries

KEYS = [b"", b"red", b"blue", b"green"]
TAGS = [b"", b"a", b"b", b"a\nb", b"long-tag\nb"]
ANY = ListQuery()


def listing_of(
    host: Any, query: ListQuery = ANY, *, topic: str | None = None, group: Any = None, **how: Any
) -> Listing:
    """One page, to be made; `how` are efforts."""
    whose = host.engine.topic(topic or host.topic_name)
    effort = Effort(**{"clock": lambda: 0.0} | how)
    return Listing(host.engine.state, whose, query, effort, group=group, now_ms=host.now_ms)


def page_of(host: Any, query: ListQuery, cursor: str | None = None, **how: Any) -> Page:
    """One page."""
    made = listing_of(host, replace(query, cursor=cursor), **how)
    host.engine.run_inline(made.work())
    return made.page


def pages(
    host: Any, query: ListQuery, between: Callable[[], None] = lambda: None, **how: Any
) -> Iterator[Page]:
    """All pages of a list."""
    cursor = None
    for _ in range(10_000):
        page = page_of(host, query, cursor, **how)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
        between()
    raise AssertionError("a list comes to its end")


def listed(host: Any, query: ListQuery, **how: Any) -> list[Listed]:
    return [message for page in pages(host, query, **how) for message in page.messages]


def ids_of(found: list[Listed]) -> list[str]:
    return [message.head.id.decode() or ref_to_id(int(message.row["origin"])) for message in found]


@dataclass
class Traffic:
    """Random traffic of a topic, and what it comes to."""

    host: Any
    random: Random
    sent: dict[str, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    taken: list[Any] = field(default_factory=list)

    def send(self) -> None:
        random, host = self.random, self.host
        n = random.choice([1, 2, 17])
        # Few moments, so that seconds and even milliseconds are shared.
        hours = random.choice([0, 1, 40, 41, 43, 60, 300])
        base = host.now_ms + hours * HOUR_MS + random.choice([0, 5_000])
        due = [base + random.choice([0, 1, 700, 1_000, 60_000]) for _ in range(n)]
        named = random.random() < 0.5
        keys = [random.choice(KEYS) for _ in range(n)]
        tags = [random.choice(TAGS) for _ in range(n)]
        ids = [f"id-{len(self.sent) + k}" for k in range(n)] if named else None
        bodies = [random.randbytes(random.randrange(20)) for _ in range(n)]
        result = host.send(bodies, at=due, ids=ids, keys=keys, tags=tags)
        for k, name in enumerate(ids or host.ids_of(result)):
            self.sent[name] = (keys[k], tags[k], bodies[k])

    def noise(self) -> None:
        self.host.send(3, delay=self.random.choice([0, 700, HOUR_MS]), topic="other")

    def receive(self) -> None:
        group = self.random.choice([group.name for group in self.host.topic.groups.values()])
        self.taken += self.host.receive(self.random.choice([1, 3, 9]), lease=20_000, group=group)

    def settle(self) -> None:
        self.random.shuffle(self.taken)
        some, self.taken = self.taken[:4], self.taken[4:]
        for message in some:
            how = self.random.choice(["ack", "nack", "later", "leave"])
            if how == "ack":
                self.host.ack([message])
            elif how != "leave":
                self.host.nack([message], 0 if how == "nack" else 2_000)

    def control(self) -> None:
        names = self.random.sample(sorted(self.sent), min(len(self.sent), 4))
        if self.random.random() < 0.4:
            self.host.cancel(names, force=self.random.random() < 0.3)
        else:
            by = self.random.choice([0, 700, 5_000, HOUR_MS, 42 * HOUR_MS])
            self.host.reschedule(names, self.host.now_ms + by)

    def group(self) -> None:
        """A second group comes to be, or what one has is purged."""
        host = self.host
        if host.topic.group("a") is None:
            host.put_group("a")
        elif self.random.random() < 0.3:
            groups = self.random.sample(list(host.topic.groups.values()), 1)
            force = self.random.random() < 0.5
            topics.purge(host.engine.state, host.topic, groups, host.now_ms, force=force)
        host.turn()

    def keep(self) -> None:
        act = self.random.choice(["flush", "checkpoint", "restart", "advance", "advance", "short"])
        if act == "advance":
            self.host.advance(self.random.choice([1_000, 30_000, 400_000]))
        elif act == "short":
            self.host.advance(1)
        else:
            getattr(self.host, act)()

    def run(self, steps: int) -> None:
        acts = [
            self.send,
            self.send,
            self.noise,
            self.receive,
            self.settle,
            self.control,
            self.group,
            self.keep,
        ]
        for _ in range(steps):
            self.random.choice(acts)()

    def expected(self, query: ListQuery, group: str = "default") -> list[str]:
        """Ids that a list shows, in its order."""
        out = []
        settings = self.host.topic.settings
        state, topic = self.host.engine.state, self.host.topic
        whose = topic.group(group)
        all_found = find_ids(state, topic, list(self.sent), self.host.now_ms, whose)
        for name, found in zip(self.sent, all_found, strict=True):
            if found is None:
                continue
            due = int(found.row["deliver_at"])
            key, tags, _ = self.sent[name]
            if found.state >= MessageState.ACKED:
                dead = found.state is MessageState.DEAD
                keep = settings.dead_keep_ms if dead else settings.ended_keep_ms
                if int(found.entry["time"]) + keep < self.host.now_ms:
                    continue
            if (
                found.state in query.states
                and query.due_from_ms <= due < query.due_to_ms
                and (query.key is None or query.key == key)
                and (query.tag is None or query.tag in tags.split(b"\n"))
            ):
                out.append((found.ref >> HOUR_SHIFT, due, found.ref & INDEX_MASK, name))
        return [name for *_, name in sorted(out)]


def queries(host: Any, random: Random) -> list[ListQuery]:
    """Every state alone, and a handful of mixed filters."""
    now = host.now_ms
    out = [ListQuery(states=frozenset([state])) for state in SHOWN]
    out += [ListQuery(), ListQuery(tag=b"b"), ListQuery(tag=b"none"), ListQuery(key=b"red")]
    for _ in range(6):
        states = frozenset(random.sample(SHOWN, random.randrange(1, len(SHOWN) + 1)))
        low = now + random.choice([-HOUR_MS, 0, 700, HOUR_MS])
        high = low + random.choice([1, 800, 60_001, 40 * HOUR_MS, 60 * HOUR_MS])
        tag, key = random.choice([None, None, b"a"]), random.choice([None, None, b"blue", b""])
        out.append(ListQuery(states, low, high, tag, key))
    return out


def with_limit(query: ListQuery, limit: int, **more: Any) -> ListQuery:
    return replace(query, limit=limit, **more)


@pytest.mark.parametrize("seed", range(tries(6)))
def test_lists_are_those_of_every_message(
    host: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading hours through and walking them, sparse ones alone or together, in pages of every
    size, with and without time.
    """
    random = Random(seed)
    monkeypatch.setattr(listing, "FEW_ROWS", random.choice([0, 8, 32]))
    monkeypatch.setattr(listing, "STRETCH_ROWS_MAX", random.choice([8, 1_024]))
    traffic = Traffic(host, random)
    for _ in range(2):
        traffic.run(40)
        for query in queries(host, random):
            wanted = traffic.expected(query)
            for scan_rows_max in (0, 1 << 20):
                limit = random.choice([1, 3, 50])
                found = listed(host, with_limit(query, limit), scan_rows_max=scan_rows_max)
                assert ids_of(found) == wanted, (seed, query, scan_rows_max)
            whose = host.topic.group("a")
            if whose is not None:
                for scan_rows_max in (0, 1 << 20):
                    found = listed(host, query, scan_rows_max=scan_rows_max, group=whose)
                    assert ids_of(found) == traffic.expected(query, "a"), (seed, query)
            hurried = listed(
                host, query, scan_rows_max=random.choice([0, 1 << 20]), seconds_max=0.0
            )
            assert ids_of(hurried) == wanted


@pytest.mark.parametrize("seed", range(tries(4)))
def test_hot_seconds_come_newest_first_and_once(host: Any, seed: int) -> None:
    """Above the bound a second is not sorted: everything is there once, seconds in their order."""
    random = Random(seed)
    traffic = Traffic(host, random)
    traffic.run(80)
    for query in queries(host, random):
        how = {"scan_rows_max": 0, "second_rows_max": random.choice([0, 2, 9])}
        found = listed(host, with_limit(query, random.choice([1, 4, 30])), **how)
        names = ids_of(found)
        assert len(names) == len(set(names))
        assert sorted(names) == sorted(traffic.expected(query)), (seed, query)
        seconds = [int(message.row["deliver_at"]) // 1000 for message in found]
        assert seconds == sorted(seconds)


def test_order_inside_a_hot_second(host: Any) -> None:
    """Newest first, from the tail into the files, with a restart between every two pages."""
    due = host.now_ms + 2 * HOUR_MS
    for part in range(4):
        host.send(5, at=[due + (k * 7 + part) % 20 for k in range(5)])
        if part < 3:
            host.flush()
    query = ListQuery(limit=2)
    indexes = [
        int(message.row["global_index"])
        for page in pages(host, query, host.restart, scan_rows_max=0, second_rows_max=10)
        for message in page.messages
    ]
    assert indexes == list(range(20, 0, -1))


def test_a_second_that_grows_hot_between_pages(host: Any) -> None:
    """What came in due order so far is not shown again when the rest comes newest first."""
    due = host.now_ms + 2 * HOUR_MS
    host.send(8, at=[due + 7 - k for k in range(8)])
    host.flush()
    how = {"scan_rows_max": 0, "second_rows_max": 10}
    first = page_of(host, ListQuery(limit=3), **how)
    assert [int(m.row["deliver_at"]) for m in first.messages] == [due, due + 1, due + 2]
    host.send(5, at=due + 900)
    host.flush()
    rest: list[Listed] = []
    cursor = first.cursor
    while cursor is not None:
        page = page_of(host, ListQuery(limit=3), cursor, **how)
        rest += page.messages
        cursor = page.cursor
    assert [int(m.row["global_index"]) for m in rest] == [13, 12, 11, 10, 9, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("scan_rows_max", [0, 1 << 20])
def test_restarts_and_changes_between_pages(host: Any, scan_rows_max: int) -> None:
    """A cursor goes on after a restart; nothing is shown twice, and nothing that ended."""
    due = [host.now_ms + HOUR_MS + k * 300 for k in range(40)]
    names = host.ids_of(host.send(40, at=due))
    seen: list[str] = []
    number = 0

    def between() -> None:
        nonlocal number
        number += 1
        if number == 2:
            host.send(3, at=due[0])
            host.cancel([names[30]])
            host.reschedule([names[1]], due[35] + 1)
        host.restart()
        if number % 2:
            host.checkpoint()

    living = frozenset([MessageState.WAITING])
    for page in pages(host, ListQuery(living, limit=7), between, scan_rows_max=scan_rows_max):
        seen += ids_of(page.messages)
    assert seen == [*names[:30], *names[31:36], names[1], *names[36:]]


def scattered(host: Any, n: int) -> list[str]:
    """Messages that are due in as many hours of a year, one in each."""
    due = [host.now_ms + (40 + 3 * k) * HOUR_MS for k in range(n)]
    return host.ids_of(host.send(n, at=due))


def test_sparse_hours_are_read_together(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of timers that are due within a year looks at no hour by itself, and either way of
    reading continues where the other ended.
    """
    names = scattered(host, 900)
    host.flush()
    assert ids_of(listed(host, ListQuery(limit=300))) == names
    cursor, seen, alone = None, list[str](), 0
    read = Listing._list_hour

    def counted(self: Listing, hour: int) -> Any:
        nonlocal alone
        alone += 1
        return read(self, hour)

    monkeypatch.setattr(Listing, "_list_hour", counted)
    for few in range(1_000):
        # Every second page reads each hour by itself.
        monkeypatch.setattr(listing, "FEW_ROWS", 32 * (few % 2))
        before = alone
        page = page_of(host, ListQuery(limit=31), cursor)
        seen += ids_of(page.messages)
        assert (alone - before > 1) == (few % 2 == 0)
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == names


def test_messages_that_move_among_sparse_hours(host: Any) -> None:
    """While a page is made: what moves ahead is listed at its new place, and nothing twice."""
    names = scattered(host, 400)
    host.flush()
    moved = {
        names[k]: host.now_ms + (40 + 3 * to) * HOUR_MS + 1 for k, to in ((300, 390), (350, 399))
    }
    listing = listing_of(host, ListQuery(limit=1_000))
    work = listing.work()
    next(work)
    for name, due in moved.items():
        host.reschedule([name], due)
    host.engine.run_inline(work)
    page, seen = listing.page, list[str]()
    while True:
        seen += ids_of(page.messages)
        if page.cursor is None:
            break
        page = page_of(host, ListQuery(limit=1_000), page.cursor)
    assert sorted(seen) == sorted(names)
    assert seen[-1] == names[350]
    assert seen.index(names[300]) == seen.index(names[390]) + 1


def test_bodies_come_when_asked_for(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole records, at most so many bytes a page, from tail and files."""
    monkeypatch.setattr("delaylog.broker.engine.views.listing.PAGE_BYTES_MAX", 100)
    bodies = [bytes([65 + k]) * 40 for k in range(9)]
    host.send(bodies[:5], delay=HOUR_MS, ids=[f"n{k}" for k in range(5)])
    host.checkpoint()
    host.restart()
    host.send(bodies[5:], delay=HOUR_MS)
    for scan_rows_max in (0, 1 << 20):
        found = list(pages(host, ListQuery(bodies=True), scan_rows_max=scan_rows_max))
        assert [m.body for page in found for m in page.messages] == bodies
        assert all(len(page.messages) <= 2 for page in found)
    assert all(m.body is None for m in listed(host, ListQuery()))
    big = host.send([b"x" * 500], delay=2 * HOUR_MS)
    assert len(host.ids_of(big)) == 1
    assert listed(host, ListQuery(bodies=True))[-1].body == b"x" * 500


def test_ended_messages_are_listed_while_they_are_kept(host: Any) -> None:
    """Acked and deleted ones for `ended_keep_ms`, dead ones for `dead_keep_ms`."""
    host.configure(max_retry=0, ended_keep_ms=1_000, dead_keep_ms=5_000)
    host.send(3)
    host.send(1, delay=4 * HOUR_MS)
    first, second, third = host.receive()
    host.ack([first])
    host.nack([second])
    host.cancel([third.any_id], force=True)
    ended = {MessageState.ACKED, MessageState.DEAD, MessageState.CANCELLED}
    query = ListQuery(frozenset(ended))
    assert ids_of(listed(host, query)) == [m.any_id for m in (first, second, third)]
    host.advance(2_000)
    assert ids_of(listed(host, query)) == [second.any_id]
    host.advance(4_000)
    assert listed(host, query) == []


def test_time_that_is_used_up_ends_a_page(host: Any) -> None:
    """The clock is asked, what others take between two slices is not counted, and it goes on."""
    host.send(4_000, at=[host.now_ms + HOUR_MS + k * 800 for k in range(4_000)])
    host.flush()
    host.engine.state.texts.whole = False
    ticks = iter(range(10**9))
    nothing = ListQuery(key=b"none")
    how = {"clock": lambda: next(ticks) / 1000, "scan_rows_max": 0}
    found = list(pages(host, nothing, seconds_max=0.004, **how))
    assert len(found) > 2
    assert not any(page.messages for page in found)
    assert sum(page.scanned for page in found) >= 4_000


def test_hours_that_cannot_match_are_not_read(host: Any) -> None:
    """Neither hours without living rows of the topic, nor extents of other topics."""
    other = [host.now_ms + HOUR_MS * (1 + k % 20) for k in range(400)]
    host.send(400, at=other, topic="other")
    host.flush()
    host.send(2, at=host.now_ms + 5 * HOUR_MS)
    host.flush()
    living = frozenset([MessageState.WAITING, MessageState.READY, MessageState.LEASED])
    page = page_of(host, ListQuery(living))
    assert len(page.messages) == 2
    assert page.scanned <= 2
    dead = page_of(host, ListQuery(frozenset([MessageState.DEAD])))
    assert (dead.scanned, dead.messages, dead.cursor) == (0, [], None)


def test_an_hour_that_goes_while_it_is_read(host: Any) -> None:
    """Retention takes an hour between two slices: the page goes on behind it."""
    host.send(200, at=host.now_ms + HOUR_MS)
    host.send(1, at=host.now_ms + 3 * HOUR_MS)
    host.flush()
    hour = (host.now_ms + HOUR_MS) // HOUR_MS
    listing = listing_of(host)
    work = listing.work()
    next(work)
    host.engine.state.hours.remove(hour)()
    for _ in work:
        pass
    assert [int(m.row["deliver_at"]) for m in listing.page.messages] == [host.now_ms + 3 * HOUR_MS]
    host.engine.state.hours.folders.hour(hour)


def test_a_cursor_of_another_list_is_refused(host: Any) -> None:
    """Another filter, another topic, a changed letter: each a bad request that names `cursor`."""
    host.send(5, delay=HOUR_MS)
    host.send(5, delay=HOUR_MS, topic="other")
    cursor = page_of(host, ListQuery(limit=2)).cursor
    assert cursor is not None
    assert len(cursor) == CURSOR_TEXT_SIZE
    # The size of a page and the bodies are no part of the list.
    assert len(page_of(host, ListQuery(limit=9, bodies=True), cursor).messages) == 3
    bad = [cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :] for at in range(42)]
    bad += ["", "x", cursor + "=", cursor + "A", cursor[:-1], "é" * 43, "*" * 43, " " + cursor[1:]]
    for text in bad:
        with pytest.raises(BadRequestError) as refused:
            page_of(host, ListQuery(), text)
        assert refused.value.field == "cursor", text
    for query in (ListQuery(tag=b"a"), ListQuery(frozenset([MessageState.DEAD]))):
        with pytest.raises(BadRequestError):
            page_of(host, query, cursor)
    with pytest.raises(BadRequestError):
        page_of(host, ListQuery(), cursor, topic="other")


def test_made_up_places_are_places_or_refused(host: Any) -> None:
    """Whoever knows the digest still cannot make a list fail in any other way."""
    host.send(30, at=[host.now_ms + HOUR_MS + k * 90 for k in range(30)])
    host.flush()
    random = Random(3)
    scope = ListQuery().scope(host.topic, host.topic.default)
    hour = host.now_ms // HOUR_MS + 1
    for _ in range(300):
        cursor = Cursor(
            random.choice([0, hour, hour, hour + 1, 2**20 - 1]),
            random.choice([-(2**63), 0, host.now_ms + HOUR_MS, 2**63 - 1]),
            random.choice([0, 5, 2**32 - 1]),
            random.choice([0, 1, 1_200, 3_599, 3_600, 65_535]),
            random.choice([0, 0, 1, 7, 30, 31, 2**32 - 1]),
        )
        with suppress(BadRequestError):
            page_of(host, ListQuery(), cursor.encode(scope), scan_rows_max=random.choice([0, 99]))


def test_rows_below_the_hour_floor_stand_in_a_later_hour(host: Any) -> None:
    """Due times may lie before their hour: each message is listed once, in due order there."""
    host.engine.state.hour_floor = host.now_ms // HOUR_MS + 2
    due = [host.now_ms + 1_000 + 700 * k for k in range(6)]
    names = host.ids_of(host.send(6, at=due))
    assert all(found.ref >> HOUR_SHIFT > due[-1] // HOUR_MS for found in host.find(names))
    living = frozenset([MessageState.WAITING, MessageState.READY])
    for flush in (False, True):
        for scan_rows_max in (0, 1 << 20):
            for limit in (1, 4):
                how = {"scan_rows_max": scan_rows_max}
                query = ListQuery(living, due_from_ms=due[0], limit=limit)
                assert ids_of(listed(host, query, **how)) == names
                query = ListQuery(living, due_from_ms=due[1], due_to_ms=due[4], limit=limit)
                assert ids_of(listed(host, query, **how)) == names[1:4]
        if flush is False:
            host.checkpoint()


def test_files_that_are_closed_while_they_are_read(host: Any) -> None:
    """Descriptors may be given back between any two slices."""
    host.send(3_000, at=[host.now_ms + HOUR_MS + k % 40 * 1_000 for k in range(3_000)])
    host.flush()
    hour = (host.now_ms + HOUR_MS) // HOUR_MS
    for scan_rows_max in (0, 1 << 20):
        for second_rows_max in (10, 10_000):
            how = {"scan_rows_max": scan_rows_max, "second_rows_max": second_rows_max}
            listing = listing_of(host, ListQuery(limit=1_000, bodies=True), **how)
            for _ in listing.work():
                folder = host.engine.state.hours.folders.hour(hour)
                if not folder.files.unsynced:
                    folder.close_files()
                    folder.heads.drop()
                else:
                    folder.files.sync()
            assert len(set(ids_of(listing.page.messages))) == 1_000


def test_the_splitter_works_while_a_page_is_made(host: Any) -> None:
    """Rows that go from the tail into files between two slices are shown once."""
    for scan_rows_max in (0, 1 << 20):
        host.send(700, at=[host.now_ms + HOUR_MS + k * 13 for k in range(700)])
        total = len(listed(host, ListQuery(limit=1_000)))
        host.send(50, at=[host.now_ms + HOUR_MS + k * 13 for k in range(50)])
        query = ListQuery(limit=1_000 if total < 900 else 1_900, bodies=True)
        listing = listing_of(host, query, scan_rows_max=scan_rows_max)
        for number, _ in enumerate(listing.work()):
            if number == 3:
                host.flush()
        names = ids_of(listing.page.messages)
        assert len(names) == len(set(names)) == total + 50


def test_topics_that_share_a_bit_of_the_zone_maps(host: Any) -> None:
    """64 topics on there is another one with the same bit: lists stay apart."""
    for number in range(70):
        host.send(2, delay=HOUR_MS + number, topic=f"t{number}")
    host.checkpoint()
    for number in range(70):
        assert len(listed(host, ListQuery(), topic=f"t{number}")) == 2


def test_a_purge_is_listed_while_deleted_messages_are(host: Any) -> None:
    """A purge writes no state: what it ended is shown as deleted, then not at all."""
    host.configure(ended_keep_ms=1_000)
    names = host.ids_of(host.send(5, delay=HOUR_MS))
    host.flush()
    names += host.ids_of(host.send(2, delay=2 * HOUR_MS))
    host.purge("default", force=False)
    host.turn()
    after = host.ids_of(host.send(1, delay=HOUR_MS))
    deleted = ListQuery(frozenset([MessageState.CANCELLED]), limit=3)
    waiting = ListQuery(frozenset([MessageState.WAITING]))
    for scan_rows_max in (0, 1 << 20):
        found = listed(host, deleted, scan_rows_max=scan_rows_max)
        assert ids_of(found) == names
        assert {int(message.entry["cause"]) for message in found} == {Cause.PURGE}
        assert {int(message.entry["time"]) for message in found} == {host.now_ms}
        assert ids_of(listed(host, waiting, scan_rows_max=scan_rows_max)) == after
    host.advance(1_001)
    page = page_of(host, deleted)
    assert (page.messages, page.scanned) == ([], 0)
