"""The sinks against a broker, without Spark: tasks, retries, re-runs, commits and aborts.

Tasks are played by setting what Spark would say of them; a second writer of the same options plays
a second run, and one of the same pickled state a task elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyspark_delaylog import tasks, writers
from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import (
    OptionError,
    PartialLoadError,
    RefusedError,
    TransactionError,
)
from pyspark_delaylog.options import Options
from pyspark_delaylog.source import DelaylogSource
from pyspark_delaylog.transactions import Transactions
from pyspark_delaylog.writers import DelaylogBatchWriter, DelaylogStreamWriter
from tests.client.spark.batches import TIME, batch_of, ids_of
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker, FakeTransaction
from tests.client.spark.misbehaving_server import Call, Fault
from tests.client.spark.task_context import SCHEMA, Spark, run_task


def failing(*batches: Any) -> Iterator[Any]:
    yield from batches
    raise RuntimeError("the task dies")


def batch_writer(options: Options) -> DelaylogBatchWriter:
    return DelaylogBatchWriter(options, SCHEMA)


def test_staged_rows_are_seen_at_the_commit_and_not_before(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of(batchSize=2, namespace="n"))
    messages = [
        run_task(writer, spark, part, 10 + part, [batch_of(ids_of(part * 5, part * 5 + 5))])
        for part in range(3)
    ]
    assert broker.sent == {}
    writer.commit([*messages])
    assert sorted(row["id"] for row in broker.rows("t", "n")) == ids_of(0, 15)
    assert {call.query["ns"] for call in broker.called("POST", "/parts")} == {"n"}


def test_a_repeated_task_counts_once(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of(batchSize=2))
    with pytest.raises(RuntimeError):
        run_task(writer, spark, 0, 1, failing(batch_of(ids_of(0, 4))))
    message = run_task(writer, spark, 0, 2, [batch_of(ids_of(3, 6)), batch_of(ids_of(0, 3))])
    writer.commit([message])
    assert sorted(broker.ids("t")) == ids_of(0, 6)
    assert broker.discarded == 4


def test_a_failed_load_leaves_nothing_and_its_name_is_used_again(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    options = options_of(txnAppId="load-7")
    writer = batch_writer(options)
    message = run_task(writer, spark, 0, 1, [batch_of(ids_of(0, 3))])
    writer.abort([message, None])
    assert broker.transactions["load-7"].state == "aborted"
    again = batch_writer(options)
    again.commit([run_task(again, spark, 0, 1, [batch_of(ids_of(0, 3))])])
    assert broker.ids("t") == ids_of(0, 3)
    assert broker.transactions["load-7.r1"].state == "committed"
    with pytest.raises(TransactionError, match="has ended"):
        run_task(writer, spark, 1, 2, [batch_of(ids_of(3, 4))])


def test_the_same_name_again_adds_nothing(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    options = options_of(txnAppId="load-7")
    for _ in range(2):
        writer = batch_writer(options)
        message = run_task(writer, spark, 0, 1, [batch_of(ids_of(0, 3))])
        writer.commit([message])
    assert broker.ids("t") == ids_of(0, 3)
    writer = batch_writer(options)
    with pytest.raises(RuntimeError):
        run_task(writer, spark, 0, 1, failing())
    writer.abort([])
    assert broker.transactions["load-7"].state == "committed"


def test_a_load_is_not_failed_by_counts_that_cannot_be_read(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark, caplog: pytest.LogCaptureFixture
) -> None:
    """It is committed by then; only who asked to wait has to know."""
    broker.fault = lambda call: Fault(500) if call.method == "GET" and "tra" in call.path else None
    for number, given in enumerate(({}, {"wait": "published"})):
        writer = batch_writer(options_of(topic=f"t{number}", **given))
        message = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
        if given:
            with pytest.raises(RefusedError, match="500"):
                writer.commit([message])
        else:
            writer.commit([message])
            assert "is committed, but its counts are unknown" in caplog.text
        assert broker.ids(f"t{number}") == ids_of(0, 3)


def test_a_partial_load_fails_if_asked_to(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark, caplog: pytest.LogCaptureFixture
) -> None:
    broker.kept = 2
    for given in ({}, {"failOnPartial": "true"}):
        writer = batch_writer(options_of(**given))
        message = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
        if given:
            with pytest.raises(PartialLoadError, match="1 of 3 rows added; 2 kept"):
                writer.commit([message])
        else:
            writer.commit([message])
            assert "1 of 3 rows added; 2 kept" in caplog.text


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (batch_of(ids_of(0, 2)), "with 3 rows, but this DataFrame has 2"),
        (batch_of(ids_of(1, 4)), "with other ids"),
        (batch_of(ids_of(0, 3)).drop_columns(["id"]), "with other ids"),
    ],
)
def test_the_same_name_for_other_data_is_refused(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark, batch: Any, what: str
) -> None:
    """Rows in another order, in other tasks and with other times are the same data."""
    options = options_of(txnAppId="load-7")
    writer = batch_writer(options)
    writer.commit([run_task(writer, spark, 0, 1, [batch_of(ids_of(0, 3))])])
    again = batch_writer(options)
    late = pa.array([1_900_000_000_000_000] * 2, pa.int64()).cast(TIME)
    parts = [batch_of(ids_of(2, 3)), batch_of(["m000001", "m000000"], deliver_at=late)]
    again.commit([run_task(again, spark, n, 9, [part]) for n, part in enumerate(parts)])
    other = batch_writer(options)
    with pytest.raises(TransactionError, match=f"load-7 was committed before {what}"):
        other.commit([run_task(other, spark, 0, 1, [batch])])
    assert broker.ids("t") == ids_of(0, 3)


def test_another_run_of_the_same_driver_s_numbers_does_not_mix_in(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    """A driver that died left its parts; the numbers of attempts begin again with the next one."""
    options = options_of(txnAppId="load-7")
    run_task(batch_writer(options), spark, 0, 0, [batch_of(ids_of(0, 3))])
    writer = batch_writer(options)
    message = run_task(writer, spark, 0, 0, [batch_of(ids_of(1, 4))])
    writer.commit([message])
    assert broker.ids("t") == ids_of(1, 4)
    assert broker.discarded == 3


def test_a_lost_answer_of_the_commit_is_asked_for_again(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    lost: list[Call] = []

    def lose_first(call: Call) -> Fault | None:
        if call.path.endswith("/commit") and not lost:
            lost.append(call)
            return Fault(lose_answer=True)
        return None

    broker.fault = lose_first
    writer = batch_writer(options_of())
    writer.commit([run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])])
    assert len(broker.called("POST", "/commit")) == 2
    assert broker.ids("t") == ids_of(0, 3)


def test_busy_brokers_and_lost_answers_lose_and_double_nothing(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    def meet(call: Call) -> Fault | None:
        number = len(broker.calls)
        if number % 7 == 0:
            return Fault(503, {"Retry-After": "0"})
        return Fault(lose_answer=True) if number % 5 == 0 else None

    broker.fault = meet
    for given in ({}, {"delivery": "direct", "topic": "d"}):
        writer = batch_writer(options_of(batchSize=1, **given))
        messages = [
            run_task(writer, spark, part, part, [batch_of(ids_of(part * 20, part * 20 + 20))])
            for part in range(2)
        ]
        writer.commit([*messages])
        assert sum(message.repeats for message in messages) > 0
        assert sorted(broker.ids(given.get("topic", "t"))) == ids_of(0, 40)


def test_what_another_run_has_committed_meanwhile_is_left_at_that(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    options = options_of(txnAppId="load-7")
    first, second = batch_writer(options), batch_writer(options)
    early = run_task(second, spark, 1, 5, [batch_of(ids_of(3, 6))])
    first.commit([run_task(first, spark, 0, 0, [batch_of(ids_of(0, 6))])])
    late = run_task(second, spark, 0, 4, [batch_of(ids_of(0, 3))])
    assert (early.state, late.state) == ("open", "committed")
    second.commit([late, early])
    assert broker.ids("t") == ids_of(0, 6)


@pytest.mark.parametrize("of_first", [ids_of(0, 3), ids_of(3, 6), ids_of(0, 5)])
def test_runs_of_one_name_that_commit_at_once_are_compared(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark, of_first: list[str]
) -> None:
    """All tasks are done before either run commits, so only the second commit can notice."""
    options = options_of(txnAppId="load-7")
    first, second = batch_writer(options), batch_writer(options)
    theirs = run_task(first, spark, 0, 0, [batch_of(of_first)])
    ours = run_task(second, spark, 0, 0, [batch_of(ids_of(0, 3))])
    first.commit([theirs])
    # The second one of other data is another try of a scheduler: it must not pass either.
    for writer, message in ((second, ours), (batch_writer(options), None)):
        given = message or run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
        if of_first == ids_of(0, 3):
            writer.commit([given])
        else:
            with pytest.raises(TransactionError, match="load-7 was committed before with"):
                writer.commit([given])
    assert broker.ids("t") == of_first


def test_a_transaction_that_expired_says_which_option_helps(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of(txnAppId="slow"))
    message = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
    broker.expire("slow")
    with pytest.raises(TransactionError, match=r"ended \(expired\).*txnTtlMs"):
        run_task(writer, spark, 1, 1, [batch_of(ids_of(3, 6))])
    with pytest.raises(TransactionError, match=r"cannot be committed.*no row is visible"):
        writer.commit([message])


def test_a_commit_that_is_not_complete_is_refused(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of())
    message = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
    message.rows += 1
    with pytest.raises(TransactionError, match="part 0 has 3 rows"):
        writer.commit([message])
    with pytest.raises(TransactionError, match="no commit message"):
        writer.commit([message, None])
    assert broker.sent == {}


def test_an_empty_load_is_a_commit_of_nothing(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of(txnAppId="empty"))
    writer.commit([run_task(writer, spark, 0, 0, [])])
    assert broker.transactions["empty"].state == "committed"
    assert broker.called("POST", "/commit")[0].shape == {"winners": []}


def test_a_name_that_fails_for_ever_is_given_up(
    broker: FakeBroker, options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_delaylog.transactions.RUNS_MAX", 2)
    options = options_of(txnAppId="x")
    for _ in range(2):
        batch_writer(options).abort([])
    with pytest.raises(TransactionError, match="2 transactions of the name x"):
        batch_writer(options)


def test_a_broker_without_transactions_says_what_to_do(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    broker.fault = lambda call: Fault(404) if "transactions" in call.path else None
    with pytest.raises(TransactionError, match=r"does not support transactions.*delivery=direct"):
        batch_writer(options_of())


def test_direct_rows_are_seen_at_once_and_stay(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of(delivery="direct", batchSize=2))
    with pytest.raises(RuntimeError):
        run_task(writer, spark, 0, 1, failing(batch_of(ids_of(0, 4))))
    assert broker.ids("t") == ids_of(0, 4)
    writer.abort([None])
    assert broker.ids("t") == ids_of(0, 4)
    assert broker.transactions == {}


def test_direct_rows_that_are_placed_differently_are_not_taken_for_others(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    """A repeated task may hold its rows in another order: no row may be lost by that."""
    writer = batch_writer(options_of(delivery="direct", batchSize=2))
    run_task(writer, spark, 0, 1, [batch_of(ids_of(0, 2))])
    run_task(writer, spark, 0, 2, [batch_of(ids_of(0, 2)), batch_of(ids_of(2, 4))])
    assert broker.deduplicated == 2, "by its key"
    run_task(writer, spark, 0, 3, [batch_of(ids_of(1, 5))])
    assert sorted(broker.ids("t")) == ids_of(0, 5), "by their ids"
    writer.commit([None])


def test_a_delay_is_the_same_for_a_repeated_task(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of(delayMs=1_000))
    batch = pa.record_batch({"value": ["x"]})
    run_task(writer, spark, 0, 1, [batch])
    writer.commit([run_task(writer, spark, 0, 2, [batch])])
    bodies = {call.body for call in broker.called("POST", "/parts")}
    assert len(bodies) == 1
    assert broker.rows("t")[0]["deliver_at"].year >= 2024


def test_outside_of_a_task_nothing_is_written(
    options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TransactionError, match="outside of a Spark task"):
        batch_writer(options_of()).write(iter([]))


# The format


def test_the_format_hands_out_its_parts(broker: FakeBroker) -> None:
    source = DelaylogSource({"endpoint": broker.url, "topic": "t"})
    assert DelaylogSource.name() == "delaylog"
    assert "value" in source.schema().fieldNames()
    assert isinstance(source.writer(SCHEMA, False), DelaylogBatchWriter)
    assert isinstance(source.streamWriter(SCHEMA, False), DelaylogStreamWriter)
    source.streamReader(source.schema())
    with pytest.raises(OptionError, match=r"mode\(\"append\"\)"):
        source.writer(SCHEMA, True)
    with pytest.raises(OptionError, match=r"outputMode\(\"append\"\)"):
        source.streamWriter(SCHEMA, True)
    with pytest.raises(OptionError, match=r"use spark\.readStream"):
        source.reader(SCHEMA)


def test_an_abort_that_fails_hides_nothing(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = batch_writer(options_of(txnAppId="x"))
    broker.fault = lambda call: Fault(500)
    writer.abort([])
    broker.fault = lambda call: None
    Transactions(options_of(), writers.BrokerHttp(options_of())).abort("never begun")


# Micro-batches


def states(broker: FakeBroker) -> dict[str, str]:
    return {name: each.state for name, each in broker.transactions.items()}


def stream_writer(options: Options) -> DelaylogStreamWriter:
    return DelaylogStreamWriter(options, SCHEMA)


def test_a_micro_batch_is_a_transaction_of_its_query_and_number(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer, committer = stream_writer(options_of()), stream_writer(options_of())
    for number in range(2):
        spark.properties[tasks.BATCH_ID] = str(number)
        ids = ids_of(number * 3, number * 3 + 3)
        committer.commit([run_task(writer, spark, 0, number, [batch_of(ids)])], number)
    assert states(broker) == {"q.0": "committed", "q.1": "committed"}
    assert broker.ids("t") == ids_of(0, 6)


def test_a_batch_that_was_committed_is_not_sent_again(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    """The driver died between the broker's commit and its own note of it."""
    for _ in range(2):
        writer = stream_writer(options_of(txnAppId="app"))
        stream_writer(options_of()).commit(
            [run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])], 0
        )
    assert list(broker.transactions) == ["app.0"]
    assert broker.ids("t") == ids_of(0, 3)
    assert len(broker.called("POST", "/parts")) == 1


def test_a_batch_that_failed_goes_on_as_another_run(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = stream_writer(options_of())
    message = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
    stream_writer(options_of()).abort([message, None], 0)
    again = stream_writer(options_of())
    message = run_task(again, spark, 0, 0, [batch_of(ids_of(0, 3))])
    again.commit([message], 0)
    again.abort([message], 0)
    assert states(broker) == {"q.0": "aborted", "q.0.r1": "committed"}
    assert broker.ids("t") == ids_of(0, 3)


def test_tasks_that_met_different_runs_are_not_committed(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = stream_writer(options_of())
    first = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
    broker.expire("q.0")
    second = run_task(writer, spark, 1, 1, [batch_of(ids_of(3, 6))])
    with pytest.raises(TransactionError, match=r"q\.0, q\.0\.r1.*txnTtlMs"):
        writer.commit([first, second], 0)
    assert broker.sent == {}


def test_an_empty_micro_batch_asks_nothing(broker: FakeBroker, options_of: OptionsOf) -> None:
    stream_writer(options_of()).commit([], 3)
    assert broker.calls == []


@pytest.mark.parametrize("name", [tasks.QUERY_ID, tasks.BATCH_ID])
def test_a_spark_that_does_not_say_the_batch_is_refused(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark, name: str
) -> None:
    spark.properties[name] = None
    with pytest.raises(TransactionError, match="not supported by the streaming sink"):
        run_task(stream_writer(options_of()), spark, 0, 0, [])


def test_a_stream_may_be_direct_and_relative(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = stream_writer(options_of(delivery="direct", delayMs=5))
    message = run_task(writer, spark, 0, 0, [pa.record_batch({"value": ["x"]})])
    assert len(broker.rows("t")) == 1
    writer.commit([message], 0)
    writer.abort([message], 0)


@pytest.mark.parametrize(
    ("there", "last"),
    [
        ({}, None),
        ({"load": "open"}, "load"),
        ({"load": "committed"}, "load"),
        ({"load": "aborted"}, "load"),
        ({"load": "aborted", "load.r1": "expired", "load.r2": "committed"}, "load.r2"),
        ({"load": "expired", "load.r1": "open"}, "load.r1"),
        ({"load.r1": "committed"}, None),
    ],
)
def test_the_last_run_of_a_load(
    broker: FakeBroker, options_of: OptionsOf, there: dict[str, str], last: str | None
) -> None:
    """As `begin` looks for it: the last line is of a name that was forgotten, and begins anew."""
    broker.transactions = {name: FakeTransaction(state, 7) for name, state in there.items()}
    options = options_of()
    transactions = Transactions(options, BrokerHttp(options))
    found = transactions.last_run("load")
    assert (found and found["transaction"]) == last
    assert sorted(broker.transactions) == sorted(there)
    begun = transactions.begin("load")
    assert (begun.state == "committed") == ("committed" in there.values() and last is not None)


def test_another_refusal_is_shown(broker: FakeBroker, options_of: OptionsOf) -> None:
    broker.fault = lambda call: Fault(403)
    options = options_of()
    with pytest.raises(RefusedError, match="403"):
        Transactions(options, BrokerHttp(options)).last_run("load")
