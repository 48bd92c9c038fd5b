"""The Spark sinks against a durable broker, beside what this machine's Spark does by itself.

One session and one parquet stand behind all figures of a run: `noop` reads it and drops the rows,
the batch sink stages them, the streaming sink takes them in micro-batches, and a foreachPartition
that posts JSON, as one writes it without a sink, sends some of them. Then a load is staged whose
commit the bench asks for itself, with a probe of deliveries beside it. pyspark is imported by what
is called here only, and needs an environment that has it.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import transactions
from broker_process import Brokers, ServerProcess
from procfs import tree_cpu_seconds
from settings import BODY_BYTES, Settings
from spark_rows import FILES, spark_session, write_rows
from tables import Column, Table, at_least, median, microseconds, rate, seconds, span, times

SINK_ROWS_A_S: Final = 300_000
STREAM_ROWS_A_S: Final = 100_000
AUDIT_ROWS_A_S: Final = 500_000
BATCH_SIZES: Final = (10_000, 50_000)
MICRO_BATCHES: Final = 4
JSON_ROWS_A_CALL: Final = 1_000
JSON_SHARE: Final = 20
"""One row in so many goes by JSON: it is some forty times slower."""

_COLUMNS: Final = [
    Column("rows", "rows", rate),
    Column("best s", "best_s", seconds),
    Column("rows/s", "rate", rate),
    Column("least - most", "span", span),
    Column("of noop", "of_noop", times),
    Column("of JSON", "of_json", times),
    Column("broker CPU us/row", "server_us", microseconds),
    Column("Python and JVM CPU us/row", "client_us", microseconds),
]


def measure(brokers: Brokers, settings: Settings) -> Iterator[Table]:
    """A table of the sinks and the audit, then one of a large load and its commit."""
    with brokers.folder() as folder, spark_session() as spark:
        path = write_rows(folder / "rows", settings.spark_rows)
        with brokers.on(folder) as broker:
            yield Bench(spark, broker, folder, path, settings).table()
        with brokers.fresh() as broker:
            yield backfill(spark, broker, folder, settings)


class Bench:
    """The cases of the first table, all on one broker."""

    def __init__(
        self, spark: Any, broker: ServerProcess, folder: Path, path: str, settings: Settings
    ) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder
        self._path = path
        self._settings = settings
        self._url = f"http://127.0.0.1:{broker.port}"
        self._runs = 0

    def table(self) -> Table:
        """All of them, the slow ones once."""
        rows, runs = self._settings.spark_rows, self._settings.spark_runs
        table = Table(
            f"spark: {rate(rows)} rows of {BODY_BYTES} B in {FILES} parquet files, "
            f"best of {runs} runs in one session, broker and Spark on the same cores",
            _COLUMNS,
        )
        self._warm_up()
        found: list[tuple[str, dict[str, Any], float | None]] = []
        found.append(("noop", self._case(self._noop, rows, runs), None))
        for ids in (False, True):
            for size in BATCH_SIZES:
                name = f"sink, {size:,} a request, {'ids' if ids else 'no ids'}"
                case = self._case(lambda ids=ids, size=size: self._sink(size, ids=ids), rows, runs)
                found.append((name, case, SINK_ROWS_A_S))
        streamed = self._case(self._stream, rows, runs)
        found.append((f"stream, {MICRO_BATCHES} micro-batches", streamed, STREAM_ROWS_A_S))
        write_rows(self._folder / "few", rows // JSON_SHARE)
        by_json = self._case(self._json, rows // JSON_SHARE, runs)
        found.append(("foreachPartition + JSON", by_json, None))
        audited, audit_rows = self._audit_case()
        for name, figures, target in found:
            figures["of_noop"] = figures["rate"] / found[0][1]["rate"]
            figures["of_json"] = figures["rate"] / by_json["rate"]
            targets = [at_least(figures["rate"], target, rate(target))] if target else []
            table.add(name, figures, targets)
        target = at_least(audited["rate"], AUDIT_ROWS_A_S, rate(AUDIT_ROWS_A_S))
        table.add("audit by index", audited, [target])
        table.notes.append(f"The audit is of all {rate(audit_rows)} messages that were loaded.")
        return table

    def _case(self, run: Callable[[], None], rows: int, runs: int) -> dict[str, Any]:
        took: list[float] = []
        server_us, client_us = [], []
        for _ in range(runs):
            self._runs += 1
            server_s, client_s, began = self._broker.cpu_seconds(), _our_cpu_s(self._broker), _now()
            run()
            took.append(_now() - began)
            client_us.append((_our_cpu_s(self._broker) - client_s) / rows * 1e6)
            # What it does afterwards (publication, index) is part of what a row costs.
            self._broker.settle(limit_s=self._settings.settle_s)
            server_us.append((self._broker.cpu_seconds() - server_s) / rows * 1e6)
        rates = sorted(rows / each for each in took)
        return {
            "rows": rows,
            "best_s": min(took),
            "rate": rates[-1],
            "span": rates,
            "server_us": median(server_us),
            "client_us": median(client_us),
        }

    def _frame(self, *, ids: bool = True) -> Any:
        frame = self._spark.read.parquet(self._path)
        return frame if ids else frame.drop("id")

    def _noop(self) -> None:
        self._frame().write.format("noop").mode("overwrite").save()

    def _sink(self, size: int, *, ids: bool) -> None:
        writer = self._frame(ids=ids).write.format("delaylog").mode("append")
        topic = f"ids-{self._runs}" if ids else "sink"
        writer.options(endpoint=self._url, topic=topic, batchSize=size).save()

    def _stream(self) -> None:
        frame = (
            self._spark.readStream.schema(self._frame().schema)
            .option("maxFilesPerTrigger", FILES // MICRO_BATCHES)
            .parquet(self._path)
        )
        writer = frame.drop("id").writeStream.format("delaylog")
        place = self._folder / f"checkpoint-{self._runs}"
        query = (
            writer.options(endpoint=self._url, topic="stream", batchSize=BATCH_SIZES[-1])
            .option("checkpointLocation", str(place))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _json(self) -> None:
        url = f"{self._url}/v1/topics/json-{self._runs}/messages"
        frame = self._spark.read.parquet(str(self._folder / "few"))
        frame.foreachPartition(lambda rows: post_json(url, rows))

    def _warm_up(self) -> None:
        """First Python worker, first hour files, the classes that Spark loads late."""
        self._noop()
        frame = self._frame(ids=False).limit(self._settings.spark_rows // 10)
        for _ in range(2):
            writer = frame.write.format("delaylog").mode("append")
            writer.options(endpoint=self._url, topic="warm-up").save()
        self._broker.settle(limit_s=self._settings.settle_s)

    def _audit_case(self) -> tuple[dict[str, Any], int]:
        """The scan of the indexes that all of the audit's tables are made of."""
        from pyspark_delaylog.jobs.audit import scan

        data = str(self._folder / "data")
        rows = 0

        def count() -> None:
            nonlocal rows
            cells = scan(self._spark, {"path": data}).selectExpr("sum(messages) as n")
            rows = int(cells.first()["n"])

        # The first run is the warm-up: of many times the rows of the other cases.
        count()
        return self._case(count, rows, 1), rows


def post_json(url: str, rows: Iterator[Any]) -> None:
    """What one writes without a sink: rows to JSON, and a call for each thousand."""
    import base64

    import requests

    with requests.Session() as session:
        held: list[dict[str, Any]] = []

        def send() -> None:
            session.post(url, data=json.dumps(held), timeout=60).raise_for_status()
            held.clear()

        for row in rows:
            due_ms = int(row.deliver_at.timestamp() * 1000)
            body = base64.b64encode(row.value).decode()
            held.append({"body": body, "deliver_at_ms": due_ms, "id": row.id})
            if len(held) == JSON_ROWS_A_CALL:
                send()
        if held:
            send()


def backfill(spark: Any, broker: ServerProcess, folder: Path, settings: Settings) -> Table:
    """A large load in one transaction, and what its commit does to deliveries beside it."""
    from held_sink import WINNERS_FILE, HeldSource

    rows = settings.transaction_rows
    spark.dataSource.register(HeldSource)
    path, winners = write_rows(folder / "backfill", rows), folder / "winners.json"
    table = transactions.commit_table(f"spark backfill: {rate(rows)} rows of {BODY_BYTES} B")
    transactions.warm_up(broker.port)
    server_s, client_s, began = broker.cpu_seconds(), _our_cpu_s(broker), _now()
    (
        spark.read.parquet(path)
        .drop("id")
        .write.format(HeldSource.name())
        .mode("append")
        .options(endpoint=f"http://127.0.0.1:{broker.port}", topic="staged")
        .options(txnAppId=transactions.TRANSACTION, batchSize=BATCH_SIZES[-1])
        .option(WINNERS_FILE, str(winners))
        .save()
    )
    took_s = _now() - began
    staged = transactions.work(broker, rows, server_s, took_s)
    staged["client_us"] = (_our_cpu_s(broker) - client_s) / rows * 1e6
    # Load generators are forked: what they inherit of py4j must not be collected, and told the JVM.
    gc.collect()
    gc.freeze()
    table.add("stage", staged, [at_least(staged["rate"], SINK_ROWS_A_S, rate(SINK_ROWS_A_S))])
    transactions.commit_beside_probe(table, broker, rows, json.loads(winners.read_text()))
    return table


def _our_cpu_s(broker: ServerProcess) -> float:
    """Of the JVM and the Python workers: all that descends from here but the broker."""
    return tree_cpu_seconds(os.getpid(), but=broker.process_id)


def _now() -> float:
    return time.monotonic()
