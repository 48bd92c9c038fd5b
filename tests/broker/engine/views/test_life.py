"""Traces: every step of a message, from the log while it holds them and from the rows after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.views import message_trace
from delaylog.broker.engine.views.message_trace import EVENTS, Trace, Traces
from delaylog.storage.layout import HOUR_MS
from tests.effort import tries


def traces_of(host: Any, found: Any, **how: Any) -> Traces:
    """To be made."""
    how = {"now_ms": host.now_ms, "clock": lambda: 0.0} | how
    return Traces(host.engine.state, host.topic, found, **how)


def lives(host: Any, ids: Sequence[str], group: Any = None, **how: Any) -> list[Trace]:
    host.sync()
    found = find_ids(host.engine.state, host.topic, list(ids), host.now_ms, group)
    made = traces_of(host, found, group=group, **how)
    host.engine.run_inline(made.work())
    assert all(step["event"] in EVENTS for life in made.traces for step in life.steps)
    return made.traces


def told(life: Trace) -> list[tuple[str, int]]:
    return [(step["event"], step["at_ms"]) for step in life.steps]


def events(life: Trace) -> list[str]:
    return [event for event, _ in told(life)]


def drop_the_log(host: Any) -> None:
    """Two checkpoints with a new segment each: nothing from before is held."""
    host.engine.upkeep.short_of_space = True
    for _ in range(3):
        host.send(1, delay=9 * HOUR_MS, topic="other")
        host.checkpoint()
    host.engine.upkeep.short_of_space = False


@pytest.mark.parametrize("flushed", [False, True])
def test_every_step_is_told(host: Any, flushed: bool) -> None:
    """Rescheduled, leased, extended, nacked at once and with a delay, expired, acked; and who."""
    start = host.now_ms
    host.send(1, delay=5_000, ids=["a"])
    host.send(40, delay=[3_000 + k for k in range(40)], topic="other")
    host.advance(1_000)
    host.reschedule(["a"], host.now_ms + 1_000)
    if flushed:
        host.checkpoint()
    host.advance(1_500)
    (message,) = host.receive(lease=10_000)
    host.advance(100)
    host.extend([message], 20_000)
    host.nack([message], 0)
    (message,) = host.receive(lease=10_000)
    host.nack([message], 7_000)
    if flushed:
        host.checkpoint()
    host.advance(8_000)
    (message,) = host.receive(lease=1_000)
    host.advance(4_000)
    if flushed:
        host.restart()
    host.advance(8_000)
    (message,) = host.receive()
    host.ack([message])
    (life,) = lives(host, ["a"])
    assert life.complete
    assert events(life) == [
        "sent",
        "rescheduled",
        "ready",
        "leased",
        "lease_extended",
        "nacked",
        "ready",
        "leased",
        "nacked",
        "ready",
        "leased",
        "lease_expired",
        "ready",
        "leased",
        "acked",
    ]
    assert told(life)[:5] == [
        ("sent", start),
        ("rescheduled", start + 1_000),
        ("ready", start + 2_000),
        ("leased", start + 2_500),
        ("lease_extended", start + 2_600),
    ]
    assert life.steps[1]["due_ms"] == start + 2_000
    assert [step["attempts"] for step in life.steps if step["event"] == "leased"] == [1, 2, 3, 4]
    assert life.steps[3]["lease_until_ms"] == start + 12_500
    assert all(step["at_ms"] <= host.now_ms for step in life.steps)
    assert [step["at_ms"] for step in life.steps] == sorted(step["at_ms"] for step in life.steps)
    epochs = [step["epoch"] for step in life.steps if step["event"] != "ready"]
    assert (epochs[0], epochs[-1]) == ((1, 2) if flushed else (1, 1))
    assert life.steps[-1]["cause"] == "ack"


def test_what_is_to_come(host: Any) -> None:
    """A message that waits is due; one that is due is ready."""
    names = host.ids_of(host.send(2, delay=[1_000, 60_000]))
    host.advance(2_000)
    ready, waits = lives(host, names)
    assert ready.complete
    assert waits.complete
    assert events(ready) == ["sent", "ready"]
    assert told(waits)[1] == ("due", host.now_ms + 58_000)


@pytest.mark.parametrize("times", [2, 3])
def test_moves_to_the_same_moment_are_told_apart(host: Any, times: int) -> None:
    """Rows of one message that are due at the same time follow one another."""
    (name,) = host.ids_of(host.send(1, delay=60_000))
    due = host.now_ms + 30_000
    for _ in range(times):
        host.reschedule([name], due)
        host.advance(10)
    host.flush()
    host.advance(40_000)
    host.ack(host.receive())
    (life,) = lives(host, [name])
    assert life.complete
    assert events(life) == ["sent", *["rescheduled"] * times, "ready", "leased", "acked"]


def test_the_rows_tell_what_the_log_does_not_hold(host: Any) -> None:
    """Sent, due and the end come from the rows; the line says that steps are missing."""
    host.configure(max_retry=0)
    names = host.ids_of(host.send(4, delay=[0, 0, 0, 50_000_000]))
    one, two, three = host.receive(lease=40_000_000)
    host.ack([one])
    host.nack([two])
    drop_the_log(host)
    assert host.engine.state.log.first_position > 0
    acked, dead, leased, waits = lives(host, names)
    for life in (acked, dead, leased, waits):
        assert not life.complete
    assert events(acked) == ["sent", "ready", "acked"]
    assert events(dead) == ["sent", "ready", "dead"]
    assert dead.steps[-1]["cause"] == "retries"
    assert dead.steps[-1]["attempts"] == 1
    assert events(leased) == ["sent", "ready", "leased"]
    assert three.any_id == names[2]
    assert events(waits) == ["sent", "due"]
    host.cancel([names[3]])
    (gone,) = lives(host, [names[3]])
    assert events(gone) == ["sent", "cancelled"]


def test_time_that_is_used_up_leaves_the_rows_word(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without time for the log the line is what the rows know."""
    monkeypatch.setattr(message_trace, "TRACE_SECONDS", 0)
    (name,) = host.ids_of(host.send(1))
    host.ack(host.receive())
    (life,) = lives(host, [name])
    assert not life.complete
    assert events(life) == ["sent", "ready", "acked"]


def test_the_first_step_keeps_the_first_due_time(host: Any) -> None:
    """A retry and a change have later ones."""
    due_ms = host.now_ms + 1_000
    retried, changed = host.ids_of(host.send(2, delay=1_000))
    host.reschedule([changed], due_ms + 9_000)
    host.advance(1_000)
    host.nack(host.receive(), 5_000)
    assert [life.steps[0]["due_ms"] for life in lives(host, [retried, changed])] == [due_ms] * 2


def test_replaced_is_another_end_than_cancelled(host: Any) -> None:
    sent = [host.send([body], ids=["a"], merge="replace", delay=60_000) for body in (b"1", b"2")]
    host.cancel(["a"])
    (first,), (last,) = map(host.ids_of, sent)
    ends = [life.steps[-1]["event"] for life in lives(host, [first, last])]
    assert ends == ["replaced", "cancelled"]


def test_each_group_has_its_own_line(host: Any) -> None:
    """What one group did is not told of another; a purge is told from its floor."""
    host.put_group("a")
    (name,) = host.ids_of(host.send(1))
    host.ack(host.receive())
    (message,) = host.receive(group="a")
    host.nack([message], 5_000)
    (other,) = lives(host, [name], host.topic.group("a"))
    assert events(other) == ["sent", "ready", "leased", "nacked", "due"]
    (life,) = lives(host, [name])
    assert events(life) == ["sent", "ready", "leased", "acked"]


def test_an_hour_that_goes_while_it_is_searched(
    open_host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A far hour gets a folder and is removed between two slices: the line is not complete."""
    monkeypatch.setattr(message_trace, "_SCAN_ROWS", 20)
    incomplete, lead, most = 0, -1, 0
    while lead < most:
        lead, host = lead + 1, open_host()
        (name,) = host.ids_of(host.send(1, delay=50 * HOUR_MS))
        host.send(90, delay=52 * HOUR_MS, topic="other")
        host.reschedule([name], host.now_ms + 52 * HOUR_MS)
        host.flush()
        state, found = host.engine.state, host.find([name])
        made = traces_of(host, found)
        for steps, step in enumerate(made.work(), 1):
            if callable(step):
                step()
            if steps == lead:
                host.jump_ahead(20 * HOUR_MS)
                host.engine.run_inline(host.engine.housekeeping.split_work())
                state.hours.remove(host.now_ms // HOUR_MS + 32)()
        most = max(most, steps)
        assert events(made.traces[0]) == ["sent", "rescheduled", "due"]
        incomplete += not made.traces[0].complete
    assert incomplete > 3


@pytest.mark.parametrize("seed", range(tries(20)))
def test_a_trace_that_is_read_on_is_like_a_new_one(host: Any, seed: int) -> None:
    """After each of some random changes."""
    random = Random(seed)
    host.configure(max_retry=2)
    names = host.ids_of(host.send(3, keys="kkk"))
    made: Traces | None = None
    for _ in range(12):
        host.advance(random.randrange(3_000))
        taken = host.receive(1, lease=2_000)
        change = random.choice(["ack", "nack", "retry", "extend", ""])
        if change == "ack":
            host.ack(taken)
        elif change == "extend":
            host.extend(taken, 5_000)
        elif change:
            host.nack(taken, 0 if change == "nack" else 2_000)
        if random.random() < 0.2:
            host.flush()
        host.sync()
        found = host.find(names)
        if made is None:
            made = traces_of(host, found)
        else:
            made.again(found, host.now_ms)
        host.engine.run_inline(made.work())
        for old, new in zip(made.traces, lives(host, names), strict=True):
            assert (old.steps, old.waits, old.complete) == (new.steps, new.waits, new.complete)
