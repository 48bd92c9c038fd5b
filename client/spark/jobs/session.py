"""The Spark session of a job, that of spark-submit or a new local one; and how jobs reach a broker.

A job takes no token as an argument, because every user of the machine could see it: the token comes
from a file or from the environment, which the tasks of a session on this machine inherit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark_delaylog.endpoints import URL
from pyspark_delaylog.errors import JobError

_OURS: Final = {
    # Times are parsed and printed in UTC, as by the broker.
    "spark.sql.session.timeZone": "UTC",
    # Spark's default, INT96, has no statistics, and Iceberg refuses it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Aggregates are small; Spark's default of 200 tasks would dominate the run time.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
_LOCAL_MASTER: Final = "local[*,4]"
"""Tasks get four attempts, as on a cluster; plain local[*] fails at the first error."""


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say where the job runs."""
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", help="of the cluster (default: this machine)")
    spark.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )


def pairs_of(pairs: list[str], what: str) -> dict[str, str]:
    """Parse texts NAME=VALUE. The JobError of another one begins by `what`."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise JobError(f"{what} NAME=VALUE, not {pair!r}")
        found[name] = value
    return found


@contextmanager
def open_session(args: argparse.Namespace) -> Iterator[Any]:
    """Open a session; stop it at the end if it was created here. JobError without Java."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        _check_java()
        # Otherwise workers run the first python3 on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    builder = SparkSession.builder.appName(f"delaylog {args.job}")
    settings = dict(_OURS)
    if not submitted and there is None:
        settings |= _LOCAL
        builder = builder.master(args.master or _LOCAL_MASTER)
    elif args.master:
        raise JobError("with spark-submit, give --master to spark-submit")
    settings |= pairs_of(args.conf, "--conf takes")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not submitted and there is None:
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        if there is None:
            spark.stop()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (os.access(f"{home}/bin/java", os.X_OK) if home else shutil.which("java")):
        raise JobError(
            "Spark needs Java 17 or newer, and there is none: "
            "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
        )


# --------------------------------------------------------- arguments of jobs that call a broker

_FILES: Final = (
    ("token-file", "tokenFile", "file of mode 0600 with the token"),
    ("ca-file", "caFile", "the authorities that may have signed the broker's certificate"),
    ("client-cert", "clientCert", "this client's certificate"),
    ("client-key", "clientKey", "its key, of mode 0600"),
)


def add_connection_arguments(parser: argparse.ArgumentParser, doc: str, *, required: bool) -> None:
    """Arguments for the address, the token and TLS; `doc` describes the broker."""
    needed = required and not os.environ.get(URL)
    text = f"{doc} (variable {URL})"
    parser.add_argument("--endpoint", required=needed, metavar="URL", help=text)
    for flag, _, what in _FILES:
        variable = f"DELAYLOG_{flag.replace('-', '_').upper()}"
        parser.add_argument(f"--{flag}", metavar="FILE", help=f"{what} (variable {variable})")
    parser.add_argument(
        "--insecure-plain-token",
        action="store_true",
        help="send the token over plain http to other machines",
    )


def connection_options(args: argparse.Namespace) -> dict[str, str]:
    """The options of the format `delaylog`."""
    found = {} if args.endpoint is None else {"endpoint": args.endpoint}
    for flag, option, _ in _FILES:
        path = getattr(args, flag.replace("-", "_"))
        if path is not None:
            found[option] = path
    if args.insecure_plain_token:
        found["insecurePlainToken"] = "true"
    return found
