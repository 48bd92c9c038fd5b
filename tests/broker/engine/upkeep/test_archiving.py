"""The archive's hold: ended hours stay until released, over restarts, on followers, and no longer.

Hours are told by their folders on disk; what may not be released is tried with each reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.errors import ConflictError, NotLeadingError
from delaylog.broker.engine.topics import commands as topics
from delaylog.broker.engine.upkeep.archive import ArchiveCopy, archive_status, next_hour, release
from delaylog.storage.layout import hour_name
from tests.broker.engine.host import HOUR, START_MS
from tests.broker.engine.member import Member

START_HOUR = START_MS // HOUR


@pytest.fixture
def held(open_host: Callable[..., Any]) -> Any:
    """A host whose ended hours are held."""
    return open_host(archive_hold=True)


@pytest.fixture
def follower(tmp_path: Path, held: Any) -> Iterator[Member]:
    made = Member(tmp_path / "follower", held.now_ms)
    made.engine.state.archive_hold = True
    yield made
    made.close()


def folders(folder: Path) -> list[int]:
    """Hours on disk, counted from the first."""
    names = sorted(os.listdir(folder / "hours"))
    known = {hour_name(START_HOUR + k): k for k in range(60)}
    return [known[name] for name in names if name in known]


def end_hours(host: Any, hours: int) -> None:
    """Rows in so many hours, all acknowledged, and their keep times over."""
    for hour in range(hours):
        host.send(5, delay=hour * HOUR + 1)
    for _ in range(hours):
        host.advance(1)
        host.ack(host.receive())
        host.advance(HOUR - 1)
    host.advance(2 * HOUR)
    host.checkpoint(4)


def hour_ms(hour: int) -> int:
    return (START_HOUR + hour) * HOUR


def test_without_the_hold_hours_go_and_nothing_is_released(host: Any) -> None:
    end_hours(host, 2)
    assert folders(host.folder) == []
    with pytest.raises(ConflictError, match="--archive-hold on"):
        release(host.engine.state, hour_ms(1), host.now_ms)
    assert archive_status(host.engine.state, host.now_ms).held_hours == 0


def test_ended_hours_stay_until_they_are_released(held: Any) -> None:
    end_hours(held, 3)
    assert folders(held.folder) == [0, 1, 2]
    state = held.engine.state
    found = archive_status(state, held.now_ms)
    assert (found.hold, found.released, found.held_hours) == (True, 0, 3)
    assert (found.archivable, found.oldest) == (state.hour_floor, START_HOUR)
    # An hour that ends a moment later is not among them.
    assert release(state, hour_ms(2) - 1, held.now_ms)
    assert folders(held.folder) == [0, 1, 2]
    held.checkpoint(4)
    assert folders(held.folder) == [1, 2]
    assert not release(state, hour_ms(1), held.now_ms)
    assert not release(state, 0, held.now_ms)
    assert archive_status(state, held.now_ms).oldest == START_HOUR + 1


@pytest.mark.parametrize("checkpointed", [False, True])
def test_what_was_released_stays_released_over_a_restart(held: Any, checkpointed: bool) -> None:
    """By the frame, and by the checkpoint."""
    end_hours(held, 2)
    release(held.engine.state, hour_ms(1), held.now_ms)
    if checkpointed:
        held.checkpoint(2)
    held.restart()
    assert held.engine.state.archive_released == START_HOUR + 1
    held.checkpoint(4)
    assert folders(held.folder) == [1]


def test_no_hour_goes_by_a_release_that_a_crash_took_back(held: Any) -> None:
    end_hours(held, 1)
    release(held.engine.state, hour_ms(1), held.now_ms)
    held.crash()
    assert held.engine.state.archive_released == 0
    held.checkpoint(4)
    assert folders(held.folder) == [0]


def test_nothing_is_released_that_may_change_yet(held: Any) -> None:
    held.configure(max_retry=0, dead_keep_ms=10 * HOUR)
    held.send(2, delay=1)
    held.send(1, delay=HOUR)
    held.advance(1)
    first, second = held.receive()
    held.ack([first])
    state = held.engine.state

    def refused(hour: int) -> int:
        with pytest.raises(ConflictError, match="may change yet") as caught:
            release(state, hour_ms(hour), held.now_ms)
        assert state.archive_released == 0
        return int(caught.value.facts["archivable_through_ms"]) // HOUR

    # No checkpoint has said where the floor is.
    assert refused(1) == 0
    # One of it is under lease, and then dead, to be kept readable.
    held.advance(1)
    held.nack([second])
    held.advance(5 * HOUR)
    held.ack(held.receive())
    held.checkpoint(4)
    assert refused(1) == START_HOUR
    held.advance(6 * HOUR)
    held.checkpoint()
    assert refused(50) == state.hour_floor
    # Let live again by hand, late as it is; it has its home in the hour.
    assert held.replay([second.any_id], held.now_ms + 1) == [0]
    assert refused(1) == START_HOUR
    held.advance(1)
    held.ack(held.receive())
    held.advance(HOUR)
    assert release(state, hour_ms(1), held.now_ms)


def test_a_copy_from_before_a_change_releases_nothing(held: Any) -> None:
    held.configure(max_retry=0, dead_keep_ms=0, ended_keep_ms=0)
    held.send(1, delay=1)
    held.advance(1)
    dead = held.receive()
    held.nack(dead)
    held.advance(3 * HOUR)
    held.checkpoint()
    state = held.engine.state
    copied = state.position
    held.replay([dead[0].any_id], held.now_ms + 1)
    held.advance(1)
    held.ack(held.receive())
    held.advance(1)
    with pytest.raises(ConflictError, match="changed after position"):
        release(state, hour_ms(1), held.now_ms, ArchiveCopy(copied))
    assert release(state, hour_ms(1), held.now_ms, ArchiveCopy(state.position))


def test_a_copy_of_something_else_releases_nothing(held: Any) -> None:
    """Rows are counted from what is released on."""
    end_hours(held, 3)
    state = held.engine.state
    assert release(state, hour_ms(1), held.now_ms, ArchiveCopy(rows=5))
    for rows in (5, 15):
        with pytest.raises(ConflictError, match=f"have 10 rows and the copy {rows}"):
            release(state, hour_ms(3), held.now_ms, ArchiveCopy(rows=rows))
    assert release(state, hour_ms(3), held.now_ms, ArchiveCopy(state.position, 10))


def test_a_clock_that_is_set_back_takes_releases_back(held: Any) -> None:
    """An hour that comes to be again holds rows that nobody copied."""
    end_hours(held, 2)
    state = held.engine.state
    release(state, hour_ms(2), held.now_ms)
    held.checkpoint(4)
    assert folders(held.folder) == []
    held.set_back(4 * HOUR)
    assert state.archive_released == state.hour_floor
    held.send(1, delay=HOUR)
    held.advance(HOUR)
    held.ack(held.receive())
    held.advance(3 * HOUR)
    held.checkpoint(4)
    assert len(folders(held.folder)) == 1


def test_a_topic_stays_as_long_as_the_archive_needs_it(held: Any) -> None:
    """Rows of a topic that went by itself would be nobody's, and in no archive."""
    held.send(3, delay=1, ids=["a", "b", "c"])
    held.send(1, delay=3 * HOUR, ids=["later"])
    held.cancel(["later"])
    held.advance(1)
    held.ack(held.receive())
    idle_ms = 24 * HOUR
    for _ in range(3):
        held.advance(idle_ms)
        held.engine.retire_unused(held.now_ms)
        held.checkpoint()
    state = held.engine.state
    assert [topic.name for topic in state.by_number.values()] == ["t"]
    release(state, hour_ms(1), held.now_ms)
    held.engine.retire_unused(held.now_ms)
    assert state.by_number, "a cancelled row of it is not released"
    held.restart()
    state = held.engine.state
    release(state, hour_ms(4), held.now_ms)
    for _ in range(2):
        held.engine.retire_unused(held.now_ms)
        held.advance(idle_ms)
    assert not state.by_number


def test_a_follower_holds_and_lets_go_as_its_leader_does(held: Any, follower: Member) -> None:
    def catch_up() -> None:
        follower.catch_up(held)
        follower.now_ms = held.now_ms
        for _ in range(3):
            work = follower.engine.upkeep.checkpoint(lambda: held.now_ms)
            follower.engine.run_inline(work)

    end_hours(held, 2)
    catch_up()
    assert folders(follower.folder) == [0, 1]
    with pytest.raises(NotLeadingError):
        release(follower.engine.state, hour_ms(1), held.now_ms)
    release(held.engine.state, hour_ms(1), held.now_ms)
    catch_up()
    assert folders(follower.folder) == [1]
    follower.lead(held.now_ms)
    state = follower.engine.state
    assert archive_status(state, held.now_ms) == archive_status(held.engine.state, held.now_ms)
    assert release(state, hour_ms(2), held.now_ms)


def why(host: Any) -> str:
    """The next hour counted from the first, from when it can be archived, and the reason."""
    search = next_hour(host.engine.state, host.now_ms)
    try:
        while True:
            next(search)
    except StopIteration as end:
        found = end.value
    if found is None:
        return "nothing"
    since = None if found.from_ms is None else (found.from_ms - hour_ms(0)) / HOUR
    return f"{found.hour - START_HOUR} from {since and round(since, 2)}: {found.why}"


def test_the_next_hour_says_why_it_waits_and_until_when(held: Any) -> None:
    held.configure(max_retry=0, dead_keep_ms=10 * HOUR, ended_keep_ms=HOUR)
    assert why(held) == "nothing"
    held.send(3, delay=1)
    held.send(1, delay=2, topic="u")
    takes = "an hour takes messages until an hour after its end"
    assert why(held) == f"0 from 2.0: {takes}"
    held.advance(2 * HOUR)
    held.checkpoint()
    assert why(held) == "0 from None: living messages of it are in topics t (3), u (1)"
    first, *others = held.receive()
    held.ack(others)
    assert why(held) == "0 from None: living messages of it are in topics t (1), u (1)"
    state = held.engine.state
    topics.drop_topic(state, state.topics["default", "u"], held.now_ms)
    held.nack([first])
    assert "stay readable until 20" in why(held)
    assert why(held).startswith("0 from 12.33: ")
    assert "dead_keep_ms: topics with dead letters are t (1)" in why(held)
    held.advance(10 * HOUR + 1)
    held.checkpoint()
    assert why(held) == "nothing"
    assert archive_status(held.engine.state, held.now_ms).held_hours == 1
    held.send(1, delay=HOUR)
    assert why(held) == f"13 from 15.0: {takes}"


def test_a_retried_message_is_named_by_its_topic(held: Any) -> None:
    """It lives in another hour, and its first one waits for it."""
    held.configure(max_retry=3)
    held.send(1, delay=1)
    held.advance(1)
    held.nack(held.receive(), delay=5 * HOUR)
    held.advance(2 * HOUR)
    held.checkpoint()
    assert why(held) == "0 from None: living messages of it are in topics t (1)"
