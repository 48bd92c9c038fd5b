"""The whole queue against a model: any sequence of calls, over groups, restarts and clock steps.

Each answer is compared with queue_model.py (sends and receives in queue_rules.py), and after each
step every group's states, counts and wakers are. At the end of each history the folder is recovered
from the log alone and from what a checkpoint in the middle left of it: same state. On a fake disk
the power fails in the middle of background work; hours are compacted at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from delaylog.broker.engine import changes
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.jobs import jobs
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.ready import parking_lot
from delaylog.broker.engine.ready.parking_lot import ParkedSpill
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.idle import look_after_groups
from delaylog.broker.engine.topics.packed_topics import PackedTopics
from delaylog.broker.engine.upkeep import compaction
from delaylog.broker.engine.upkeep.saved_state import pack, snapshot
from delaylog.storage.checkpoint import checkpoint_names
from delaylog.storage.hours import compaction as rewriting
from delaylog.storage.layout import MessageState as S
from delaylog.storage.layout import ref_to_id
from delaylog.storage.work import Work
from tests.broker.verify.verifying import verify
from tests.effort import tries
from tests.models.power_cuts import CUTS, Cut, copy_of
from tests.models.queue_model import FREE, LIVING, NEVER, Group, View, matches
from tests.models.queue_rules import DELAYS, FILTERS, HOUR, NAMES, Deliveries, World

PAUSES = st.one_of(
    st.sampled_from([1, 50, 100, 999, 5_000, 30_000, 60_000, HOUR, 30 * HOUR]),
    st.integers(1, 3_000),
    st.integers(1, 3 * HOUR),
)


class QueueMachine(Deliveries):
    """All calls there are."""

    def teardown(self) -> None:
        try:
            if hasattr(self, "model"):
                self.host.recount()
                self.check_recovery()
                self.host.checkpoint()
                assert verify(self.host.folder, self.host.fs).damage == []
        finally:
            self.host.close()
            self.folder.cleanup()

    # ------------------------------------------------------------------ control

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), force=st.booleans())
    def cancel(self, data: st.DataObject, force: bool) -> None:
        message, name = self.draw(data, S.WAITING, S.READY, S.LEASED)
        last = S.LEASED if force else S.READY
        result = self.controlled(
            name,
            lambda found: changes.cancel(self.state, self.host.topic, found, self.now, force=force),
        )
        for group, view in self.judge(result, message, lambda _, view: view.state <= last):
            group.end(view, S.CANCELLED)

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), delay=DELAYS, priority=st.sampled_from([None, None, None, 3]))
    def reschedule(self, data: st.DataObject, delay: int, priority: int | None) -> None:
        message, name = self.draw(data, S.WAITING, S.READY)
        now = self.now
        result = self.controlled(
            name,
            lambda found: changes.reschedule(
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
        if done and any(view.priority for _, view in done) and not self.model.prioritised:
            self.model.prioritised = True
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
            lambda found: changes.replay(
                self.state, self.host.topic, found, now, deliver_at_ms=now + delay
            ),
        )
        for group, view in self.judge(
            result, message, lambda _, view: view.state is S.DEAD and not taken
        ):
            group.ended[S.DEAD] -= 1
            self.model.replay(view, now + delay, now)

    @precondition(lambda self: self.model.messages and "default" in self.model.groups)
    @rule(data=st.data(), kind=st.sampled_from([S.ACKED, S.CANCELLED]), hide=st.booleans())
    def end_by_force(self, data: st.DataObject, kind: S, hide: bool) -> None:
        """End a message whatever it is; one that has ended takes another ended state."""
        message, name = self.draw(data, S.LEASED, S.DEAD)
        group = self.model.groups["default"]
        if message in group.views and group.views[message].state is not S.REPLACED:
            self.host.end_by_force(name, kind, hide=hide)
            group.end(group.views[message], kind)

    @rule(
        action=st.sampled_from(["cancel", "reschedule"]),
        delay=DELAYS,
        first=st.none() | DELAYS,
        length=DELAYS,
        cut=st.none() | CUTS,
    )
    def job(self, action: str, delay: int, first: int | None, length: int, cut: Cut | None) -> None:
        """All that is due in a range of time; the power may fail in the middle of it."""
        host, now = self.host, self.now
        start, stop = (0, NEVER) if first is None else (now + first, now + first + length)
        wanted = MessageFilter() if first is None else MessageFilter(None, start, stop)
        at = now + delay if action == "reschedule" else None
        number = host.begin_job(action, wanted, deliver_at_ms=at).number
        if cut is not None and self.world.fake_disk:
            self.lose_power(cut, lambda: [host.engine.jobs.work(lambda: now), *self.upkeep()])
        host.work_on_jobs()
        job = self.state.jobs.by_number[number]
        matched, done = self.model.job(action, start, stop, now + delay, now)
        assert job.state == "done"
        if cut is None:
            assert (job.matched, job.done, job.too_late) == (matched, done, matched - done)
        # A slice whose end was lost is done again, and finds some of its messages changed.
        assert job.done <= job.matched

    def purge(self, names: list[str], *, force: bool) -> None:
        if names:
            done = self.host.purge(*names, force=force)
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
            self.host.drop_group(what)
            del model.groups[what]
        elif what in NAMES:
            self.make_group(what)
        elif what == "merge":
            self.configure(merge_leased=leased)
        elif what == "pause":
            self.host.pause(paused=not topic.paused)
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
            group = self.model.groups[name]
            rows = self.host.peek(count, self.host.topic.group(name), only)
            self.host.turn()
            origins = [ref_to_id(int(origin)) for origin in rows["origin"]]
            ready = [v for v in group.views.values() if v.state is S.READY]
            names = {v.message.server_id for v in ready if matches(v.message, only)}
            assert len(set(origins)) == len(origins) <= count
            assert names >= set(origins)

    @rule()
    def look_after(self) -> None:
        """Filters without receives are closed."""
        look_after_groups(self.state, self.now)
        self.host.turn()

    # ------------------------------------------------------------------ time and restarts

    @rule(ms=PAUSES)
    def wait(self, ms: int) -> None:
        self.host.advance(ms)
        if self.host.topic.paused:
            self.host.pause(paused=False)
        if not self.model.groups:
            self.make_group("a")

    @rule(back=st.booleans(), ms=st.sampled_from([1, 2_500, 60_000, HOUR, 3 * HOUR, 37 * HOUR]))
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
        self.started()

    def started(self) -> None:
        """What a start does to the model: leases that ended meanwhile do so now."""
        self.set_parked_max()
        self.model.pass_time(self.now, at_bucket=False)
        for group in self.model.groups.values():
            group.asleep.clear()
        self.model.line_up()

    def upkeep(self) -> list[Work]:
        """All background work, to be run together."""
        engine = self.host.engine
        checkpoint = engine.upkeep.checkpoint(lambda: self.now)
        return [checkpoint, engine.housekeeping.flush_work(), engine.housekeeping.states_work()]

    @precondition(lambda self: self.world.fake_disk)
    @rule(cut=CUTS)
    def fail(self, cut: Cut) -> None:
        """The power fails in the middle of upkeep, with calls in flight."""
        self.lose_power(cut, self.upkeep, self.meddle)

    def lose_power(
        self,
        cut: Cut,
        works: Callable[[], list[Work]],
        meddle: Callable[[Random], None] = lambda _: None,
    ) -> None:
        self.work_until_the_power_fails(cut, works, meddle)
        self.started()

    def meddle(self, random: Random) -> None:
        """A call of one frame, which is not durable yet."""
        model, now = self.model, self.now
        names = list(model.groups)
        held = [
            (group, view)
            for group in model.groups.values()
            for view in group.views.values()
            if view.state is S.LEASED and view.receipt is not None
        ]
        what = random.choice(["send", "receive", "settle", "settle"])
        if what == "send":
            rows = [(random.choice([0, 5, HOUR, 40 * HOUR]), "", "", frozenset(), 0)] * 2
            self.send_rows(rows, "keep", -1)
        elif what == "receive" and names and not self.host.topic.paused:
            group = model.groups[random.choice(names)]
            allowed = {view.message.body: view for view in group.allowed(None)}
            for message in self.host.receive(1, group=group.name):
                self.lend(group, allowed[message.body], message, now + 30_000)
        elif what == "settle" and held:
            group, view = random.choice(held)
            if random.random() < 0.5:
                assert self.host.ack([view.receipt]) == 1
                group.end(view, S.ACKED)
            else:
                delay = random.choice([0, 700, HOUR])
                assert self.host.nack([view.receipt], delay) == 1
                model.give_back(group, view, delay, now)

    @precondition(lambda self: self.world.compacts)
    @rule(times=st.integers(1, 3))
    def compact(self, times: int) -> None:
        """Marks, checkpoints and removals, each as often as it comes."""
        for _ in range(times):
            self.host.checkpoint()
            self.host.advance(compaction.AGAIN_MS)
            self.host.engine.run_inline(self.host.engine.compactor.work(lambda: self.now))

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "model"):
            return
        model, topic, now = self.model, self.host.topic, self.now
        self.check_packed()
        model.pass_time(now)
        model.note_ended(min(self.seen_ms, now))
        self.seen_ms = now
        assert {group.name for group in topic.groups.values()} == set(model.groups)
        for name, group in model.groups.items():
            found = self.find(name, model.messages)
            real = topic.group(name)
            for at, message in enumerate(model.messages):
                view = group.views.get(message)
                if view is not None and not found.known[at]:
                    assert self.may_be_forgotten(view), (name, view)
                    model.forget(group, message)
                    continue
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
            for kind in (S.ACKED, S.EXPIRED, S.DEAD, S.CANCELLED, S.REPLACED):
                assert getattr(real.counts, kind.name.lower()) == group.ended.get(kind, 0), kind
            if not topic.paused and (topic.number, real.number) not in self.state.marks.newly_ready:
                for only in group.asleep:
                    assert not group.allowed(only), f"{name} {only} sleeps"

    def may_be_forgotten(self, view: View) -> bool:
        """Whether the broker may have removed a row or an hour that a look-up needs.

        The keep time has passed, and the clock is past the hour after that one. Where hours are
        compacted any message that has ended may be gone, but for dead ones.
        """
        if self.world.compacts and view.state in (S.ACKED, S.EXPIRED, S.CANCELLED, S.REPLACED):
            return True
        settings = self.host.topic.settings
        keep = settings.dead_keep_ms if view.state is S.DEAD else settings.ended_keep_ms
        hour = min(view.first_due, view.due) // HOUR
        over = view.ended_ms + keep <= self.now and hour + 1 < self.now // HOUR
        return view.state not in LIVING and over

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
            fs, copy = copy_of(self.host, Path(self.folder.name) / kind)
            # A checkpoint lets hours be removed. Once the clock was set back, rows of the log may
            # be in hours that had been removed before, which the log alone does not tell. A start
            # never reads the log alone once there was a checkpoint.
            reused = self.state.hour_floor_top > 0
            if kind == "log" and (self.state.log.first_position or reused):
                continue
            for name in checkpoint_names(fs, copy) if kind == "log" else ():
                fs.unlink(f"{copy}/{name}")
            engine = Engine(fs, copy, Setup(random=Random(1)), now_ms=self.now)
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
    # The log position moves along while there are no schedules; changes are counted by each node.
    del out["schedules"]["log_from"], out["schedules"]["changes"]
    # What kept messages waiting is each node's own knowledge.
    del out["timeline"]
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
            saved = real.gate.snapshot()
            owners = np.frombuffer(saved["owners"], "<i8").tolist()
            retries = dict(zip(np.frombuffer(saved["keys"], "<u8").tolist(), owners, strict=True))
            group["gate"] = [retries, sorted(saved["waits"]), sorted(saved["heirs"])]
            keys = {key for *_, held in state.leases.leased_keys() for key in held.tolist()}
            group["free"] = {key for key in keys if real.gate.is_free(key)}
    out["leases"] = sorted(out["leases"], key=lambda lease: lease["number"])
    return out


WORLDS = {
    "plain": World(),
    "small": World(small=True),
    "power cuts": World(fake_disk=True),
    "compaction": World(compacts=True),
}


def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers hold a few bytes, and parked messages are read from disk two at a time."""
    spill = partial(ParkedSpill, slice_pairs=2, per_key_max=1)
    monkeypatch.setattr(parking_lot, "ParkedSpill", spill)
    monkeypatch.setattr("delaylog.broker.engine.deliver.receives.RECEIVE_BYTES_MAX", 24)


@pytest.mark.long
@pytest.mark.parametrize("world", WORLDS)
def test_the_whole_queue_agrees_with_a_model(monkeypatch: pytest.MonkeyPatch, world: str) -> None:
    """Every call there is, in any order, over groups, restarts and steps of the clock."""
    if world == "small":
        small_answers(monkeypatch)
    if world == "compaction":
        monkeypatch.setattr(compaction, "ROWS_MIN", 1)
        monkeypatch.setattr(rewriting, "REWRITE_ROWS", 4)
    monkeypatch.setattr(jobs, "SLICE_MESSAGES", 3)
    monkeypatch.setattr(jobs, "RANGE_ROWS", 8)

    class Machine(QueueMachine):
        pass

    Machine.world = WORLDS[world]
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=tries(25),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
