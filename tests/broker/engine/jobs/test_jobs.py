"""Jobs act on what matches and was there, once, at their rate, whatever happens meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.apply.move_frames import MOVED_BYTES_MAX
from delaylog.broker.engine.errors import BadRequestError, NotLeadingError
from delaylog.broker.engine.jobs import jobs
from delaylog.broker.engine.jobs.job_table import ENDED_KEPT, Job
from delaylog.broker.engine.jobs.jobs import TooManyJobsError, end_job
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.storage.layout import MessageState as S
from delaylog.storage.work import Work

HOUR = 3_600_000


def run(host, action: str, wanted: MessageFilter | None = None, **how: Any) -> Job:
    """A job from its begin to its end."""
    job = host.run_job(action, wanted, **how)
    assert job.state == "done"
    return job


@pytest.fixture(params=["tail", "files", "restarted"])
def varied(request, host):
    """Messages of three hours with tags and keys: ids are "HOUR.NUMBER"."""
    n = 40
    for hour in range(3):
        host.send(
            n,
            delay=[hour * HOUR + 60_000 + k for k in range(n)],
            ids=[f"{hour}.{k}" for k in range(n)],
            tags=["red" if k % 2 else "blue,red" if k % 3 == 0 else "" for k in range(n)],
            keys=[f"k{k % 4}" for k in range(n)],
        )
    if request.param == "files":
        host.checkpoint()
    elif request.param == "restarted":
        host.restart()
    return host


def counted(host, wanted: MessageFilter, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """What matches, counted in the smallest pieces, and the number of pieces."""
    monkeypatch.setattr(jobs, "RANGE_ROWS", 7)
    total, pieces, cursor = 0, 0, None
    while pieces == 0 or cursor is not None:
        state = host.engine.state
        count = jobs.MatchCount(state, host.topic, wanted, now_ms=host.now_ms, cursor=cursor)
        for _ in count.work(lambda: 0.0, seconds_max=0.0):
            pass
        total, pieces, cursor = total + count.matched, pieces + 1, count.cursor
        if pieces == 2:
            # Not counted: sent after the count began.
            host.send(3, delay=5 * HOUR, tags=["red"] * 3, keys=["k1"] * 3)
    return total, pieces


@pytest.mark.parametrize(
    "wanted",
    [
        MessageFilter(),
        MessageFilter(tag=b"blue"),
        MessageFilter(key=b"k1", tag=b"red"),
        MessageFilter(states=frozenset([S.WAITING]), key=b"k2"),
        MessageFilter(states=frozenset([S.READY])),
        MessageFilter(tag=b"green"),
    ],
    ids=repr,
)
def test_a_count_in_pieces_equals_the_matches_of_a_job(varied, wanted, monkeypatch) -> None:
    count, pieces = counted(varied, wanted, monkeypatch)
    # An index finds those with a key or tag, in fewer pieces.
    assert pieces >= (3 * 40 // 7 if wanted.key is wanted.tag is None else 1)
    monkeypatch.undo()
    late = 3 if wanted in (MessageFilter(), MessageFilter(key=b"k1", tag=b"red")) else 0
    assert run(varied, "cancel", wanted).matched == count + late


def names(host, state: S) -> set[str]:
    every = [f"{hour}.{k}" for hour in range(3) for k in range(40)]
    return {name for name in every if host.state_of(name) is state}


def test_filters(varied) -> None:
    """Tag, key and due range: what matches is cancelled, nothing else."""
    host = varied
    start = host.now_ms
    every = {f"{hour}.{k}" for hour in range(3) for k in range(40)}
    gone: set[str] = set()
    for wanted, match in (
        (MessageFilter(tag=b"blue"), lambda h, k: k % 2 == 0 and k % 3 == 0),
        (MessageFilter(key=b"k1", tag=b"red"), lambda h, k: k % 4 == 1),
        (
            MessageFilter(due_from_ms=start + HOUR, due_to_ms=start + HOUR + 60_005),
            lambda h, k: h == 1 and k < 5,
        ),
        (MessageFilter(tag=b"green"), lambda h, k: False),
        (MessageFilter(states=frozenset([S.READY])), lambda h, k: False),
        (MessageFilter(key=b""), lambda h, k: False),
    ):
        expected = {f"{h}.{k}" for h in range(3) for k in range(40) if match(h, k)} - gone
        job = run(host, "cancel", wanted)
        assert (job.matched, job.done, job.too_late) == (len(expected), len(expected), 0), wanted
        assert job.scanned >= 120 or wanted.names_texts
        gone |= expected
        assert names(host, S.CANCELLED) == gone
    assert names(host, S.WAITING) == every - gone
    host.check_counts()


def test_later_messages_are_not_meant(host) -> None:
    """Only what was sent before the job."""
    host.send(5, delay=HOUR)
    job = host.begin_job("cancel")
    host.send(5, delay=HOUR)
    host.work_on_jobs()
    assert (job.state, job.matched) == ("done", 5)
    assert host.topic.default.counts.living == 5
    host.topic_name = "other"
    host.send(3, delay=HOUR)
    run(host, "cancel")
    host.topic_name = "t"
    assert host.topic.default.counts.living == 5


def test_replay_in_row_order_at_a_rate(host) -> None:
    """So many a second, and the counts of the job say so."""
    host.configure(max_retry=0, backoff=Backoff(first_ms=0))
    host.send(200, delay=list(range(200)))
    host.advance(1_000)
    host.nack(host.receive())
    assert host.topic.default.counts.dead == 200
    job = host.begin_job("replay", rate=50)
    got: list[bytes] = []
    seconds = 0
    while job.running:
        before = job.done
        for _ in range(20):
            if host.engine.jobs.due(host.now_ms):
                host.work_on_jobs()
            host.advance(50)
        assert job.done - before <= 51
        assert job.matched == job.done
        got += host.bodies()
        seconds += 1
        assert seconds < 6
    assert seconds >= 4
    assert got == [b"%d" % k for k in range(200)]
    assert job.scanned >= 200, "the rows they were moved to as well"
    host.check_counts()


def test_a_stopped_job_stays_stopped(host) -> None:
    """What it did is counted and stays; the rest lives on, after a restart too."""
    host.send(100, delay=HOUR)
    job = host.begin_job("cancel", rate=100)
    for _ in range(5):
        host.advance(100)
        host.work_on_jobs()
    done = job.done
    assert 0 < done < 100
    end_job(host.engine.state, job, "cancelled", host.now_ms)
    host.work_on_jobs()
    for _ in range(2):
        host.restart(1_000)
        kept = host.engine.state.jobs.by_number[job.number]
        assert (kept.state, kept.done, kept.ended_ms) == ("cancelled", done, job.ended_ms)
        assert not host.engine.jobs.due(host.now_ms)
        host.checkpoint()
    assert host.topic.default.counts.living == 100 - done


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_job_goes_on_after_a_restart(host, checkpointed: bool) -> None:
    """From where it was, with what it had counted."""
    for hour in range(3):
        host.send(8, delay=hour * HOUR + 60_000)
    job = host.begin_job("cancel", MessageFilter(due_to_ms=host.now_ms + 10 * HOUR), rate=100)
    number = job.number
    while job.running:
        before = job.done
        host.advance(300)
        if host.engine.jobs.due(host.now_ms):
            host.work_on_jobs()
        if checkpointed:
            host.checkpoint()
        host.restart()
        job = host.engine.state.jobs.by_number[number]
        assert job.done >= before
    assert (job.done, job.matched, job.scanned) == (24, 24, 24)
    assert host.topic.default.counts.living == 0


@pytest.mark.parametrize("action", ["reschedule", "replay"])
def test_a_job_goes_on_under_another_horizon(host, action: str) -> None:
    """Its due time was accepted: a later check of it would end each start of the broker."""
    host.configure(max_retry=0, backoff=Backoff(first_ms=0))
    host.send(4, delay=HOUR)
    if action == "replay":
        host.advance(HOUR)
        host.nack(host.receive())
    due_ms = host.now_ms + 9 * 366 * 24 * HOUR
    job = host.begin_job(action, rate=1, deliver_at_ms=due_ms)
    state = host.engine.state
    state.limits = replace(state.limits, horizon_ms=HOUR)
    while job.running:
        host.advance(1_000)
        host.work_on_jobs()
    assert (job.done, job.state) == (4, "done")


def test_slices_are_bounded(host, monkeypatch) -> None:
    """No slice looks at more rows, or changes more messages, than it says."""
    monkeypatch.setattr(jobs, "SLICE_MESSAGES", 10)
    monkeypatch.setattr(jobs, "RANGE_ROWS", 25)
    host.send(100, delay=HOUR)
    job = host.begin_job("cancel")
    last = 0
    for step in host.engine.jobs.work(lambda: host.now_ms):
        assert job.done - last <= 10
        last = job.done
        if callable(step):
            step()
        elif step is not None:
            host.sync()
    assert job.done == 100


def test_a_job_whose_topic_is_dropped_fails(host) -> None:
    """It has nothing to act on any more."""
    host.send(1, delay=HOUR)
    job = host.begin_job("cancel")
    host.drop_topic()
    host.work_on_jobs()
    assert job.state == "failed"


def test_a_full_disk_defers_jobs_that_write_rows(host, monkeypatch) -> None:
    """Reschedule and replay wait for space; cancel goes on."""
    host.send(10, delay=HOUR)
    move = host.begin_job("reschedule", deliver_at_ms=0)
    end = host.begin_job("cancel", MessageFilter(tag=b"x"))
    monkeypatch.setattr(type(host.engine.state.fs), "free_bytes", lambda self, folder: 0)
    host.work_on_jobs()
    assert (move.state, move.done, end.state) == ("running", 0, "done")
    assert not host.engine.jobs.due(host.now_ms)
    monkeypatch.undo()
    host.work_on_jobs()
    assert (move.state, move.done) == ("done", 10)


def test_limits(host) -> None:
    """So many run at a time; so many ended ones are remembered; a due time has bounds."""
    with pytest.raises(BadRequestError):
        host.begin_job("reschedule", deliver_at_ms=1 << 60)
    running = [host.begin_job("cancel") for _ in range(jobs.RUNNING_MAX)]
    with pytest.raises(TooManyJobsError):
        host.begin_job("cancel")
    host.work_on_jobs()
    assert Counter(job.state for job in running) == {"done": jobs.RUNNING_MAX}
    for _ in range(ENDED_KEPT):
        last = run(host, "cancel")
    host.restart()
    table = host.engine.state.jobs
    assert len(table.by_number) == ENDED_KEPT
    assert host.begin_job("cancel").number == last.number + 1


def test_a_job_is_as_its_frames_say(host: Any) -> None:
    """A frame that cannot be appended changes nothing of a job, and a replay shows the same."""
    host.send(10, delay=60_000, ids=[f"m{k}" for k in range(10)])
    state = host.engine.state
    job = host.begin_job("cancel")
    before = job.progress()
    state.may_append = lambda: False
    with pytest.raises(NotLeadingError):
        end_job(state, job, "cancelled", host.now_ms)
    assert job.progress() == before
    state.may_append = lambda: True
    host.engine.run_inline(host.engine.jobs.work(lambda: host.now_ms))
    shown = [one.progress() for one in state.jobs.by_number.values()]
    assert (job.done, job.state) == (10, "done")
    host.restart()
    assert [one.progress() for one in host.engine.state.jobs.by_number.values()] == shown


def test_leased_ones_are_too_late(host) -> None:
    """Unless by force; with a state they are not even meant."""
    host.send(4)
    assert len(host.receive(2, lease=HOUR)) == 2
    job = run(host, "cancel", MessageFilter(states=frozenset([S.LEASED])))
    assert (job.matched, job.done, job.too_late) == (2, 0, 2)
    job = run(host, "cancel")
    assert (job.matched, job.done, job.too_late) == (4, 2, 2)
    job = run(host, "cancel", force=True)
    assert (job.matched, job.done, job.too_late) == (2, 2, 0)
    assert host.topic.default.counts.living == 0
    host.check_counts()


def test_a_message_that_moves_during_a_job_is_met_once(host) -> None:
    """A message that is moved, before or behind the job, is cancelled all the same."""
    random = Random(3)
    ids = [f"m{k}" for k in range(300)]
    host.send(300, delay=[random.randrange(6 * HOUR) + 60_000 for _ in ids], ids=ids)
    job = host.begin_job("cancel", rate=400)
    while job.running:
        for name in random.sample(ids, 10):
            host.reschedule([name], host.now_ms + 60_000 + random.randrange(6 * HOUR))
        host.advance(100)
        if host.engine.jobs.due(host.now_ms):
            host.work_on_jobs()
    assert (job.matched, job.done) == (300, 300)
    assert {host.state_of(name) for name in ids} == {S.CANCELLED}
    host.check_counts()


def test_each_group_keeps_the_bodies_of_its_messages(host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group's rows are moved in turn, which shifts records of the others in the tail."""
    monkeypatch.setattr(jobs, "SLICE_MESSAGES", 3)
    for name in ("default", "a", "b"):
        host.put_group(name)
    host.send(3)
    host.send([b"3"])
    host.receive(1, group="default")
    host.jump_ahead(37 * HOUR)
    for _ in range(2):
        run(host, "reschedule", deliver_at_ms=host.now_ms)
    for name in ("a", "b"):
        got = host.receive(9, group=name)
        assert [message.body for message in got] == [b"0", b"1", b"2", b"3"]
        assert [message.origin for message in got] == sorted(message.origin for message in got)


def test_a_job_copies_large_messages_in_portions(host) -> None:
    """Each moved message is copied, and the copies of a slice wait in memory for their hours."""
    size, n = 1 << 20, 96
    host.send([b"x" * size] * n, delay=HOUR)
    host.flush()
    pile, sizes = host.engine.state.hours.pile, []

    def watched(work: Work) -> Work:
        for step in work:
            sizes.append(pile.size_bytes)
            yield step

    job = host.begin_job("reschedule", deliver_at_ms=host.now_ms + 2 * HOUR)
    host.engine.run_inline(watched(host.engine.jobs.work(lambda: host.now_ms)))
    assert max(sizes) < MOVED_BYTES_MAX + pile.bytes_max
    assert (job.state, job.done) == ("done", n)


@pytest.mark.parametrize("rate", [1, 30, 150])
def test_a_rate_holds_for_large_messages(host, rate: int) -> None:
    """A portion may take all that the rate allows for now."""
    n, size = 40, 1 << 20
    host.send([b"x" * size] * n, delay=HOUR)
    job = host.begin_job("reschedule", deliver_at_ms=host.now_ms + 2 * HOUR, rate=rate)
    begun_ms = host.now_ms
    while job.running:
        host.work_on_jobs()
        host.flush()
        host.now_ms += 100
    assert (job.state, job.done) == ("done", n)
    assert host.now_ms - begun_ms >= (n - 1) * 1_000 // rate - 1_000
