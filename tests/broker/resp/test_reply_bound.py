"""Who is deferred and who is closed while unread replies use up their bound.

The bound runs alone, with a clock that the test advances and clients that only keep numbers. Sizes
are in bytes of a bound of 100.
"""

from __future__ import annotations

from collections.abc import Callable

from delaylog.broker.resp.unread_replies import (
    LOOK_SECONDS,
    PATIENCE_SECONDS,
    SHARE,
    STARVED_SECONDS,
    ReplyBound,
)

BOUND = 100


class ToyTimer:
    """A callback that is due at a time, unless it is cancelled."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ToyLoop:
    """A clock that stands still between calls of `advance`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[ToyTimer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> ToyTimer:
        self.timers.append(ToyTimer(self.now + delay, callback))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        """Run what is due within `seconds`."""
        end = self.now + seconds
        while due := [timer for timer in self.alive() if timer.at <= end]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = max(self.now, first.at)
            first.callback()
        self.now = end

    def alive(self) -> list[ToyTimer]:
        return [timer for timer in self.timers if not timer.cancelled]


class ToyClient:
    """A client that leaves `size` bytes unread."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig = rig
        self.name = name
        self.read_at = rig.loop.now
        self.unread_bytes = 0
        self.runs = 0
        self.progresses = False

    def note_progress(self, now: float) -> None:
        if self.progresses:
            self.read_at = now

    def finished(self) -> None:
        self.runs += 1

    def leaves(self, size: int) -> None:
        """So many bytes are unread now."""
        self.unread_bytes = size
        self.rig.bound.count(self, size)


class Rig:
    """A bound with its clock, and the names of the clients that it closed."""

    def __init__(self) -> None:
        self.loop = ToyLoop()
        self.closed: list[str] = []
        self.rooms = 0
        self.bound = ReplyBound(SHARE * BOUND, self.loop, close=self._close, on_room=self._has_room)

    def client(self, name: str) -> ToyClient:
        return ToyClient(self, name)

    def _close(self, client: ToyClient) -> None:
        self.closed.append(client.name)
        client.unread_bytes = 0
        self.bound.forget(client)

    def _has_room(self) -> None:
        self.rooms += 1


def test_deferred_clients_run_when_there_is_room() -> None:
    rig = Rig()
    reader, deferred = rig.client("reader"), rig.client("deferred")
    reader.leaves(101)
    assert rig.bound.is_used_up
    rig.bound.wait(deferred)
    rig.bound.wait_for_room()
    reader.leaves(100)
    assert not rig.bound.is_used_up
    assert (deferred.runs, rig.rooms) == (1, 1)
    # Each waits once.
    reader.leaves(99)
    assert (deferred.runs, rig.rooms) == (1, 1)


def test_without_a_bound_nothing_is_counted() -> None:
    loop = ToyLoop()
    bound = ReplyBound(0, loop, close=lambda _: None, on_room=lambda: None)
    rig = Rig()
    bound.count(rig.client("any"), 1 << 40)
    assert not bound.is_used_up
    assert not loop.alive()


def test_small_clients_are_closed_until_there_is_room() -> None:
    """However little each of them leaves unread (once, nobody below 1 MiB was closed)."""
    rig = Rig()
    for number in range(120):
        rig.client(f"small{number}").leaves(1)
    rig.loop.advance(PATIENCE_SECONDS + LOOK_SECONDS)
    assert len(rig.closed) == 20
    assert not rig.bound.is_used_up


def test_one_look_closes_as_many_as_needed() -> None:
    rig = Rig()
    clients = [rig.client(str(number)) for number in range(10)]
    for client in clients:
        client.leaves(10)
    rig.loop.advance(PATIENCE_SECONDS)
    clients[0].leaves(60)
    rig.loop.advance(0.0)
    # The fewest clients: the largest first.
    assert rig.closed == ["0"]
    rig.client("late").leaves(50)
    rig.loop.advance(0.0)
    assert rig.closed == ["0", "1", "2", "3", "4"]
    assert not rig.bound.is_used_up


def test_a_client_that_reads_is_not_closed_before_those_that_do_not() -> None:
    """Also if it began to leave replies unread before they did, and leaves more."""
    rig = Rig()
    honest = rig.client("honest")
    honest.progresses = True
    honest.leaves(70)
    rig.loop.advance(3)
    rig.client("silent").leaves(40)
    rig.loop.advance(PATIENCE_SECONDS - 0.01)
    assert rig.closed == []
    rig.loop.advance(LOOK_SECONDS + 0.01)
    assert rig.closed == ["silent"]


def test_patience_begins_with_the_reply() -> None:
    """Not with an earlier moment in which the bound was used up."""
    rig = Rig()
    first = rig.client("first")
    first.leaves(101)
    rig.loop.advance(0.01)
    first.leaves(0)
    rig.loop.advance(PATIENCE_SECONDS - 0.02)
    late = rig.client("late")
    late.leaves(101)
    rig.loop.advance(PATIENCE_SECONDS - 0.01)
    assert rig.closed == []
    rig.loop.advance(LOOK_SECONDS + 0.01)
    assert rig.closed == ["late"]


def test_replies_that_wait_for_the_log_are_not_unread() -> None:
    """Their client cannot read them yet."""
    rig = Rig()
    client = rig.client("owed")
    rig.bound.count(client, 150)
    rig.loop.advance(10 * PATIENCE_SECONDS)
    assert rig.closed == []
    client.unread_bytes, client.read_at = 150, rig.loop.now
    rig.loop.advance(PATIENCE_SECONDS + LOOK_SECONDS)
    assert rig.closed == ["owed"]


def test_a_trickle_does_not_keep_room_for_ever() -> None:
    """Clients that read a little all the time are closed once others waited for long."""
    rig = Rig()
    for size in (50, 60):
        client = rig.client(f"trickle{size}")
        client.progresses = True
        client.leaves(size)
    rig.loop.advance(2 * STARVED_SECONDS)
    assert rig.closed == []
    rig.bound.wait(rig.client("deferred"))
    rig.loop.advance(LOOK_SECONDS)
    assert rig.closed == ["trickle60"]


def test_beyond_twice_the_bound_clients_are_closed_at_once() -> None:
    """Longest without reading first; the newest reply is kept, however large it is."""
    rig = Rig()
    reading = rig.client("reading")
    reading.leaves(60)
    for number in range(3):
        rig.loop.advance(0.01)
        rig.client(f"silent{number}").leaves(40)
    rig.loop.advance(0.01)
    reading.read_at = rig.loop.now
    rig.loop.advance(0.01)
    rig.client("newest").leaves(30)
    assert rig.closed == ["silent0", "silent1", "silent2"]
    rig.client("huge").leaves(500)
    assert rig.closed[3:] == ["reading", "newest"]


def test_closing_for_memory_takes_one_with_much_unread() -> None:
    rig = Rig()
    rig.client("small").leaves(9)
    for number in range(3):
        rig.loop.advance(0.1)
        rig.client(f"large{number}").leaves(20)
    rig.bound.close_one(10)
    assert rig.closed == ["large0"]
    rig.bound.close_one(1000)
    assert rig.closed == ["large0"]


def test_one_timer_however_counts_change() -> None:
    """Also if they change while clients are looked at."""
    rig = Rig()
    client = rig.client("flutters")
    client.progresses = True
    client.leaves(101)

    def note(now: float) -> None:
        client.read_at = now
        client.leaves(100 if client.unread_bytes > 100 else 101)
        client.leaves(101)

    client.note_progress = note  # type: ignore[method-assign]
    for _ in range(20):
        rig.loop.advance(LOOK_SECONDS)
        assert len(rig.loop.alive()) == 1
    rig.bound.stop()
    assert not rig.loop.alive()
    client.leaves(0)
    rig.loop.advance(1)
    assert not rig.loop.alive()


def test_clients_that_left_are_not_kept() -> None:
    rig = Rig()
    rig.client("reader").leaves(101)
    gone = rig.client("gone")
    rig.bound.wait(gone)
    rig.bound.forget(gone)
    assert not rig.bound._waiting
