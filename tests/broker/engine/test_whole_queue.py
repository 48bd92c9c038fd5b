"""The whole queue against a model: any sequence of calls, over groups, restarts and clock steps.

Each answer is compared with queue_model.py (sends and receives in queue_rules.py), and after each
step every group's states, counts and wakers are. At the end of each history the folder is recovered
from the log alone and from what a checkpoint in the middle left of it: same state.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from delaylog.broker.engine.control import changing as control
from delaylog.broker.engine.deliver import receiving
from delaylog.broker.engine.deliver.filters import TagFilter
from delaylog.broker.engine.deliver.taking import Asked
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.setup import Setup
from delaylog.broker.engine.topics import changing as topics
from delaylog.broker.engine.topics.retiring import look_after_groups
from delaylog.broker.engine.topics.topic_packing import PackedTopics
from delaylog.broker.engine.upkeep.saved_state import pack, snapshot
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import MessageState as S
from delaylog.storage.layout import ref_to_id
from tests.broker.engine.queue_model import FREE, LIVING, NEVER, Group, matches
from tests.broker.engine.queue_rules import DELAYS, FILTERS, HOUR, NAMES, Deliveries
from tests.effort import tries

PAUSES = st.sampled_from([1, 50, 100, 999, 5_000, 30_000, 60_000, HOUR])


class QueueMachine(Deliveries):
    """All calls there are."""

    def teardown(self) -> None:
        try:
            if hasattr(self, "model"):
                self.host.recount()
                self.check_recovery()
        finally:
            self.host.close()
            self._folder.cleanup()

    # ------------------------------------------------------------------ control

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), force=st.booleans())
    def cancel(self, data: st.DataObject, force: bool) -> None:
        message, name = self.draw(data, S.WAITING, S.READY, S.LEASED)
        last = S.LEASED if force else S.READY
        result = self.controlled(
            name,
            lambda found: control.cancel(self.state, self.host.topic, found, self.now, force=force),
        )
        for group, view in self.judge(result, message, lambda _, view: view.state <= last):
            group.end(view, S.DELETED)

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), delay=DELAYS, priority=st.sampled_from([None, None, None, 3]))
    def reschedule(self, data: st.DataObject, delay: int, priority: int | None) -> None:
        message, name = self.draw(data, S.WAITING, S.READY)
        now = self.now
        result = self.controlled(
            name,
            lambda found: control.reschedule(
                self.state,
                self.host.topic,
                found,
                now,
                deliver_at_ms=now + delay,
                priority=priority,
            ),
        )
        done = self.judge(result, message, lambda _, view: view.state in FREE)
        for group, view in done:
            self.model.move(group, view, now + delay, now)
            if priority is not None:
                view.priority = priority
        if done and any(view.priority for _, view in done) and not self.prioritised:
            self.prioritised = True
            self.model.loosen()

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), delay=DELAYS)
    def replay(self, data: st.DataObject, delay: int) -> None:
        message, name = self.draw(data, S.DEAD)
        now = self.now
        taken = any(
            view.message is not message and view.message.id == message.id
            for group in self.model.groups.values()
            for view in group.alive()
            if message.id
        )
        if taken and self.model.holders_of(message.id) is None:
            return
        result = self.controlled(
            name,
            lambda found: control.replay(
                self.state, self.host.topic, found, now, deliver_at_ms=now + delay
            ),
        )
        for group, view in self.judge(
            result, message, lambda _, view: view.state is S.DEAD and not taken
        ):
            group.ended[S.DEAD] -= 1
            self.model.replay(view, now + delay, now)

    def purge(self, names: list[str], *, force: bool) -> None:
        topic = self.host.topic
        groups = [topic.group(each) for each in names]
        done = topics.purge(self.state, topic, groups, self.now, force=force)
        assert done == self.model.purge(names, force=force)

    # ------------------------------------------------------------------ the topic

    @rule(
        what=st.sampled_from(
            ["a", "b", "b", "default", "order", "aging", "merge", "pause", "purge", "purge all"]
        ),
        force=st.booleans(),
        leased=st.sampled_from([None, "keep", "successor"]),
    )
    def change(self, what: str, force: bool, leased: str | None) -> None:
        """A setting, or a group comes or goes."""
        topic, model = self.host.topic, self.model
        if what == "default":
            there = what in model.groups
            self.configure(default_group=not there)
            if there:
                del model.groups[what]
            else:
                model.groups[what] = Group(what)
        elif what in NAMES and what in model.groups:
            topics.drop_group(self.state, topic, topic.group(what), self.now)
            del model.groups[what]
        elif what in NAMES:
            self.make_group(what)
        elif what == "merge":
            self.configure(merge_leased=leased)
        elif what == "pause":
            topics.pause(self.state, topic, self.now, paused=not topic.paused)
        elif what.startswith("purge"):
            names = list(model.groups)
            self.purge(names if what == "purge all" else names[-1:], force=force)
        else:
            if what == "aging":
                self.configure(aging_ms=1_000 - self.settings.get("aging_ms", 0))
            else:
                self.configure(order="time" if self.settings["order"] == "priority" else "priority")
            model.loosen()
        self.host.turn()
        self.set_parked_max()

    # ------------------------------------------------------------------ looking

    @rule(at=st.integers(0, 2), count=st.integers(1, 6), only=st.sampled_from(FILTERS))
    def peek(self, at: int, count: int, only: TagFilter | None) -> None:
        """What is shown is ready, whatever its key; a filter gets its queue by that, too."""
        for name in list(self.model.groups)[at : at + 1]:
            group, topic, now = self.model.groups[name], self.host.topic, self.now
            late = [view for view in group.views.values() if view.late(now)]
            _, rows, _, _ = receiving.peek(
                self.state,
                topic,
                topic.group(name),
                Asked(count_max=count, now_ms=now, only=only),
            )
            self.host.turn()
            origins = [ref_to_id(int(origin)) for origin in rows["origin"]]
            ready = [v for v in group.views.values() if v.state is S.READY and v not in late]
            names = {v.message.server_id for v in ready if matches(v.message, only)}
            assert len(set(origins)) == len(origins) <= count
            assert names >= set(origins)
            self.end_late(group, late)

    @rule()
    def look_after(self) -> None:
        """Filters that nobody asks with are closed; late ones that hold others up end."""
        now = self.now
        late = [
            (group, [view for view in group.views.values() if view.late(now)])
            for group in self.model.groups.values()
        ]
        look_after_groups(self.state, now)
        self.host.turn()
        for group, views in late:
            self.end_late(group, views)

    # ------------------------------------------------------------------ time and restarts

    @rule(ms=PAUSES)
    def wait(self, ms: int) -> None:
        self.host.advance(ms)
        if self.host.topic.paused:
            topics.pause(self.state, self.host.topic, self.now, paused=False)
            self.host.turn()
        if not self.model.groups:
            self.make_group("a")

    @rule(back=st.booleans(), ms=st.sampled_from([1, 2_500, 60_000, HOUR, 3 * HOUR]))
    def set_clock(self, back: bool, ms: int) -> None:
        if back:
            self.host.set_back(ms)
            self.model.set_back(ms, self.now)
            self.model.line_up()
        else:
            self.host.jump_ahead(ms)
            self.model.jump_ahead(ms)

    @rule(
        what=st.sampled_from(["flush", "checkpoint", "restart", "crash"]),
        ms=st.sampled_from([0, 0, 1_000, HOUR]),
    )
    def keep_house(self, what: str, ms: int) -> None:
        if what in ("flush", "checkpoint"):
            getattr(self.host, what)()
            return
        getattr(self.host, what)(ms)
        self.set_parked_max()
        self.model.pass_time(self.now, at_bucket=False)
        for group in self.model.groups.values():
            group.asleep.clear()
        self.model.line_up()

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "model"):
            return
        model, topic, now = self.model, self.host.topic, self.now
        self.check_packed()
        model.pass_time(now)
        assert {group.name for group in topic.groups.values()} == set(model.groups)
        for name, group in model.groups.items():
            found = self.find(name, model.messages)
            real = topic.group(name)
            for at, message in enumerate(model.messages):
                view = group.views.get(message)
                assert bool(found.known[at]) == (view is not None), (name, message)
                if view is None:
                    continue
                assert found.states[at] == view.state, (name, view)
                if view.state in LIVING:
                    assert found.rows["deliver_at"][at] == view.due, (name, view)
                    assert min(int(found.rows["expires_at"][at]), NEVER) == view.expires
                    assert found.entries["attempts"][at] == view.attempts
            alive = group.alive()
            assert real.counts.living == len(alive) == sum(real.hours.values())
            assert real.counts.leased == sum(view.state is S.LEASED for view in alive)
            for kind in (S.ACKED, S.EXPIRED, S.DEAD, S.DELETED):
                assert getattr(real.counts, kind.name.lower()) == group.ended.get(kind, 0), kind
            if not topic.paused and (topic.number, real.number) not in self.state.woken:
                for only in group.asleep:
                    assert not group.allowed(now, only), f"{name} {only} sleeps"

    def check_packed(self) -> None:
        """What is kept for the next checkpoint since the last step is what would be packed now."""
        fresh = PackedTopics(self.state.by_number, self.state.series)
        for topic in self.state.by_number.values():
            kept, now = (
                msgpack.unpackb(packed.of(topic)) | {"settings": None}
                for packed in (self.state.packed_topics, fresh)
            )
            assert kept == now, "a change without a word"

    def check_recovery(self) -> None:
        """The log alone, and a checkpoint with the log after it, tell the same as who was there."""
        self.host.sync()
        live = small_state(self.state, self.now)
        for kind in ("checkpoint", "log"):
            copy = Path(self._folder.name) / kind
            shutil.copytree(self.host.folder, copy)
            if kind == "log":
                for path in copy.glob("checkpoint-*"):
                    path.unlink()
            engine = Engine(OsFileSystem(), str(copy), Setup(random=Random(1)), now_ms=self.now)
            try:
                again = small_state(engine.state, self.now)
                # It has begun one of its own.
                known = engine.state.epochs[:-1]
                assert known[-len(self.state.epochs) :] == self.state.epochs, kind
            finally:
                engine.close()
            for name, value in live.items():
                assert again[name] == value, (kind, name)


def small_state(state: Any, now_ms: int) -> dict[str, Any]:
    """A checkpoint's members that frames decide, in an order of their own."""
    out = snapshot(state, now_ms)
    for _ in pack(state):
        pass
    for name in ("topics", "leases", "producers"):
        out[name] = list(out[name])
    for name in ("told_ms", "epoch", "epochs", "tick", "hour_floor_top"):
        del out[name]
    # They move along while nothing changes the keyspace, and nothing is staged.
    del out["keyspace"]["position"]
    if not state.transactions:
        del out["transactions"]["log_from"]
    # Where rows are kept is each node's own; `hours` below says how many there are.
    del out["far"]
    # Hours in which nothing lives may have been removed.
    out["hours"] = {
        hour: [counts.rows, counts.living, counts.guests]
        for hour, counts in state.hours.counts.items()
        if counts.living or counts.guests
    }
    settings = out.pop("settings")
    for topic in out["topics"]:
        topic["settings"] = settings[topic["settings"]]
        number = topic["number"]
        topic["groups"].sort(key=lambda group: group["number"])
        for group in topic["groups"]:
            real = state.by_number[number].groups[group["number"]]
            group["hours"], group["guests"] = real.hours, real.guests
            gate = real.gate
            group["gate"] = [
                set(gate._working.column().tolist()),
                gate._retries,
                gate._waits,
                gate._heirs,
            ]
    out["leases"] = sorted(out["leases"], key=lambda lease: lease["number"])
    return out


@pytest.mark.parametrize("cut_short", [False, True])
def test_the_whole_queue_agrees_with_a_model(host_class: type, cut_short: bool) -> None:
    """Every call there is, in any order, over groups, restarts and steps of the clock."""

    class Machine(QueueMachine):
        pass

    Machine.host_class = host_class
    Machine.small = cut_short
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=tries(30),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
