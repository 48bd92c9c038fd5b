"""Rules that send, receive and settle on an engine and on queue_model.py, and compare the answers.

Of a receive it is asked what must hold: all it gives was allowed, in order as far as things can be
compared, and nothing allowed is left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from delaylog.broker.engine import changes as control
from delaylog.broker.engine.changes import GroupedResult, in_groups
from delaylog.broker.engine.deliver import receives
from delaylog.broker.engine.deliver.receives import ReceiveRequest
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.send.merge import CREATED, KEPT, REJECTED, REPLACED
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.storage.layout import MessageState as S
from tests.broker.engine.host import Host
from tests.models.power_cuts import PowerCuts
from tests.models.queue_model import FREE, Group, Message, Model, View, rank
from tests.storage.fake_disk import FakeDisk

HOUR = 3_600_000
DONE, TOO_LATE, UNKNOWN = control.DONE, control.TOO_LATE, control.UNKNOWN
DELAYS = st.one_of(
    st.sampled_from([0, 0, 0, 1, 100, 900, 5_000, 9_999, 10_000, 10_001, 60_000, HOUR, 2 * HOUR]),
    st.sampled_from([0, 0, 0, 1, 100, 900, 5_000, HOUR - 1, 40 * HOUR]),
    st.integers(0, 3_000),
    st.integers(0, 3 * HOUR),
)
NAMES = ("default", "a", "b")
TAGS = (b"red", b"blue", b"green")
FILTERS = (
    *(None, None, None),
    TagFilter(frozenset([b"red"])),
    TagFilter(frozenset([b"red", b"blue"])),
    TagFilter(frozenset([b"red", b"blue"]), "all"),
)
ROW = st.tuples(
    DELAYS,
    st.sampled_from(["", "", "k", "l"]),
    st.sampled_from(["", "", "x", "x", "y"]),
    st.frozensets(st.sampled_from(TAGS), max_size=2),
    st.sampled_from([0, 0, 0, 1, 7]),
)


@dataclass(frozen=True)
class World:
    """The conditions under which a machine runs."""

    small: bool = False
    """Answers hold a few bytes, parked messages are read from disk two at a time, and a second with
    two messages is hot."""
    fake_disk: bool = False
    """The host runs on a fake disk, and its power may fail."""
    compacts: bool = False
    """Compaction rewrites an hour for any removable row, and the keep time of ended messages is 0.
    """


class Deliveries(PowerCuts, RuleBasedStateMachine):
    """One topic; `world` is given by the test."""

    world = World()

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        how: dict[str, Any] = {}
        if self.world.small:
            how = {"hot_rows_min": 2}
        if self.world.fake_disk:
            limits = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
            how = {"limits": limits, "hot_rows_min": 8, "fs": FakeDisk()}
        data = Path("data") if self.world.fake_disk else Path(self.folder.name) / "data"
        self.host = Host(data, **how)

    @initialize(
        backoff=st.sampled_from([0, 1_000]),
        retries=st.integers(0, 3),
        order=st.sampled_from(["time", "time", "priority"]),
        parked=st.sampled_from([0, 1, 1_000]),
        named=st.sampled_from(["", "a", "a", "ab"]),
        rows=st.lists(ROW, min_size=2, max_size=6),
    )
    def begin(
        self, backoff: int, retries: int, order: str, parked: int, named: str, rows: list[Any]
    ) -> None:
        self.settings: dict[str, Any] = {
            "order": order,
            "max_retry": retries,
            "ended_keep_ms": 0 if self.world.compacts else 86_400_000,
            "backoff": Backoff(first_ms=backoff, max_ms=1 << 30, factor=2.0, jitter=0.0),
        }
        self.parked_max = parked
        self.seen_ms = self.now
        """The time after the last step."""
        self.model = Model(max_retry=retries, backoff_ms=backoff)
        self.number = 0
        self.configure()
        for name in named:
            self.make_group(name)
        self.send_rows(rows, "keep", -1)

    # ------------------------------------------------------------------ helpers

    @property
    def now(self) -> int:
        return self.host.now_ms

    @property
    def state(self) -> Any:
        return self.host.engine.state

    def configure(self, **changes: Any) -> None:
        self.settings.update(changes)
        self.host.configure(**self.settings)
        self.host.turn()
        self.set_parked_max()

    def make_group(self, name: str) -> None:
        self.host.put_group(name)
        self.model.groups[name] = Group(name)
        self.set_parked_max()

    def set_parked_max(self) -> None:
        for group in self.host.topic.groups.values():
            group.gate.parking.parked_max = self.parked_max

    def find(self, name: str, messages: list[Message]) -> Any:
        ids = [message.server_id for message in messages]
        group = self.host.topic.group(name)
        return find_ids(self.state, self.host.topic, ids, self.now, group)

    def draw(self, data: st.DataObject, *states: S) -> tuple[Message, str]:
        """A message, mostly one that is in one of these states, and a name for it."""
        known = self.model.messages
        good = {
            view.message
            for group in self.model.groups.values()
            for view in group.views.values()
            if view.state in states
        }
        rank = [message for message in known if message in good]
        pick = data.draw(st.sampled_from(rank if rank and data.draw(st.integers(0, 7)) else known))
        named = self.model.by_id.get(pick.id) is pick and data.draw(st.booleans())
        return pick, pick.id if named else pick.server_id

    def controlled(self, name: str, act: Callable[..., Any]) -> GroupedResult:
        topic, now = self.host.topic, self.now
        result = in_groups(
            topic, lambda group: find_ids(self.state, topic, [name], now, group), act
        )
        self.host.turn()
        return result

    def judge(
        self, result: GroupedResult, message: Message, can: Callable[[Group, View], bool]
    ) -> list[tuple[Group, View]]:
        """The answer is true; where it was done."""
        views = [(g, g.views[message]) for g in self.model.groups.values() if message in g.views]
        done = [(group, view) for group, view in views if can(group, view)]
        code = DONE if done else TOO_LATE if views else UNKNOWN
        assert result.result.codes.tolist() == [code]
        if code == DONE:
            late = [group.name for group, view in views if (group, view) not in done]
            assert list(result.late_for(0)) == late
        return done

    # ------------------------------------------------------------------ sending and receiving

    @rule(
        rows=st.lists(ROW, min_size=1, max_size=4),
        merge=st.sampled_from(["keep", "replace", "reject"]),
        ttl=st.sampled_from([-1, -1, -1, 2_000, HOUR]),
    )
    def send(self, rows: list[Any], merge: str, ttl: int) -> None:
        self.send_rows(rows, merge, ttl)

    def send_rows(self, rows: list[Any], merge: str, ttl: int) -> None:
        now, model = self.now, self.model
        used: set[str] = set()
        made: list[tuple[str, int]] = []
        keep: list[Any] = []
        for row in rows:
            id_ = row[2] if row[2] not in used else ""
            id_ = id_ if not id_ or model.holders_of(id_) is not None else ""
            used.add(id_)
            keep.append((*row[:2], id_, *row[3:]))
        succeed = self.settings.get("merge_leased") == "successor" or (
            self.settings.get("merge_leased") is None and merge == "replace"
        )
        for *_, id_, _, _ in keep:
            living = (model.holders_of(id_) if id_ else []) or []
            free = [pair for pair in living if pair[1].state in FREE]
            leased = [pair for pair in living if pair[1].state is S.LEASED]
            code = CREATED
            if merge == "replace":
                if leased and not succeed:
                    code = KEPT
                elif free:
                    code = REPLACED
            elif free or (leased and not succeed):
                code = KEPT if merge == "keep" else REJECTED
            made.append((id_, code))
        delays, keys, ids, tags, priorities = zip(*keep, strict=True)
        bodies = [b"%d" % (self.number + k) for k in range(len(keep))]
        texts = {"ids": ids, "keys": keys, "tags": [b",".join(sorted(each)) for each in tags]}
        more = {"priority": np.array(priorities)} if any(priorities) else {}
        result = self.host.send(
            bodies, delay=list(delays), merge=merge, ttl_ms=ttl, **texts, **more
        )
        codes = result.results
        codes = [codes] * len(keep) if isinstance(codes, int) else codes.tolist()
        assert codes == [code for _, code in made]
        for k, (id_, code) in enumerate(made):
            if code in (KEPT, REJECTED):
                continue
            message = Message(
                self.number + k,
                self.host.ids_of(result)[k],
                id_,
                keys[k],
                tags[k],
                ttl,
                self.settings["max_retry"],
                int(result.refs[k]),
            )
            old = (model.holders_of(id_) if id_ else []) or []
            model.add(message, now + delays[k], priorities[k], now)
            if id_ and succeed:
                model.succeed(message)
            for group, view in old:
                if view.state in FREE:
                    group.end(view, S.REPLACED)
            if priorities[k] and not self.model.prioritised:
                self.model.prioritised = True
                model.loosen()
        self.number += len(keep)

    @rule(keys=st.lists(st.sampled_from("kl"), min_size=2, max_size=6))
    def send_keyed(self, keys: list[str]) -> None:
        """Many of few keys, some of them wanted by filters."""
        rows = [(0, key, "", frozenset(TAGS[: k % 3]), 0) for k, key in enumerate(keys)]
        self.send_rows(rows, "keep", -1)

    @rule(
        delays=st.lists(st.integers(0, 999), min_size=10, max_size=30),
        seconds=st.integers(11, 40),
    )
    def send_hot(self, delays: list[int], seconds: int) -> None:
        """Many that are due in one second to come."""
        start = 1_000 * seconds - self.now % 1_000
        self.send_rows([(start + each, "", "", frozenset(), 0) for each in delays], "keep", -1)

    @rule(
        name=st.sampled_from(NAMES),
        count=st.integers(1, 6),
        only=st.sampled_from(FILTERS),
        lease=st.sampled_from([1, 1_000, 30_000, HOUR]),
    )
    def receive(self, name: str, count: int, only: TagFilter | None, lease: int) -> None:
        self.receive_some(name, count, only, lease)

    @rule(at=st.integers(0, 2), only=st.sampled_from(FILTERS))
    def receive_one(self, at: int, only: TagFilter | None) -> None:
        """So that something stays ready."""
        names = list(self.model.groups)
        if names:
            self.receive_some(names[at % len(names)], 1, only, 30_000)

    @rule(at=st.integers(0, 2), count=st.integers(1, 4))
    def send_again(self, at: int, count: int) -> None:
        """What is received gets a successor, or is found to be there."""
        for name in list(self.model.groups)[:1]:
            self.receive_some(name, count, None, 30_000)
        rows = [(0, "k" * at, "x", frozenset(TAGS[:at]), 0)]
        self.send_rows(rows, ["keep", "replace", "replace"][at], -1)

    def receive_some(self, name: str, count: int, only: TagFilter | None, lease: int) -> None:
        group = self.model.groups.get(name)
        if group is None:
            assert self.host.topic.group(name) is None
            return
        now = self.now
        allowed = group.allowed(only)
        place = (self.host.topic.number, self.host.topic.group(name).number)
        if place in self.state.marks.newly_ready:
            # Whoever waits is told now, and would ask again.
            self.state.marks.newly_ready.discard(place)
            group.asleep.clear()
        self.set_parked_max()
        got = self.host.receive(count, lease=lease, group=name, only=only)
        if self.host.topic.paused:
            assert got == []
            return
        by_body = {view.message.body: view for view in allowed}
        views = []
        for message in got:
            view = by_body.pop(message.body)
            assert message.attempts == view.attempts + 1
            assert message.id == view.message.id
            views.append(view)
        keyed = [view.message.key for view in views if view.message.key]
        assert len(set(keyed)) == len(keyed), "one of a key at a time"
        if len(got) < count and not (self.world.small and got):
            left = [view for view in allowed if view not in views]
            for view in left:
                key = view.message.key
                assert key, "nothing allowed is left out"
                assert key in keyed, "of no key either"
            group.asleep.add(only)
        self.check_order(views, [v for v in allowed if v not in views])
        for view, message in zip(views, got, strict=True):
            self.lend(group, view, message, now + lease)

    @staticmethod
    def lend(group: Group, view: View, receipt: Any, until: int) -> None:
        view.state, view.until, view.receipt = S.LEASED, until, receipt
        view.attempts += 1
        if view.message.key:
            group.holders[view.message.key] = view

    def check_order(self, got: list[View], left: list[View]) -> None:
        """In order of due time, where nothing else can have had a say."""
        ordered = self.settings["order"] == "priority" or self.model.prioritised
        plain = [
            rank(view, self.settings, prioritised=self.model.prioritised)
            for view in got
            if not view.message.key and not view.loose
        ]
        assert plain == sorted(plain)
        later = [
            rank(view, self.settings, prioritised=self.model.prioritised)
            for view in left
            if not view.message.key and not view.loose
        ]
        assert not plain or not later or plain[-1] <= min(later)
        for view in () if ordered else got:
            # Of those that the filter wants, if there is one: the others are not in `left`.
            same = [v for v in left if v.message.key and v.message.key == view.message.key]
            before = [v for v in same if (v.due, v.placed) < (view.due, view.placed)]
            before = [v for v in before if not v.loose]
            assert view.loose or not before, "in order inside a key"

    @rule(
        data=st.data(),
        action=st.sampled_from(["ack", "ack", "nack", "nack now", "later", "extend", "expire"]),
    )
    def settle(self, data: st.DataObject, action: str) -> None:
        held = [
            (group, view)
            for group in self.model.groups.values()
            for view in group.views.values()
            if view.receipt is not None
        ]
        if not held:
            return
        chosen = data.draw(st.lists(st.sampled_from(held), unique_by=id, min_size=1, max_size=4))
        good = [(group, view) for group, view in chosen if view.state is S.LEASED]
        receipts, now = [view.receipt for _, view in chosen], self.now
        if action == "ack":
            assert self.host.ack(receipts) == len(good)
            for group, view in good:
                group.end(view, S.ACKED)
        elif action == "extend":
            lease = data.draw(st.sampled_from([1, 1_000, 60_000]))
            assert self.host.extend(receipts, lease) == len(good)
            for _, view in good:
                view.until = now + lease
        elif action == "expire":
            self.host.advance(max([0, *(view.until - now + 50 for _, view in good)]))
        else:
            delay = {"nack": None, "nack now": 0, "later": data.draw(DELAYS)}[action]
            assert self.host.nack(receipts, delay) == len(good)
            for group, view in good:
                self.model.give_back(group, view, delay, now)

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def choose(self, data: st.DataObject, name: str) -> None:
        """Take a message by its id."""
        group = self.model.groups.get(name)
        if group is None or not self.model.messages:
            return
        message, id_ = self.draw(data, S.READY)
        view = group.views.get(message)
        now, topic = self.now, self.host.topic
        delivery = receives.receive(
            self.state,
            topic,
            topic.group(name),
            ReceiveRequest(count_max=1, now_ms=now, chosen=[id_]),
            lease_ms=30_000,
        )
        self.host.turn()
        can = view is not None and view in group.allowed(None) and not topic.paused
        assert (delivery is not None) == can
        if delivery is not None and view is not None:
            self.lend(group, view, None, now + 30_000)
