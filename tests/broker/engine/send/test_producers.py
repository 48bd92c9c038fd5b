"""What a producer's repeat is answered, what the answers cost, and when they are forgotten."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.errors import ConflictError
from delaylog.broker.engine.send.producers import (
    ANSWER_COST,
    DIGEST_SIZE,
    KEEP_MS,
    WINDOW,
    FirstAnswer,
    ProducerTable,
    pack_answer,
)

HOUR = 3_600_000


def answer(rows: int, position: int, span_ms: int = 0) -> FirstAnswer:
    due = np.arange(rows, dtype=np.int64) * (span_ms // rows) + 10 * HOUR
    return pack_answer(due, np.array([10 << 32]), None, position, bytes(DIGEST_SIZE))


@pytest.mark.parametrize("span", [0, 200, 60_000, 90 * 24 * HOUR, 3_000 * 24 * HOUR])
def test_a_repeat_is_answered_as_the_first_send(host: Any, span: int) -> None:
    """Due times in any order over few or many hours, some in the past; before and after a start."""
    order = np.random.default_rng(7).permutation(500)
    delays = (order * (span // 500)).tolist()
    first = host.send(500, delay=delays, producer="p", sequence=1)
    host.advance(100)
    for again in (lambda: None, host.restart, host.checkpoint, host.crash):
        again()
        repeat = host.send(500, delay=delays, producer="p", sequence=1)
        assert repeat.refs.tolist() == first.refs.tolist()
        assert repeat.deliver_at_ms.tolist() == first.deliver_at_ms.tolist()
        assert repeat.results == first.results


def test_a_repeat_is_answered_for_rows_that_were_kept_too(host: Any) -> None:
    """Ids that lived already, ids that repeat in the batch, and new messages between them."""
    host.send(2, ids=["a", "b"], delay=5 * HOUR)
    ids, delays = ["x", "a", "y", "x", "z", "b"], [9 * HOUR, 0, HOUR, 0, 9 * HOUR, 1]
    first = host.send(6, ids=ids, delay=delays, merge="keep", producer="p", sequence=4)
    repeat = host.send(6, ids=ids, delay=delays, merge="keep", producer="p", sequence=4)
    for name in ("refs", "deliver_at_ms", "results"):
        assert getattr(repeat, name).tolist() == getattr(first, name).tolist()
    only_kept = host.send(1, ids=["a"], delay=1, merge="keep", producer="p", sequence=5)
    repeat = host.send(1, ids=["a"], delay=1, merge="keep", producer="p", sequence=5)
    assert repeat.refs.tolist() == only_kept.refs.tolist()
    assert repeat.deliver_at_ms.tolist() == only_kept.deliver_at_ms.tolist()


def test_a_sequence_that_was_used_for_other_messages_is_refused(host: Any) -> None:
    """As many of them, of the same sizes; nothing is sent."""
    host.send([b"one"], producer="p", sequence=1)
    with pytest.raises(ConflictError, match="used for other messages"):
        host.send([b"two"], producer="p", sequence=1)
    with pytest.raises(
        ConflictError, match=r"Idempotency-Key is one\) was sent with 1 rows, not 2"
    ):
        host.send([b"one", b"two"], producer="p", sequence=1)
    assert host.bodies() == [b"one"]


def test_an_answer_takes_few_bytes() -> None:
    """One due time: nothing a row. Due times over a month: four bytes a row and eight an hour."""
    assert len(answer(10_000, 1).packed) < 100
    assert len(answer(10_000, 1, 30 * 24 * HOUR).packed) < 10_000 * 4 + 100


def test_answers_of_all_producers_take_a_bounded_total_the_oldest_going_first() -> None:
    """What was dropped is refused, not taken for a new send: that would be a second message."""
    table = ProducerTable(answer_bytes_max=100 * (ANSWER_COST + 100))
    for k in range(1_000):
        table.remember(f"p{k % 10}", k // 10, answer(1, k), 1_000)
    assert 99 * (ANSWER_COST + 50) < table.answer_bytes <= 100 * (ANSWER_COST + 100)
    assert table.answers_dropped >= 800
    assert table.seen("p9", 99, 1) is not None
    with pytest.raises(ConflictError, match="no longer kept"):
        table.seen("p9", 60, 1)
    assert table.seen("p9", 100, 1) is None, "new sequences are taken"
    saved = ProducerTable()
    packed = table.snapshot()
    for _ in table.entries.work():
        pass
    saved.restore(packed)
    assert saved.answer_bytes == table.answer_bytes
    with pytest.raises(ConflictError, match="no longer kept"):
        saved.seen("p9", 60, 1)


@pytest.mark.long
@pytest.mark.parametrize("answers", [1, 20])
def test_the_size_is_that_of_the_memory(answers: int) -> None:
    """Metrics show it: a million `Idempotency-Key`s take most of a process."""
    producers = 20_000 // answers
    tracemalloc.start()
    table = ProducerTable()
    for number in range(producers):
        for sequence in range(answers):
            first = answer(1, number * answers + sequence)
            table.remember(f"key-{number:032d}", sequence, first, number)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.85 < table.size_bytes / taken < 1.15


def test_an_answer_above_the_bound_is_kept_until_the_next_one() -> None:
    """Or a repeat of the largest batch would always be refused."""
    table = ProducerTable(answer_bytes_max=1_000)
    table.remember("p", 1, answer(10_000, 1, 30 * 24 * HOUR), 1_000)
    assert table.seen("p", 1, 10_000) is not None
    table.remember("p", 2, answer(10_000, 2, 30 * 24 * HOUR), 1_000)
    assert table.seen("p", 2, 10_000) is not None
    with pytest.raises(ConflictError, match="no longer kept"):
        table.seen("p", 1, 10_000)


def test_what_leaves_the_window_or_is_forgotten_frees_its_bytes() -> None:
    """The total follows the answers that are there."""
    table = ProducerTable(producers_max=3)
    for k in range(500):
        table.remember("p", k, answer(1, k), 1_000)
    one = answer(1, 0).cost
    assert table.answer_bytes == WINDOW * one
    for k in range(3):
        table.remember(f"q{k}", 1, answer(1, 1_000 + k), 2_000)
    assert table.answer_bytes == 3 * one
    table.expire(2_000 + KEEP_MS)
    assert (len(table), table.answer_bytes) == (0, 0)


def test_producers_are_forgotten_by_the_time_of_the_log_not_of_the_node(host: Any) -> None:
    """A checkpoint changes nothing by itself: two nodes take theirs at different times.

    A follower's clock may be fast, and its checkpoint may come at any time.
    """
    host.send([b"a"], producer="p", sequence=1, delay=HOUR)
    following, host.engine.state.following = host.engine.state.following, True
    host.advance(2 * KEEP_MS)
    host.checkpoint()
    assert len(host.engine.state.producers) == 1
    host.engine.state.following = following
    host.send([b"b"], delay=HOUR)
    assert len(host.engine.state.producers) == 0
    host.restart()
    assert len(host.engine.state.producers) == 0
