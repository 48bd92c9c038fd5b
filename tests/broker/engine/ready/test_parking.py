"""What is parked while keys are held, for filters and for those who take any.

Filters take the first that they want of a free key, others the first there is; and each message is
parked at most once for each queue, whoever asks how often.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.deliver.receiving import peek
from delaylog.broker.engine.deliver.selecting import ReceiveRequest
from delaylog.broker.engine.ready import key_gate, parking
from delaylog.broker.engine.ready.parked_spill import ParkedSpill
from delaylog.broker.engine.ready.parking import Parking
from delaylog.broker.engine.ready.ready_queues import FILTER_IDLE_MS
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.idle import look_after_groups
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.scratch_queue import ScratchQueue
from tests.broker.engine.ready.test_keys import send


@pytest.fixture
def host(open_host: Any) -> Any:
    host = open_host()
    host.configure(backoff={"first_ms": 0})
    return host


def test_filters_find_every_message_of_a_free_key(host: Any) -> None:
    send(host, *[("a", f"a{k}") for k in range(4)], tags=["red", "blue"] * 2)
    blue = TagFilter.parse(["blue"])
    (first,) = host.receive(only=blue)
    assert first.body == b"a1", "a0 is not wanted and nobody works on it"
    assert host.receive() == []
    host.ack([first])
    (second,) = host.receive(only=blue)
    assert second.body == b"a3"
    host.ack([second])
    assert host.bodies() == [b"a0"]


def send_blue(host: Any, count: int) -> None:
    pairs = [("a", f"a{k}") for k in range(count)]
    send(host, *pairs, tags=["blue"] * count)


def test_a_first_filter_finds_what_was_parked_before(host: Any) -> None:
    """The key came free while nobody filtered."""
    send_blue(host, 2)
    host.ack(host.receive())
    assert host.bodies(only=TagFilter.parse(["blue"])) == [b"a1"]


def test_who_only_filters_gets_what_is_parked_on_disk(host: Any) -> None:
    host.topic.default.gate.parking.parked_max = 0
    send_blue(host, 6)
    for k in range(6):
        got = host.receive(only=TagFilter.parse(["blue"]))
        assert [m.body for m in got] == [b"a%d" % k]
        host.ack(got)


def test_filters_do_not_multiply_what_is_parked(host: Any) -> None:
    """Many filters that want all of a long key: what is parked stays, whoever asks."""
    count = 300
    send(host, *[("a", str(k)) for k in range(count)], tags=["x,y,z"] * count)
    filters = [TagFilter.parse([tag]) for tag in "xyz"]
    group = host.topic.default
    for k in range(40):
        (got,) = host.receive(1, only=filters[k % 3])
        assert int(got.body) == k
        for only in (*filters, None):
            assert host.receive(only=only) == []
        assert group.gate.parked <= count
        assert len(group.ready) <= count
        assert group.ready_count == count - k - 1
        host.ack([got])
        assert group.gate.parking.count <= 4 * count, "once for each queue"
    assert host.bodies() == [b"40"]


def test_a_filter_looks_behind_what_it_does_not_want(host: Any) -> None:
    """However much is parked before it, and whatever another filter has taken meanwhile."""
    tags = ["x"] * 500 + ["y", "z", "y"]
    send(host, *[("a", str(k)) for k in range(503)], tags=tags)
    (first,) = host.receive()
    host.ack([first])
    x, y, z = (TagFilter.parse([tag]) for tag in "xyz")
    for only, wanted in ((y, 500), (z, 501), (x, 1), (y, 502), (x, 2)):
        (got,) = host.receive(only=only)
        assert int(got.body) == wanted
        assert [host.receive(only=each) for each in (x, y, z, None)] == [[]] * 4
        host.ack([got])
    assert host.receive(only=y) == host.receive(only=z) == []
    send(host, ("a", "503"), tags=["y"])
    assert host.bodies(only=y) == [b"503"], "its key is free"


def test_who_takes_any_gets_the_first_of_a_key_after_filters(host: Any) -> None:
    """What a filter met while the key was held is not handed out before what came up earlier."""
    send(host, *[("a", str(k)) for k in range(6)], tags=["", "y", "", "y", "y", ""])
    y = TagFilter.parse(["y"])
    (first,) = host.receive(only=y)
    assert first.body == b"1"
    assert host.receive(only=y) == []
    host.ack([first])
    for wanted in (b"0", b"2"):
        (got,) = host.receive()
        assert got.body == wanted
        host.ack([got])
    for only, wanted in ((y, b"3"), (None, b"4"), (None, b"5")):
        (got,) = host.receive(only=only)
        assert got.body == wanted
        host.ack([got])


@pytest.mark.parametrize("parked_max", [0, 2, 1_000])
def test_a_new_filter_finds_what_is_parked_in_order(host: Any, parked_max: int) -> None:
    """In memory and on disk, for it, for other filters and for those who take any."""
    host.topic.default.gate.parking.parked_max = parked_max
    x, y = (TagFilter.parse([tag]) for tag in "xy")
    send(host, *[("ab"[k % 2], str(k)) for k in range(24)], tags=["x,y"] * 24)
    held = host.receive()
    assert [int(m.body) for m in held] == [0, 1]
    group = host.topic.default
    got = {0: [0], 1: [1]}
    for only in (x, None, y, y, None, x, x, y, y, None, None):
        assert host.receive(only=only) == []
        host.ack(held)
        if only is x and len(got[0]) == 1:
            host.configure(order="time", backoff={"first_ms": 0})
        held = []
        # What is on disk takes some rounds.
        for _ in range(3):
            held += host.receive(only=only)
        assert len(held) == 2
        for message in held:
            got[int(message.body) % 2].append(int(message.body))
    assert got == {0: [*range(0, 24, 2)], 1: [*range(1, 24, 2)]}
    host.ack(held)
    assert host.receive() == host.receive(only=x) == host.receive(only=y) == []
    assert (group.ready_count, group.gate.parking.count, group.gate.freed) == (0, 0, False)


def test_the_order_changes_while_filters_have_parked(host: Any) -> None:
    host.configure(backoff={"first_ms": 0})
    x = TagFilter.parse(["x"])
    send(host, *[("a", str(k)) for k in range(5)], tags=["x"] * 5)
    held = host.receive(only=x)
    assert host.receive() == []
    host.configure(order="priority", backoff={"first_ms": 0})
    for k in range(1, 5):
        host.ack(held)
        held = host.receive(only=x)
        assert [int(m.body) for m in held] == [k]


def test_a_successor_that_only_a_filter_met_comes_after_what_was_before_it(host: Any) -> None:
    """It is back in the filter's queue alone: those who take any have not come to it yet."""
    x = TagFilter.parse(["x"])
    send(host, ("a", "0"), ids=["i"], tags=["x"])
    held = host.receive(only=x)
    send(host, ("a", "1"), ("a", "2"), tags=["", ""])
    host.send([b"3"], ids=["i"], merge="replace", keys="a", tags=["x"])
    assert host.receive(only=x) == []
    host.ack(held)
    for k in (1, 2, 3):
        (got,) = host.receive()
        assert int(got.body) == k
        assert host.receive(only=x) == []
        host.ack([got])


@pytest.mark.parametrize("parked_max", [0, 3, 1_000])
def test_an_answer_cut_short_keeps_order_for_a_filter(
    open_host: Any, parked_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaylog.broker.engine.deliver.selecting.RECEIVE_BYTES_MAX", 100)
    host = open_host()
    host.topic.default.gate.parking.parked_max = parked_max
    pairs = [("ab"[k % 2], f"{k:040}") for k in range(8)]
    send(host, *pairs, tags=["x"] * 8)
    x, got = TagFilter.parse(["x"]), []
    while messages := host.receive(only=x if len(got) % 3 else None):
        got += [int(m.body) for m in messages]
        host.ack(messages)
        assert host.topic.default.ready_count == 8 - len(got)
    assert [k for k in got if k % 2 == 0] == [0, 2, 4, 6]
    assert [k for k in got if k % 2] == [1, 3, 5, 7]


def test_what_others_took_is_passed_over_at_once(host: Any) -> None:
    """Half a thousand that a filter took stand parked before the one that is left."""
    send(host, *[("a", str(k)) for k in range(500)], tags=[*["x"] * 499, ""])
    held = host.receive(1)
    assert host.receive() == []
    x = TagFilter.parse(["x"])
    host.ack(held)
    for k in range(1, 499):
        (got,) = host.receive(only=x)
        assert int(got.body) == k
        assert host.receive() == []
        host.ack([got])
    assert host.bodies() == [b"499"]


def test_what_others_gave_back_is_shown_to_filters(host: Any) -> None:
    """Who takes any looks at more than it takes: what it gives back is not lost to a filter."""
    y = TagFilter.parse(["y"])
    assert host.receive(only=y) == []
    sent = send(host, *[("", str(k)) for k in range(10)], tags=["y"] * 10)
    assert host.cancel(host.ids_of(sent)[:1]) == [0]
    assert host.bodies(1) == [b"1"]
    assert host.bodies(only=y) == [b"%d" % k for k in range(2, 10)]


@pytest.mark.parametrize("ask", ["receive", "peek"])
def test_the_queue_of_an_idle_filter_is_closed(host: Any, ask: str) -> None:
    """Who only peeked with it counts too: each message would go into its queue for ever."""
    state, topic, only = host.engine.state, host.topic, TagFilter.parse(["x"])
    send(host, ("a", "0"), tags=["x"])
    if ask == "receive":
        assert host.bodies(only=only) == [b"0"]
    else:
        peek(
            state, topic, topic.default, ReceiveRequest(count_max=1, now_ms=host.now_ms, only=only)
        )
    host.advance(FILTER_IDLE_MS)
    look_after_groups(state, host.now_ms)
    assert topic.default.ready.filtered
    host.advance(1)
    look_after_groups(state, host.now_ms)
    assert not topic.default.ready.filtered


@pytest.fixture
def all_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is parked in memory, and what is on disk is read two by two."""
    monkeypatch.setattr(parking, "ParkedSpill", partial(ParkedSpill, slice_pairs=2, per_key_max=1))
    monkeypatch.setattr(key_gate, "Parking", partial(Parking, parked_max=0))


@pytest.mark.usefixtures("all_on_disk")
def test_a_key_that_is_wanted_again_while_a_reading_goes_on_is_read_again(
    open_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaylog.broker.engine.deliver.selecting.RECEIVE_BYTES_MAX", 24)
    host = open_host()
    host.configure(backoff={"first_ms": 0}, max_retry=0)
    send(host, ("k", "0"), ("", "x"))
    send(host, *[("k", f"{k}") for k in range(1, 6)])
    got = host.receive(3, lease=1)
    assert [m.body for m in got] == [b"0", b"x"]
    host.ack(got)
    assert host.bodies(1) == [b"1"]
    host.advance(30_000)
    send(host, ("k", "6"))
    seen = []
    while got := host.receive(1):
        seen += [m.body for m in got]
        host.ack(got)
    assert seen == [b"%d" % k for k in range(2, 7)], "1 is dead"


@pytest.mark.usefixtures("all_on_disk")
def test_what_does_not_fit_goes_before_what_is_parked_on_disk(
    open_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaylog.broker.engine.deliver.selecting.RECEIVE_BYTES_MAX", 3)
    host = open_host()
    send(host, ("k", "0"), ("k", "1"), ("l", "2"), ("l", "3"))
    seen = []
    while got := host.receive(4):
        seen += [m.body for m in got]
        host.ack(got)
    assert sorted(seen) == [b"0", b"1", b"2", b"3"]
    assert seen.index(b"0") < seen.index(b"1")
    assert seen.index(b"2") < seen.index(b"3")


@pytest.mark.parametrize("tag", [None, "x"])
def test_a_retry_that_does_not_fit_is_not_parked_behind_itself(
    open_host: Any, tag: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delaylog.broker.engine.deliver.selecting.RECEIVE_BYTES_MAX", 6)
    host = open_host()
    only = None if tag is None else TagFilter.parse([tag])
    send(host, ("k", "0"), ("k", "1"), tags=["x", "x"])
    held = host.receive(only=only)
    assert [m.body for m in held] == [b"0"]
    send(host, ("", "long"), tags=["x"])
    host.nack(held, delay=1)
    host.advance(1)
    seen = []
    while got := host.receive(only=only):
        seen += [m.body for m in got]
        host.ack(got)
    assert seen == [b"long", b"0", b"1"]


@pytest.mark.usefixtures("all_on_disk")
@pytest.mark.parametrize("full_from_the_start", [True, False])
def test_a_full_disk_holds_up_no_other_deliveries(
    host: Any, monkeypatch: pytest.MonkeyPatch, full_from_the_start: bool
) -> None:
    """What of a free key lies on disk comes when there is space; what never got there, at once."""
    full, push = full_from_the_start, ScratchQueue.push

    def push_if_room(self: ScratchQueue, values: np.ndarray) -> None:
        if full:
            raise DiskFullError("no space")
        push(self, values)

    monkeypatch.setattr(ScratchQueue, "push", push_if_room)
    send(host, *[("a", f"a{k}") for k in range(6)], ("b", "b0"))
    held = host.receive()
    assert [m.body for m in held] == [b"a0", b"b0"]
    full = True
    host.ack(held)
    send(host, *[("", f"x{k}") for k in range(4)], *[("b", f"b{k}") for k in range(1, 3)])

    def drain() -> list[bytes]:
        out = []
        for _ in range(20):
            got = host.receive(1)
            out += [m.body for m in got]
            host.ack(got)
        return out

    seen = drain()
    assert {b"x0", b"x1", b"x2", b"x3"} <= set(seen)
    if full_from_the_start:
        assert len(seen) == 11
    full = False
    seen += drain()
    assert len(seen) == 11
    assert [body for body in seen if body.startswith(b"a")] == [b"a%d" % k for k in range(1, 6)]
    assert seen.index(b"b1") < seen.index(b"b2")
