"""The consuming stream against a broker, without Spark: offsets, claims, leases and losses."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from pyspark_delaylog.claims import DelaylogClaimReader
from pyspark_delaylog.errors import ExpiredClaimError, OptionError, RefusedError
from pyspark_delaylog.schema import SOURCE_SCHEMA
from tests.client.spark.batches import ids_of
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker, FakeClaim
from tests.client.spark.misbehaving_server import Call, Fault

ALL = ReadAllAvailable()


class Stream:
    """A reader as Spark's driver has it, with a clock that the test moves."""

    def __init__(self, options_of: OptionsOf, schema: StructType = SOURCE_SCHEMA, **given: Any):
        self.now_s = 1_000.0
        self.options, self.schema = options_of(**given), schema
        self.reader = DelaylogClaimReader(self.options, schema, monotonic=lambda: self.now_s)
        self.start: dict[str, Any] = {}

    def begin(self) -> Stream:
        self.start = self.reader.initialOffset()
        return self

    def plan(self, limit: Any = ALL) -> dict[str, Any]:
        found = self.reader.latestOffset(self.start, limit)
        return dict(json.loads(json.dumps(found)))

    def read(self, end: dict[str, Any]) -> list[str]:
        """As tasks do it: of a fresh copy."""
        ids = []
        for partition in self.reader.partitions(self.start, end):
            worker = DelaylogClaimReader(self.options, self.schema)
            for batch in worker.read(pickle.loads(pickle.dumps(partition))):
                ids += batch.column("id").to_pylist()
        return ids

    def done(self, end: dict[str, Any]) -> None:
        self.start = end


def fill(broker: FakeBroker, first: int, end: int) -> None:
    broker.ready.setdefault("t", []).extend(
        {
            "value": each.encode(),
            "deliver_at": datetime(2026, 1, 1, tzinfo=UTC),
            "id": each,
            "topic": "t",
            "attempts": 1,
            "headers": [{"key": "h", "value": b"v"}],
        }
        for each in ids_of(first, end)
    )


def test_a_batch_is_a_claim_in_ranges_and_its_commit_an_ack(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    fill(broker, 0, 10)
    stream = Stream(options_of, minPartitions=3, consumerGroup="g", batchSize=2).begin()
    end = stream.plan()
    assert (end["claim"], end["rows"]) == (1, 10)
    partitions = stream.reader.partitions(stream.start, end)
    assert [(each.first, each.end) for each in partitions] == [(0, 3), (3, 6), (6, 10)]
    assert stream.read(end) == stream.read(end) == ids_of(0, 10), "repeatable"
    assert broker.acked == []
    stream.reader.commit(end)
    assert [row["id"] for row in broker.acked] == ids_of(0, 10)
    claims = [call for call in broker.calls if "/claims/" in call.path]
    assert {call.query.get("group") or call.shape.get("group") for call in claims} == {"g"}


def test_planning_again_finds_the_same_claim_also_elsewhere(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    fill(broker, 0, 10)
    stream = Stream(options_of).begin()
    end = stream.plan(ReadMaxRows(4))
    fill(broker, 10, 20)
    assert stream.plan(ReadMaxRows(4)) == end
    other = Stream(options_of)
    other.start = stream.start
    assert other.plan(ReadMaxRows(4)) == end
    assert other.read(end) == ids_of(0, 4)


def test_batches_follow_each_other(broker: FakeBroker, options_of: OptionsOf) -> None:
    fill(broker, 0, 25)
    stream = Stream(options_of, maxMessagesPerTrigger=10).begin()
    limit = stream.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    seen = []
    while (end := stream.plan(limit)) != stream.start:
        seen.append(stream.read(end))
        if stream.start["claim"]:
            stream.reader.commit(stream.start)
        stream.done(end)
    assert seen.pop() == [], "one batch of nothing, for the commit of the last one"
    assert seen == [ids_of(0, 10), ids_of(10, 20), ids_of(20, 25)]
    assert [row["id"] for row in broker.acked] == ids_of(0, 25)


def test_an_idle_stream_asks_seldom_and_finds_what_comes(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    stream = Stream(options_of).begin()
    for _ in range(5):
        assert stream.plan() == stream.start
        assert stream.reader.partitions(stream.start, stream.start) == []
        stream.now_s += 0.03
    made = [call for call in broker.calls if "/claims/" in call.path]
    assert len(made) == 2, "one claim, empty and given back"
    assert len(broker.called("GET", "/stats")) == 1
    fill(broker, 0, 3)
    stream.now_s += 0.2
    end = stream.plan()
    assert end["claim"] == 2
    assert stream.read(end) == ids_of(0, 3)


def test_the_last_claim_is_renewed_until_its_commit(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    fill(broker, 0, 3)
    stream = Stream(options_of, leaseMs=40_000).begin()
    stream.done(stream.plan())
    (claim,) = broker.claims.values()
    for _ in range(40):
        assert stream.plan()["rows"] == 0
        stream.now_s += 1.0
    assert 3 <= claim.extended <= 5, "every quarter of the lease"
    end = stream.plan()
    stream.reader.commit(stream.start)
    stream.done(end)
    stream.now_s += 100.0
    assert stream.plan() == end
    assert claim.extended <= 5


def test_messages_that_wait_for_the_key_of_a_claim_come_after_its_commit(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    """The broker gives none of them while the claim is alive; also with availableNow."""
    fill(broker, 0, 3)
    stream = Stream(options_of).begin()
    stream.reader.prepareForTriggerAvailableNow()
    held = [broker.ready["t"].pop(), broker.ready["t"].pop()]
    seen = []
    while (end := stream.plan()) != stream.start:
        seen += stream.read(end)
        if stream.start["rows"]:
            stream.reader.commit(stream.start)
            broker.ready["t"] += held[-1:]
            del held[-1:]
        stream.done(end)
        stream.now_s += 0.001
    assert seen == ids_of(0, 3)


def test_a_restart_renews_what_it_finds(broker: FakeBroker, options_of: OptionsOf) -> None:
    fill(broker, 0, 3)
    stream = Stream(options_of).begin()
    end = stream.plan()
    again = Stream(options_of)
    again.done(end)
    again.plan()
    assert next(iter(broker.claims.values())).extended == 1


def test_a_claim_that_ended_before_its_batch_was_planned_is_passed_over(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    fill(broker, 0, 3)
    stream = Stream(options_of).begin()
    stream.plan()
    broker.end_claims()
    end = stream.plan()
    assert (end["claim"], end["rows"]) == (2, 3)


@pytest.mark.parametrize("done", [1_500, 10_000])
def test_a_checkpoint_that_is_older_than_the_broker_finds_the_next_claim(
    broker: FakeBroker, options_of: OptionsOf, done: int
) -> None:
    """It was restored from a backup: the broker remembers the ends of 10,000 claims."""
    stream = Stream(options_of).begin()
    epoch = stream.start["epoch"]
    for number in range(1, done + 1):
        broker.claims["t", f"spark.{epoch}.{number}"] = FakeClaim([], "acked")
    fill(broker, 0, 3)
    stream.reader.prepareForTriggerAvailableNow()
    end = stream.plan()
    assert (end["claim"], end["rows"]) == (done + 1, 3)


AGAIN = ["m000000", "m000001", "m000002"]
ENDS = {
    "expired": (AGAIN, "option leaseMs"),
    "released": (AGAIN, "was released"),
    "purged": ([], "were purged"),
    "acked": ([], "a later run"),
    "unknown": ([], "was dropped, or the broker was restored"),
}
"""How a claim ends: the messages that come again, and a word of what is said."""


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("committed", [False, True], ids=["batch repeated", "batch done"])
def test_a_stream_goes_on_after_the_end_of_its_last_claim(
    broker: FakeBroker,
    options_of: OptionsOf,
    caplog: pytest.LogCaptureFixture,
    how: str,
    committed: bool,
) -> None:
    """The driver died, before or after Spark noted that the batch is done; another one follows."""
    fill(broker, 0, 3)
    stream = Stream(options_of).begin()
    end = stream.plan()
    broker.end_claims(how)
    again = Stream(options_of)
    again.reader.prepareForTriggerAvailableNow()
    if not committed:
        again.start = stream.start
        assert again.read(end) == []
    again.done(end)
    seen = []
    while (end := again.plan()) != again.start:
        seen += again.read(end)
        again.reader.commit(again.start)
        again.done(end)
    ids, word = ENDS[how]
    assert seen == ids
    (line,) = caplog.messages
    assert "with 3 messages has ended" in line
    assert word in line


@pytest.mark.parametrize("how", ENDS)
def test_a_stream_fails_at_the_end_of_a_claim_if_it_is_told_to(
    broker: FakeBroker, options_of: OptionsOf, how: str
) -> None:
    """On the driver, before any task runs; or in a task that has begun to read."""
    fill(broker, 0, 3)
    stream = Stream(options_of, onExpiredClaim="fail").begin()
    end = stream.plan()
    (part, *_) = stream.reader.partitions(stream.start, end)
    broker.end_claims(how)
    again = Stream(options_of, onExpiredClaim="fail")
    for call in (
        lambda: again.reader.partitions(stream.start, end),
        lambda: list(again.reader.read(part)),
    ):
        with pytest.raises(ExpiredClaimError, match=rf"{ENDS[how][1]}.*onExpiredClaim=redeliver"):
            call()


@pytest.mark.parametrize("how", ENDS)
def test_a_stream_may_fail_only_if_messages_may_be_gone(
    broker: FakeBroker, options_of: OptionsOf, how: str
) -> None:
    fill(broker, 0, 3)
    stream = Stream(options_of, failOnDataLoss="true").begin()
    end = stream.plan()
    broker.end_claims(how)
    again = Stream(options_of, failOnDataLoss="true")
    if how in ("purged", "unknown"):
        with pytest.raises(ExpiredClaimError, match="failOnDataLoss=false"):
            again.reader.partitions(stream.start, end)
    else:
        assert again.reader.partitions(stream.start, end) == []


def test_of_a_claim_that_ends_while_it_is_read_the_rest_comes_again(
    broker: FakeBroker, options_of: OptionsOf, caplog: pytest.LogCaptureFixture
) -> None:
    """In the next run: one that ends claims faster than it reads them would not end."""
    fill(broker, 0, 3)
    stream = Stream(options_of, minPartitions=1, batchSize=1).begin()
    stream.reader.prepareForTriggerAvailableNow()
    end = stream.plan()
    (part,) = stream.reader.partitions(stream.start, end)
    batches = stream.reader.read(part)
    assert next(batches).num_rows == 1
    broker.end_claims()
    assert list(batches) == []
    assert "rows 1 to 2 of claim" in caplog.text
    stream.done(end)
    empty = stream.plan()
    assert empty["rows"] == 0
    stream.reader.commit(end)
    assert "with 3 messages has ended" in caplog.text
    stream.done(empty)
    assert stream.plan() == empty
    assert broker.acked == []
    assert len(broker.ready["t"]) == 3


def test_messages_that_were_settled_one_by_one_are_left_out(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    """Their neighbours are read, since the ack of the claim is theirs too."""
    fill(broker, 0, 10)
    broker.removed = {"m000003", "m000009"}
    stream = Stream(options_of).begin()
    found = stream.read(stream.plan())
    assert found == [each for each in ids_of(0, 10) if each not in broker.removed]


def test_stop_acknowledges_nothing(broker: FakeBroker, options_of: OptionsOf) -> None:
    fill(broker, 0, 3)
    stream = Stream(options_of).begin()
    stream.plan()
    stream.reader.commit(stream.start)
    stream.reader.stop()
    assert broker.acked == []


def test_available_now_reads_what_was_ready_and_ends(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    fill(broker, 0, 10)
    stream = Stream(options_of).begin()
    stream.reader.prepareForTriggerAvailableNow()
    seen = 0
    while (end := stream.plan(ReadMaxRows(4))) != stream.start:
        seen += end["rows"]
        fill(broker, 100, 110)
        stream.reader.commit(stream.start)
        stream.done(end)
    assert seen == 10
    assert len(broker.acked) == 10


def test_available_now_of_a_topic_that_is_not_there_ends_at_once(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    stream = Stream(options_of).begin()
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.plan() == stream.start
    assert not any("/claims/" in call.path for call in broker.calls)


def test_a_group_that_is_not_there_ends_the_stream(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    """It is neither empty nor full of ended claims, and the broker says how to make it."""
    problem = {"code": "unknown", "detail": "create it with PUT …/groups/g", "field": "group"}
    broker.fault = lambda call: None if "clock" in call.path else Fault(404, document=problem)
    stream = Stream(options_of, consumerGroup="g").begin()
    for call in (stream.plan, stream.reader.prepareForTriggerAvailableNow):
        with pytest.raises(RefusedError, match="404 unknown create it with PUT …/groups/g"):
            call()
    assert len(broker.calls) == 3


def test_some_columns_are_read_when_some_are_asked_for(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    fill(broker, 0, 1)
    schema = StructType([SOURCE_SCHEMA["headers"], SOURCE_SCHEMA["id"]])
    stream = Stream(options_of, schema).begin()
    end = stream.plan()
    (first, *_) = stream.reader.partitions(stream.start, end)
    (batch,) = stream.reader.read(first)
    assert batch.to_pylist() == [{"headers": [{"key": "h", "value": b"v"}], "id": "m000000"}]


def test_other_refusals_are_shown(broker: FakeBroker, options_of: OptionsOf) -> None:
    fill(broker, 0, 1)
    stream = Stream(options_of).begin()
    end = stream.plan()

    def refuse(call: Call) -> Fault:
        return Fault(403)

    broker.fault = refuse
    for call in (
        lambda: stream.read(end),
        lambda: stream.reader.commit(end),
        lambda: Stream(options_of).begin(),
        stream.reader.prepareForTriggerAvailableNow,
    ):
        with pytest.raises(RefusedError, match="403"):
            call()
    stream.now_s += 1_000
    with pytest.raises(RefusedError, match="403"):
        stream.plan()


def test_a_stream_reads_one_topic(options_of: OptionsOf) -> None:
    with pytest.raises(OptionError, match="option topic: missing"):
        Stream(options_of, topic="")
