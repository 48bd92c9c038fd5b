"""Failed attempts keep their reason, consumer and time, whatever happens to the log.

A host fails attempts in every way there is; the table is compared before and after restarts from
the log, from a checkpoint, and from a checkpoint whose log has been removed.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.deliver import receives, settlements
from delaylog.broker.engine.deliver.failure_reasons import DeadReasons, tidy
from delaylog.broker.engine.deliver.failures import (
    FAILURES_MAX,
    HOW,
    PART_ROWS,
    TEXT_BYTES_MAX,
    FailureTable,
)
from delaylog.broker.engine.deliver.receives import ReceiveRequest
from delaylog.storage.layout import MessageState
from tests.broker.engine.host import Host, Message

TABLE = "delaylog.broker.engine.deliver.failures"
REASONS = "delaylog.broker.engine.deliver.failure_reasons"


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    host.configure(max_retry=2)
    yield host
    host.close()


def take(host: Host, name: str = "w-1", address: str = "10.0.0.7", lease: int = 30_000) -> Message:
    """Receive one message as a named consumer."""
    asked = ReceiveRequest(1, host.now_ms, consumers=[name], addresses=[address])
    found = receives.receive(
        host.engine.state, host.topic, host.topic.default, asked, lease_ms=lease
    )
    assert found is not None
    host.turn()
    origin, attempts = int(found.origins[0]), int(found.attempts[0])
    due = int(found.rows["deliver_at"][0])
    return Message(origin, found.lease, "", b"", attempts, due, host.now_ms)


def nack(host: Host, message: Message, reason: str, delay: int = 0) -> None:
    """Return a message with a reason."""
    receipts = settlements.Receipts(message.lease, np.array([message.origin]))
    how = {"delay_ms": delay, "reason": reason}
    assert settlements.nack(host.engine.state, host.topic, receipts, host.now_ms, **how).done == 1
    host.turn()


def told(host: Host, origin: int) -> list[tuple[int, str, str, str, str]]:
    """(attempt, how, reason, consumer, address) of each failure of a message."""
    kept = host.engine.state.failures.of(*host.place, np.array([origin]))
    return [
        (each.attempt, each.how, each.reason, each.consumer, each.address)
        for each in kept.get(origin, [])
    ]


def counted(host: Host, limit: int = 10, **how: bool) -> DeadReasons:
    """Dead letters by reason."""
    made = DeadReasons(host.engine.state, host.topic, host.topic.default, limit=limit, **how)
    host.engine.run_inline(made.work())
    return made


def test_each_way_to_fail(host):
    """A nack at once, a nack after a delay (a new row), and the last one, which is a lease that
    expires, are three failures of one message in this order."""
    host.send(1)
    first = take(host, "a")
    nack(host, first, "E1: boom")
    nack(host, take(host, "b"), "E2: bang", delay=5_000)
    host.advance(5_000)
    take(host, "c", lease=1_000)
    host.advance(2_000)
    assert told(host, first.origin) == [
        (1, "nack", "E1: boom", "a", "10.0.0.7"),
        (2, "nack", "E2: bang", "b", "10.0.0.7"),
        (3, "lease_expired", "", "c", "10.0.0.7"),
    ]
    assert host.topic.default.counts.dead == 1


def test_rejected_and_untried(host):
    """A rejection is a failure of its own kind; a lease given back before its attempt is none."""
    host.send(1)
    message = take(host)
    host.extend([message], 0)
    assert told(host, message.origin) == []
    again = take(host)
    receipts = settlements.Receipts(again.lease, np.array([again.origin]))
    settlements.reject(host.engine.state, host.topic, receipts, host.now_ms, reason="bad address")
    host.turn()
    assert [each[1:3] for each in told(host, message.origin)] == [("rejected", "bad address")]


def test_failures_outlive_the_log(host):
    """The failures are the same after a replay, and from checkpoints when the log is removed."""
    host.send(3)
    origins = []
    for number in range(3):
        message = take(host, f"w-{number}")
        origins.append(message.origin)
        nack(host, message, f"reason {number}", delay=60_000)
    before = [told(host, origin) for origin in origins]
    assert all(before)
    host.restart()
    assert [told(host, origin) for origin in origins] == before
    host.checkpoint(3)
    host.engine.state.log.roll()
    host.send(1)
    host.checkpoint(3)
    host.restart()
    assert host.engine.state.log.first_position > 0
    assert [told(host, origin) for origin in origins] == before


def test_counted_by_reason(host):
    """Only dead letters count, each by its last failure; others that died are `other`."""
    host.configure(max_retry=0, dead_expired=True)
    host.send(5)
    for reason in ("a", "b", "a", "a"):
        nack(host, take(host), reason)
    host.send(1, ttl_ms=1_000, delay=10_000)
    host.advance(12_000)
    host.receive(10)
    found = counted(host)
    assert [(each.text, each.count) for each in found.most] == [("a", 3), ("b", 1)]
    assert found.other == host.topic.default.counts.dead - 4 == 1
    untold = counted(host, by_reason=False)
    assert [each.members["reason"] for each in untold.most] == [None]
    assert untold.most[0].count == 4


def test_no_dead_letter_has_no_reason(host: Host) -> None:
    """Before anything failed, and while what has failed waits for its retry."""
    host.send(1)
    for _ in range(2):
        found = counted(host)
        assert (found.most, found.other) == ([], 0)
        nack(host, take(host), "busy")


@pytest.mark.long
@given(st.data())
def test_grouped_as_plain_counts(data: st.DataObject) -> None:
    """Reasons and consumers are joined over parts and slices, and only the most frequent stay."""
    ways, texts = st.integers(0, len(HOW) - 1), st.sampled_from(["", "a", "b", "c"])
    drawn = data.draw(st.lists(st.tuples(ways, texts, texts), min_size=1, max_size=30))
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{TABLE}.PART_ROWS", data.draw(st.sampled_from([2, 5, 64])))
        patch.setattr(f"{REASONS}._TEXTS", data.draw(st.sampled_from([1, 3, 64])))
        host = Host(Path(folder))
        host.configure(max_retry=0)
        host.send(len(drawn))
        origins = [take(host) for _ in drawn]
        for each in origins:
            nack(host, each, "")
        state, topic = host.engine.state, host.topic
        state.failures, plain = FailureTable(), {}
        for at_ms, (each, (how, reason, consumer)) in enumerate(zip(origins, drawn, strict=True)):
            columns = {"origin": np.array([each.origin]), "at_ms": at_ms, "how": how}
            place = {"topic": topic.number, "group": topic.default.number}
            named = {"reason": reason, "consumer": consumer, "address": ""}
            state.failures.add(columns | place, 1, named)
            same = plain.setdefault((HOW[how], reason), [])
            same.append((at_ms, each.origin, consumer))
        limit = data.draw(st.integers(1, 12))
        found = counted(host, limit)
        host.close()
    most = sorted(plain.items(), key=lambda each: (-len(each[1]), each[0]))[:limit]
    assert [((each.how, each.text), each.members, each.origin) for each in found.most] == [
        (
            key,
            {
                "cause": key[0],
                "reason": key[1] or None,
                "reason_prefix": key[1] or None,
                "texts": int(key[1] != ""),
                "count": len(same),
                "consumers": len({consumer for *_, consumer in same if consumer}),
                "first_ms": same[0][0],
                "last_ms": same[-1][0],
            },
            same[-1][1],
        )
        for key, same in most
    ]
    assert found.rest == len(drawn) - sum(each.count for each in found.most)
    assert found.other == 0


def test_tidied(host, monkeypatch):
    """Failures of messages that were successful in the end are forgotten, others stay."""
    monkeypatch.setattr("delaylog.broker.engine.deliver.failure_reasons.TIDY_MIN", 1)
    host.send(2)
    first, second = take(host), take(host)
    nack(host, first, "once")
    nack(host, second, "twice", delay=3_600_000)
    host.ack([take(host)])
    host.engine.run_inline(tidy(host.engine.state))
    assert told(host, first.origin) == []
    assert [each[2] for each in told(host, second.origin)] == ["twice"]


def test_bounded(host, monkeypatch):
    """A full table forgets its oldest failures, and texts that nothing names any more."""
    monkeypatch.setattr(f"{TABLE}.FAILURES_MAX", 8)
    monkeypatch.setattr(f"{TABLE}.PART_ROWS", 2)
    host.configure(max_retry=100)
    host.send(1)
    for number in range(12):
        nack(host, take(host), f"reason {number}")
    table = host.engine.state.failures
    assert 6 <= len(table) <= 8
    assert reasons_of(table) == [f"reason {number}" for number in range(12 - len(table), 12)]
    used = {"", "w-1", "10.0.0.7", *reasons_of(table)}
    assert set(table.saved()["failure_texts"]) == used


def reasons_of(table: FailureTable) -> list[str]:
    """The reasons of all failures that are kept, oldest first."""
    return [part.texts[number] for part in table.parts for number in part.rows["reason"]]


def add(table: FailureTable, origins: range, reason: str, topic: int = 1) -> None:
    """Add a failure of each origin, all with one reason."""
    columns = {"origin": np.array(origins, np.int64), "topic": topic, "group": 0, "attempt": 1}
    table.add(columns, len(origins), {"reason": reason, "consumer": "c", "address": ""})


def test_the_newest_of_a_large_frame_stay():
    """A frame with more failures than there is room for pushes out older ones, never its own."""
    table = FailureTable()
    add(table, range(200_000), "old")
    add(table, range(200_000, 300_000), "new")
    kept = np.concatenate([part.rows["origin"] for part in table.parts])
    assert kept[-1] == 299_999
    assert np.array_equal(kept, np.arange(kept[0], 300_000))
    assert FAILURES_MAX - 2 * PART_ROWS < len(kept) <= FAILURES_MAX


def test_texts_are_bounded():
    """Reasons that all differ are bounded by their memory, and the newest stay."""
    table = FailureTable()
    for number in range(40_000):
        add(table, range(number, number + 1), f"{number:01024}")
    texts = [text for part in table.parts for text in part.texts]
    assert TEXT_BYTES_MAX * 0.8 < sum(map(len, texts)) < TEXT_BYTES_MAX
    assert texts[-1] == f"{39_999:01024}"


@pytest.mark.long
@given(st.data())
def test_against_a_plain_list(data: st.DataObject) -> None:
    """Whatever is added, kept, dropped, saved and restored, the rows are those of a list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{TABLE}.PART_ROWS", 4)
        table, plain = FailureTable(), []
        for first in range(0, 300, 10):
            act = data.draw(st.sampled_from(["add", "add", "keep", "drop", "restore"]))
            if act == "add":
                n, topic = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
                reason = data.draw(st.sampled_from("abc"))
                add(table, range(first, first + n), reason, topic)
                plain += [(origin, topic, reason) for origin in range(first, first + n)]
            elif act == "keep":
                odd = data.draw(st.booleans())
                for part in table.parts:
                    table.keep(part, part.rows["origin"] % 2 == odd)
                plain = [each for each in plain if each[0] % 2 == odd]
            elif act == "drop":
                topic = data.draw(st.integers(1, 3))
                table.drop(topic)
                plain = [each for each in plain if each[1] != topic]
            else:
                saved, table = table.saved(), FailureTable()
                table.restore(saved)
            rows = [row for part in table.parts for row in part.rows[["origin", "topic"]].tolist()]
            assert [
                (*row, text) for row, text in zip(rows, reasons_of(table), strict=True)
            ] == plain
            used = {"", "c", *reasons_of(table)} if plain else {""}
            assert {"", *(text for part in table.parts for text in part.texts)} == used


def test_rows_that_come_while_a_part_is_looked_at_stay():
    """`tidy` works in slices: rows behind its mask stay, and a part that went is passed over."""
    table = FailureTable()
    add(table, range(4), "a")
    (part,) = table.parts
    add(table, range(4, 6), "b")
    table.keep(part, np.array([True, False, False, False]))
    assert reasons_of(table) == ["a", "b", "b"]
    table.keep(part, np.zeros(4, np.bool_))
    assert reasons_of(table) == ["a", "b", "b"]


def test_dropped_with_topic_group_and_erasure(host):
    """Nothing of a dropped group or an erased topic stays, since reasons may quote messages."""
    host.send(1)
    message = take(host)
    nack(host, message, "secret")
    host.purge(force=True, erase=True)
    assert told(host, message.origin) == []
    assert "secret" not in host.engine.state.failures.saved()["failure_texts"]
    host.send(1)
    nack(host, take(host), "again")
    host.drop_topic()
    assert len(host.engine.state.failures) == 0


def test_state_shown_is_unchanged(host):
    """Noting failures changes no message: a nacked one is ready again at once."""
    host.send(1, ids=["x"])
    nack(host, take(host), "r")
    assert host.state_of("x") is MessageState.READY
