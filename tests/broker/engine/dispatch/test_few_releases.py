"""Small frames on their way to the ready queues, as tuples against columns: the same of everything.

Two hosts get the same calls. On one of them no number of rows is few, so all rows are columns in
the wheel and in the dispatcher. After each call the frames in the log, what woke, what was counted
and what consumers receive have to be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.apply import send_frames
from delaylog.wheel import FEW_ENTRIES_MAX, second_slot, timing_wheel
from tests.broker.engine.host import HOUR, Host
from tests.effort import tries

DELAYS = st.one_of(
    st.just(0),
    st.integers(0, 3_000),
    st.sampled_from([1, 9_999, 10_001, 60_000, 40 * 60_000 - 1, 40 * 60_000, HOUR, 60 * HOUR]),
)
SENDS = st.fixed_dictionaries(
    {
        "delay": st.lists(DELAYS, min_size=1, max_size=FEW_ENTRIES_MAX + 2),
        "past": st.sampled_from([0, 0, 700, 2 * HOUR]),
        "ttl": st.sampled_from([None, None, 5_000]),
        "keyed": st.booleans(),
        "tagged": st.booleans(),
        "priority": st.sampled_from([None, None, 3]),
        "topic": st.sampled_from(["t", "t", "other"]),
        "turn": st.booleans(),
    }
)
EVENTS = st.one_of(
    st.tuples(st.just("send"), SENDS),
    st.tuples(st.just("send"), SENDS),
    st.tuples(st.just("advance"), st.sampled_from([0, 1, 500, 1_000, 9_000, HOUR])),
    st.tuples(st.just("stall"), st.sampled_from([3, 1_500, 20_000])),
    st.tuples(st.just("receive"), st.integers(1, 30)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("purge"), st.just(0)),
    st.tuples(st.just("group"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("drop group"), st.just("a")),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("set back"), st.sampled_from([500, 2 * HOUR])),
    st.tuples(st.just("restart"), st.sampled_from([0, 5_000])),
)


class Side:
    """One of the hosts, and what its clock and calls did."""

    def __init__(self, folder: Path, few: int) -> None:
        self.few = few
        self.sent = 0
        with self.rule():
            self.host = Host(folder)

    @contextmanager
    def rule(self) -> Iterator[None]:
        """While this host works: up to how many rows are few."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (send_frames, second_slot, timing_wheel):
                patch.setattr(module, "FEW_ENTRIES_MAX", self.few)
            yield

    def do(self, event: str, what: Any) -> Any:
        with self.rule():
            done = getattr(self, "_" + event.replace(" ", "_"))(what)
            return done, self.seen()

    def seen(self) -> list[Any]:
        """What a consumer, a metric or a later frame would show of it."""
        state = self.host.engine.state
        out: list[Any] = [
            state.log.end_position,
            state.tick,
            state.released_upto,
            self.host.engine.next_wake_ms(),
            sorted(state.marks.newly_ready),
            state.wheel.unloaded_ms(),
        ]
        state.marks.newly_ready.clear()
        for number, topic in sorted(state.by_number.items()):
            late = state.series.lateness_of(topic).ready
            out += [number, state.activity(topic), list(late.counts), late.sum]
            for group in topic.groups.values():
                out += [group.number, group.ready_count]
                out += [ref for part in group.ready.in_memory(1_000) for ref in part.tolist()]
        return out

    def _send(self, how: dict[str, Any]) -> Any:
        delay = how["delay"]
        members: dict[str, Any] = {"ids": [f"m{self.sent + at}" for at in range(len(delay))]}
        self.sent += len(delay)
        if how["ttl"] is not None:
            members["ttl_ms"] = how["ttl"]
        if how["keyed"]:
            members["keys"] = [f"k{at % 3}" for at in range(len(delay))]
        if how["tagged"]:
            members["tags"] = ["x"] * len(delay)
        if how["priority"] is not None:
            members["priority"] = [at % how["priority"] for at in range(len(delay))]
        times = [self.host.now_ms - how["past"] + each for each in delay]
        sent = self.host.send(len(delay), at=times, topic=how["topic"], turn=how["turn"], **members)
        return sent.refs.tolist(), sent.deliver_at_ms.tolist()

    def _advance(self, ms: int) -> None:
        self.host.advance(ms)

    def _stall(self, ms: int) -> None:
        """Time passes in one step."""
        self.host.now_ms += ms
        self.host.turn()

    def _receive(self, count: int) -> Any:
        return [
            [(message.origin, message.attempts) for message in self.host.receive(count, group=name)]
            for name in [group.name for group in self.host.topic.groups.values()]
        ]

    def _cancel(self, number: int) -> Any:
        return self.host.cancel([f"m{number}"])

    def _purge(self, _: int) -> Any:
        return self.host.purge(force=True)

    def _group(self, name: str) -> None:
        self.host.put_group(name)

    def _drop_group(self, name: str) -> None:
        if self.host.topic.group(name) is not None:
            self.host.drop_group(name)

    def _pause(self, paused: bool) -> None:
        self.host.pause(paused=paused)

    def _recount(self, _: None) -> Any:
        return self.host.recount(), self.host.topic.default.counts

    def _set_back(self, ms: int) -> None:
        self.host.set_back(ms)

    def _restart(self, pause_ms: int) -> None:
        self.host.restart(pause_ms)


@settings(max_examples=tries(40), deadline=None)
@given(events=st.lists(EVENTS, min_size=1, max_size=14))
def test_few_rows_become_ready_as_many_do(
    events: list[tuple[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("few")
    sides = [Side(folder / "few", FEW_ENTRIES_MAX), Side(folder / "columns", 0)]
    try:
        for event, what in events:
            few, columns = (side.do(event, what) for side in sides)
            assert few == columns, event
        for event, what in (("advance", 61 * HOUR), ("receive", 1_000)):
            few, columns = (side.do(event, what) for side in sides)
            assert few == columns, event
        few, columns = (side.do("recount", None) for side in sides)
        assert few == columns
    finally:
        for side in sides:
            side.host.close()
