"""`make demo-spark`: a year of flights from parquet through Spark and the broker, and an audit.

    python bench/demo_spark/run.py [--flights N] [--lead-s S] [--span-s 10] [--keep]
                                   [--picture FILE]

Every flight of 2013 becomes a reminder by the job `backfill`: one transaction, loaded twice, and
the second time adds nothing. A rehearsal with some of them tells how much time the load needs
before the first one is due. Two consumers receive and acknowledge them all, each at its time. Then
the job `audit` reads the data folder of the running broker. The exit status is 0 only if what was
in the parquet, what was received and what the files say are the same, each once and none early. A
picture shows the load to come and the lateness.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from consuming import Arrivals, Deadline, consume
from flights_parquet import FlightsMissing, write_flights
from picture import DAYS, Year, read_year, write_picture

from delaylog.client import PlainClient
from delaylog.client.child_broker import BrokerStartError, ChildBroker
from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs import audit, backfill
from pyspark_delaylog.jobs.main import make_parser
from pyspark_delaylog.jobs.session import open_session
from pyspark_delaylog.segments.folder import read_folder

TOPIC = "departures"
YEAR_MS = DAYS * 86_400_000
DRAIN_S = 120.0
CHECKPOINT_S = 60.0
LEAD_S_MIN = 45.0
REHEARSAL = 4
"""The rehearsal loads one in so many flights, so its time, times this, is longer than the load."""
VALUE = "to_json(struct(carrier, flight, tailnum, origin, dest, month, day, hour, minute))"


class DemoFailed(Exception):
    """The demo could not be played to its end; the message says what got in the way."""


async def play(options: argparse.Namespace, folder: Path) -> bool:
    """The whole demo; whether everything agrees."""
    flights = folder / "flights"
    count = write_flights(flights, options.flights)
    size = sum(file.stat().st_size for file in flights.iterdir())
    say(f"flights   {count:,} of 2013 in {size / 1e6:.1f} MB of parquet")
    async with ChildBroker(folder / "data") as broker:
        say(f"broker    {broker.url}")
        words = job_words("audit", str(folder / "data"), str(folder / "audit"))
        with open_session(words) as spark:
            say("spark     " + str(spark.version))
            lead_s = options.lead_s or lead_of(_rehearse(spark, broker.url, flights))
            say(f"lead      {lead_s:.0f} s until the first flight is due")
            year = Year(int((time.time() + lead_s) * 1000), int(options.span_s * 1000))
            arrivals, forecast = _load_and_consume(spark, year, broker.url, flights, count)
            await _checkpointed(folder / "data")
            done = audit.run(spark, words)
            lateness = spark.read.parquet(str(folder / "audit" / "lateness"))
            said = lateness.where("hour is null").first()
            days, minutes = read_year(spark, folder / "data", year, forecast["now_ms"])
            write_picture(options.picture, year, days, minutes, forecast)
        status = await broker.stop()
        say(f"broker    ended on SIGTERM with status {status}")
    say(f"picture   {options.picture.resolve()}")
    return judge(flights, arrivals, done, said)


def _load_and_consume(
    spark: Any, year: Year, url: str, flights: Path, count: int
) -> tuple[Arrivals, dict[str, Any]]:
    """What came, and the forecast after the load."""
    due = f"{year.start_ms} + departs_ms * {year.span_ms} div {YEAR_MS}"
    words = ["backfill", str(flights), "--endpoint", url, "--topic", TOPIC]
    # A forecast counts what is published.
    words += ["--sink-option", "wait=published"]
    words += ["--id", "flight_id", "--value", VALUE, "--deliver-at", due]
    loading = job_words(*words)
    # Spark's calls wait, and belong to the thread that made the session: the others move out.
    ends = Deadline()
    with ThreadPoolExecutor(1) as pool:
        consuming = pool.submit(lambda: asyncio.run(consume(url, TOPIC, count, ends)))
        try:
            done = backfill.run(spark, loading)
            rate = done["rows"] / done["seconds"]
            say(
                f"backfill  {done['rows']:,} rows in {done['seconds']:g} s, {rate:,.0f} a second,"
                f" transaction {done['transaction']}"
            )
            with PlainClient(url) as client:
                forecast = client.forecast(TOPIC)
            to_come = sum(each["count"] for each in forecast["minutes"])
            say(f"forecast  {to_come:,} messages within {len(forecast['minutes'])} minutes")
            if to_come < count:
                say("          the load outlasted --lead-s: a longer one shows the whole year")
            again = backfill.run(spark, loading)
            say(f"again     {again['rows']:,} rows, {again['loaded_before']:,} were there before")
        finally:
            # However long the load took, its rows are waited for as long.
            last_s = max(0.0, (year.start_ms + year.span_ms) / 1000 - time.time())
            ends.at_s = time.monotonic() + last_s + DRAIN_S
        return consuming.result(), forecast


def _rehearse(spark: Any, url: str, flights: Path) -> float:
    """Load some flights into a topic that is dropped; returns the seconds. Nothing comes due."""
    words = job_words(
        *("backfill", str(flights), "--endpoint", url, "--topic", "rehearsal"),
        *("--sink-option", "wait=published", "--id", "flight_id", "--value", VALUE),
        *("--delay-ms", str(YEAR_MS), "--where", f"crc32(flight_id) % {REHEARSAL} = 0"),
    )
    done = backfill.run(spark, words)
    say(f"rehearsal {done['rows']:,} rows in {done['seconds']:g} s")
    with PlainClient(url) as client:
        client.drop_topic("rehearsal", force=True)
    return float(done["seconds"])


def lead_of(rehearsed_s: float) -> float:
    """The time until the first flight is due: longer than the load will take."""
    return max(LEAD_S_MIN, REHEARSAL * rehearsed_s)


async def _checkpointed(data: Path) -> None:
    """Until a checkpoint knows that all has ended: that is what a live audit is as of."""
    for _ in range(int(CHECKPOINT_S * 5)):
        hours = read_folder(str(data)).hours.values()
        if hours and all(hour.ended for hour in hours):
            return
        await asyncio.sleep(0.2)
    raise DemoFailed("no checkpoint came in which every message had ended")


def judge(flights: Path, arrivals: Arrivals, done: dict[str, Any], said: Any) -> bool:
    """Say what was found; whether all three books agree."""
    ids = set(pq.read_table(flights, columns=["flight_id"])["flight_id"].to_pylist())
    late = arrivals.lateness
    again = sum(arrivals.ids.values()) - len(arrivals.ids)
    say(
        f"received  {len(arrivals.ids):,} flights, {again:,} of them again,"
        f" {arrivals.early:,} early"
    )
    if len(late):
        p50, p99 = np.percentile(late, [50, 99])
        say(f"lateness  p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {late.max():.1f} ms, at receipt")
    say(f"audit     {done['rows']:,} messages {done['states']} in {done['seconds']:g} s")
    if said is not None:
        say(f"          from due time to ack p50 {said['p50_ms']:,} ms, p99 {said['p99_ms']:,} ms")
    checks = {
        "the flights received are those of the parquet": set(arrivals.ids) == ids,
        "none came early": arrivals.early == 0,
        "the files say that each was acknowledged, once": done["states"] == {"acked": len(ids)},
    }
    for what, holds in checks.items():
        say(f"  {'holds' if holds else 'FAILS'}  {what}")
    holds = all(checks.values())
    say("THE PROOF HOLDS" if holds else "THE PROOF FAILS")
    return holds


def job_words(*words: str) -> argparse.Namespace:
    """A job's arguments."""
    return make_parser().parse_args(words)


def say(line: str) -> None:
    """One line to the terminal."""
    print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and play; the folder stays only when something is to be looked at."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flights", type=int, help="only the first so many")
    parser.add_argument(
        "--lead-s", type=float, help="from the load to the first (default: by the speed of Spark)"
    )
    parser.add_argument("--span-s", type=float, default=10.0, help="how long the year takes")
    parser.add_argument("--keep", action="store_true", help="keep data folder and report")
    parser.add_argument(
        "--picture", type=Path, default=Path("demo-spark.html"), metavar="FILE", help="to write"
    )
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="delaylog-demo-spark-"))
    begun = time.monotonic()
    holds = False
    try:
        holds = asyncio.run(play(options, folder))
    except (DemoFailed, BrokerStartError, JobError, FlightsMissing) as error:
        say(f"THE DEMO FAILED: {error}")
    finally:
        if holds and not options.keep:
            shutil.rmtree(folder)
        else:
            say(f"data and report are in {folder}")
    say(f"{time.monotonic() - begun:.1f} s in all")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
