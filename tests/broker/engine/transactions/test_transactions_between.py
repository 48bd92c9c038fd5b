"""Transactions and what happens to their topics between commit and publication, or at a quota."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.jobs.job_table import JobSpec
from delaylog.broker.engine.jobs.jobs import begin_job
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.send.quotas import QuotaError
from delaylog.broker.engine.topics.settings import Quota
from tests.broker.engine.transactions.test_transactions import (
    HOUR,
    bodies,
    calls,
    prepared,
    publish,
)


@pytest.mark.parametrize("slices", [0, 1, 4])
def test_a_default_group_that_was_away(host: Any, slices: int) -> None:
    """It sees nothing that was committed before it came back, published by then or not."""
    prepared(host, parts=1, rows=20)
    calls(host).slices(host.now_ms, slices)
    host.configure(default_group=False)
    host.configure(default_group=True)
    publish(host)
    for _ in range(2):
        assert host.topic.default.counts.living == 0
        assert host.bodies() == []
        host.restart()
    host.send([b"new"])
    assert host.bodies() == [b"new"]


@pytest.mark.parametrize("committed", [True, False])
def test_bytes_of_what_is_staged_count_in_the_quota(host: Any, committed: bool) -> None:
    """Of a topic to which nothing was sent yet, too, and by what they are."""
    host.configure(quota=Quota(bytes=10_000))
    txn, big = calls(host), [b"x" * 900] * 5
    txn.begin("x", host.now_ms)
    txn.begin("y", host.now_ms)
    for part in range(2):
        assert txn.stage("x", big, host.now_ms, part=part, delay_ms=HOUR)
    with pytest.raises(QuotaError):
        txn.stage("x", big, host.now_ms, part=2, delay_ms=HOUR)
    host.checkpoint()
    host.restart()
    txn = calls(host)
    if committed:
        txn.commit("x", host.now_ms, (0, 0, 5), (1, 0, 5))
        for count in range(2):
            with pytest.raises(QuotaError):
                txn.stage("y", big, host.now_ms, delay_ms=HOUR)
            txn.slices(host.now_ms, count)
        publish(host)
        with pytest.raises(QuotaError):
            txn.stage("y", big, host.now_ms, delay_ms=HOUR)
        assert txn.stage("y", big[:1], host.now_ms, delay_ms=HOUR)
    else:
        with pytest.raises(QuotaError):
            txn.stage("y", big, host.now_ms, delay_ms=HOUR)
        txn.abort("x", host.now_ms)
        assert txn.stage("y", big, host.now_ms, delay_ms=HOUR)
        assert txn.stage("y", big, host.now_ms, part=1, delay_ms=HOUR)


def test_a_job_meets_what_was_committed_before_it(host: Any) -> None:
    """A cancel by filter is about every message that counted when it was begun."""
    prepared(host, parts=2, rows=20, delay_ms=HOUR)
    calls(host).slices(host.now_ms, 2)
    job = begin_job(host.engine.state, host.topic, JobSpec("cancel", MessageFilter()), host.now_ms)
    txn = calls(host)
    txn.begin("later", host.now_ms)
    txn.stage("later", [b"later"], host.now_ms, delay_ms=HOUR)
    txn.commit("later", host.now_ms, (0, 0, 1))
    host.sync()
    host.engine.run_inline(host.engine.jobs.work(lambda: host.now_ms))
    host.restart()
    publish(host)
    assert host.engine.jobs.due(host.now_ms)
    host.engine.run_inline(host.engine.jobs.work(lambda: host.now_ms))
    found = host.engine.state.jobs.by_number[job.number]
    assert (found.state, found.done) == ("done", 40)
    host.advance(HOUR)
    assert host.bodies() == [b"later"]


def test_nothing_is_held_of_a_part_when_all_is_published(host: Any) -> None:
    """A part of 64 MiB stays in no memory: not after a start either, which publishes again."""
    prepared(host, parts=2, rows=20)
    publish(host)
    part = int(calls(host).look("x").parts)
    assert part == 2
    host.restart()
    assert not host.engine.state.staged._loaded


def test_parts_of_many_topics(host: Any) -> None:
    """Each topic's rows count where they are: staged, on their way, dropped."""
    txn, topics = calls(host), 40
    for name in ("x", "y"):
        txn.begin(name, host.now_ms)
        for number in range(2 * topics):
            rows = bodies(0, 1 + number % topics)
            txn.stage(name, rows, host.now_ms, part=number, topic=f"t{number % topics}")
    numbers = [host.engine.topic(f"t{number}").number for number in range(topics)]
    held = [txn.table.outstanding_of(number) for number in numbers]
    assert [one.rows for one in held] == [4 * (1 + number) for number in range(topics)]
    txn.commit("x", host.now_ms, *((number, 0, 1 + number) for number in range(topics)))
    txn.abort("y", host.now_ms)
    for _ in range(2):
        state = host.engine.state
        living = [state.by_number[number].default.counts.living for number in numbers]
        assert living == list(range(1, topics + 1))
        held = [calls(host).table.outstanding_of(number) for number in numbers]
        assert [(one.rows, one.staged_rows) for one in held] == [(n, 0) for n in living]
        host.checkpoint()
        host.restart()
    publish(host)
    assert not any(calls(host).table.has_rows_of(number) for number in numbers)
