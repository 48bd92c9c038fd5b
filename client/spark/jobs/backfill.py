"""Loads parquet, CSV or JSON into a topic.

Each column of a message is an SQL expression over the input, by default the column of the same
name; the default value is the whole row as JSON. The load is one atomic transaction, named after
the input files (path, size, modification time), the topic and the expressions. So a repeated load
adds nothing, and reports this.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from contextlib import closing
from functools import partial
from typing import Any, Final

from pyspark_delaylog.errors import JobError
from pyspark_delaylog.field_table import FIELD_TYPES
from pyspark_delaylog.jobs.progress import progress, rows_read
from pyspark_delaylog.jobs.session import (
    add_connection_arguments,
    connection_options,
    pairs_of,
)
from pyspark_delaylog.options import Options

HELP: Final = "load parquet, CSV or JSON into a topic; may be run again"
_FORMATS: Final = ("parquet", "csv", "json")
_ENDS: Final = {"csv": (".csv",), "json": (".json", ".jsonl", ".ndjson")}
"""The ends of names, before `.gz`; others are of parquet."""
_COLUMNS: Final = ("value", "deliver_at", "topic", *FIELD_TYPES)
_SCALARS: Final = frozenset({"string", "int", "bigint", "double"})
"""Types to which a column is cast. An array or a struct must have its type already."""
_READING: Final = {
    "csv": {
        "header": "true",
        "inferSchema": "true",
        # Quotes are doubled inside quotes (RFC 4180); Spark's default is a backslash.
        "escape": '"',
        "mode": "FAILFAST",
        # Otherwise Spark parses only the columns used in expressions and misses bad lines.
        "columnPruning": "false",
    },
    "json": {"mode": "FAILFAST"},
}
"""By default Spark turns a line that it cannot parse into a row of nulls, which would be sent."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for input and output."""
    parser.add_argument("input", nargs="+", help="files or folders, with patterns")
    add_connection_arguments(parser, "the broker's address", required=True)
    parser.add_argument("--namespace", metavar="NAME")
    parser.add_argument("--topic", metavar="NAME", help="(or a column of that name)")
    parser.add_argument("--format", choices=_FORMATS, help="of the input (default: by its name)")
    for name, what in (
        ("value", "the body (default: the column value, or the row as JSON)"),
        ("deliver-at", "due time: a timestamp, its text, or Unix milliseconds"),
        *((name.replace("_", "-"), kind) for name, kind in FIELD_TYPES.items()),
    ):
        parser.add_argument(f"--{name}", metavar="SQL", help=what)
    parser.add_argument("--delay-ms", type=int, metavar="MS", help="due after this time from now")
    parser.add_argument("--where", metavar="SQL", help="only these rows")
    parser.add_argument("--txn-app-id", metavar="ID", help="name of the transaction")
    for name, what in (("reader", "the input's format"), ("sink", "the format delaylog")):
        parser.add_argument(
            f"--{name}-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"an option of {what}; may be repeated",
        )


def run(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Run the load. Returns a summary."""
    from pyspark.errors import AnalysisException

    check_broker(args)
    kind = args.format or _format_of(args.input)
    reading = {**_READING.get(kind, {}), **pairs_of(args.reader_option, "an option is")}
    try:
        frame = spark.read.format(kind).options(**reading).load(args.input)
        named = args.txn_app_id or transaction_name(spark, frame, args)
        messages = map_columns(frame.where(args.where) if args.where else frame, args)
    except AnalysisException as error:
        raise JobError(str(error).strip().partition("\n")[0]) from None
    sink = _sink_options(args, named)
    options = Options.parse(sink)
    begun = time.monotonic()
    before = _committed_rows(options)
    rows = 0
    # A name that was made of the input says that it is the same; for another one the sink
    # compares the rows, and fails if they are other data.
    if before is None or args.txn_app_id:
        so_far = partial(_rows_so_far, options) if options.staged else rows_read(spark)
        with progress(spark, "backfill", so_far):
            rows = _load(messages, sink, options)
    return {
        "job": "backfill",
        "transaction": options.txn_app_id,
        "topic": options.topic,
        "rows": rows if before is None else 0,
        "loaded_before": before or 0,
        "seconds": round(time.monotonic() - begun, 2),
    }


def check_broker(args: argparse.Namespace) -> None:
    """Check address, token and rights before anything is read of the input."""
    from pyspark_delaylog.broker_http import BrokerHttp, check_may_send

    options = Options.parse(_sink_options(args, args.txn_app_id or "unnamed"))
    with closing(BrokerHttp(options)) as http:
        check_may_send(http, options)


def _load(messages: Any, sink: dict[str, str], options: Options) -> int:
    """Send the messages. Returns the number of rows, for a transaction as the broker reports."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    seen = Observation("rows")
    observed = messages.observe(seen, sql.count(sql.lit(1)).alias("rows"))
    observed.write.format("delaylog").mode("append").options(**sink).save()
    rows = _committed_rows(options)
    return int(seen.get["rows"]) if rows is None else rows


def _committed_rows(options: Options) -> int | None:
    """The rows of the load's transaction; None if it is not committed or delivery is direct."""
    from pyspark_delaylog.transactions import COMMITTED

    found = _last_run(options)
    return int(found["rows"]) if found is not None and found["state"] == COMMITTED else None


def _rows_so_far(options: Options) -> int | None:
    """The rows that tasks have staged, those of failed attempts too."""
    found = _last_run(options)
    return None if found is None else int(found["rows"])


def _last_run(options: Options) -> dict[str, Any] | None:
    """The committed transaction of the load, or else its last one."""
    from pyspark_delaylog.broker_http import BrokerHttp
    from pyspark_delaylog.transactions import Transactions

    if not options.staged:
        return None
    assert options.txn_app_id is not None, "a load has a name"
    with closing(BrokerHttp(options)) as http:
        return Transactions(options, http).last_run(options.txn_app_id)


def _sink_options(args: argparse.Namespace, named: str) -> dict[str, str]:
    more = pairs_of(args.sink_option, "an option is")
    if "token" in map(str.lower, more):
        raise JobError(
            "--sink-option token: every user of this machine sees the arguments of a command; use "
            "--token-file or DELAYLOG_TOKEN"
        )
    found = {**connection_options(args), "txnAppId": named}
    for name, value in (
        ("topic", args.topic),
        ("namespace", args.namespace),
        ("delayMs", args.delay_ms),
    ):
        if value is not None:
            found[name] = str(value)
    return {**found, **more}


def map_columns(frame: Any, args: argparse.Namespace) -> Any:
    """Map the columns of the input to those of messages. Raises JobError."""
    from pyspark.sql import functions as sql

    said = {name: getattr(args, name, None) for name in _COLUMNS if name != "topic"}
    there = set(frame.columns)
    columns = {}
    for name in _COLUMNS:
        if name == "topic" and args.topic:
            continue
        expression = said.get(name)
        if expression is not None:
            columns[name] = sql.expr(expression)
        elif name in there:
            columns[name] = sql.col(f"`{name}`")
        elif name == "value":
            columns[name] = sql.to_json(
                sql.struct(*(sql.col(f"`{each}`") for each in frame.columns))
            )
    if args.delay_ms is not None:
        columns.pop("deliver_at", None)
    elif "deliver_at" not in columns:
        raise JobError(
            "say when messages are due: --deliver-at or --delay-ms; the input has the columns "
            + ", ".join(frame.columns)
        )
    found = frame.select(*(column.alias(name) for name, column in columns.items()))
    kinds = dict(found.dtypes)
    if kinds.get("deliver_at") in ("bigint", "int"):
        found = found.withColumn(
            "deliver_at", sql.timestamp_millis(found.deliver_at.cast("bigint"))
        )
    elif "deliver_at" in kinds:
        found = _cast(found, "deliver_at", kinds, "timestamp")
    if kinds["value"] != "binary":
        found = _cast(found, "value", kinds, "string")
    for name, kind in (("topic", "string"), *FIELD_TYPES.items()):
        # A null without a type takes any.
        if name in kinds and (kind in _SCALARS or kinds[name] == "void"):
            found = _cast(found, name, kinds, kind)
    return found


def _cast(frame: Any, name: str, kinds: dict[str, str], kind: str) -> Any:
    """The frame with a column cast. Text that has no such value is an error of column and row."""
    from pyspark.sql import functions as sql

    column = frame[name]
    if kinds[name] == kind:
        return frame
    if kinds[name] != "string":
        return frame.withColumn(name, column.cast(kind))
    row, shown = (" of the row with id %s", [frame.id]) if "id" in kinds else ("", [])
    said = sql.format_string(
        f"column {name!r}{row}: '%s' cannot be read as {kind}; correct such rows, or convert them "
        f"by SQL in --{name.replace('_', '-')}",
        *shown,
        column,
    )
    cast = column.try_cast(kind)
    wrong = column.isNotNull() & cast.isNull()
    return frame.withColumn(name, sql.when(wrong, sql.raise_error(said)).otherwise(cast))


def transaction_name(spark: Any, frame: Any, args: argparse.Namespace) -> str:
    """The name of the load: equal for equal files, topic and arguments."""
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    files = []
    for name in sorted(frame.inputFiles()):
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(name))
        status = path.getFileSystem(conf).getFileStatus(path)
        files.append([name, status.getLen(), status.getModificationTime()])
    if not files:
        raise JobError("the input contains no files")
    return name_of(files, args)


def name_of(files: list[list[Any]], args: argparse.Namespace) -> str:
    """The name of the load of files, each as [URL, size, modification time]."""
    given = {name: getattr(args, name) for name in (*_COLUMNS, "namespace", "delay_ms", "where")}
    words = {name: said for name, said in given.items() if said is not None}
    options = [args.format, sorted(args.reader_option)]
    text = json.dumps([files, words, options], sort_keys=True)
    return "backfill-" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _format_of(names: list[str]) -> str:
    for kind, ends in _ENDS.items():
        if all(name.lower().rstrip("/").removesuffix(".gz").endswith(ends) for name in names):
            return kind
    return "parquet"
