"""The jobs on folders of real engines: what an audit counts, and that an archive is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.storage.layout import hour_name
from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs import archive, audit
from pyspark_delaylog.jobs.main import make_parser
from pyspark_delaylog.jobs.progress import rows_read
from pyspark_delaylog.segments.errors import SegmentError
from tests.broker.engine.host import HOUR, START_MS, Host
from tests.spark.real.real_broker import RealBroker
from tests.waiting import await_that

START_HOUR = START_MS // HOUR
KEEP_MS = 1_000 * HOUR


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "data")
    host.configure(max_retry=1, backoff={"first_ms": 0}, ended_keep_ms=KEEP_MS)
    yield host
    host.close()


def run(spark: Any, job: Any, *words: Any) -> dict[str, Any]:
    name = job.__name__.rpartition(".")[2]
    args = make_parser().parse_args([name, *map(str, words)])
    done: dict[str, Any] = job.run(spark, args)
    return done


def test_an_audit_counts_what_there_is(spark: Any, host: Host, tmp_path: Path) -> None:
    host.send(1_000, delay=[k * 10 for k in range(1_000)])
    host.send(50, delay=5 * HOUR, topic="u")
    host.advance(10_000)
    got = host.receive(1_000)
    host.ack(got[:900])
    host.nack(got[900:])
    host.advance(10)
    dead = host.receive(60)
    host.nack(dead)
    host.checkpoint()
    out = tmp_path / "out"
    shown = rows_read(spark)
    done = run(spark, audit, host.folder, out, "--bodies")
    await_that(lambda: shown() == 1_050)
    assert done["states"] == {"acked": 900, "dead": 60, "ready": 40, "waiting": 50}
    assert done["rows"] == 1_050
    assert json.loads((out / "summary.json").read_text()) == done
    counts = spark.read.parquet(str(out / "counts")).collect()
    assert sum(row["messages"] for row in counts) == 1_050
    assert {(row["topic"], row["state"]) for row in counts} == {
        ("t", "acked"),
        ("t", "dead"),
        ("t", "ready"),
        ("u", "waiting"),
    }
    late = sorted(host.now_ms - 10 - (START_MS + k * 10) for k in range(900))
    for row in spark.read.parquet(str(out / "lateness")).collect():
        assert row["acked"] == 900
        assert row["max_ms"] == late[-1]
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
            exact = late[int(share * 900) - 1]
            assert exact * 0.984 <= row[name] <= exact
    retries = {
        row["attempts"]: row["messages"]
        for row in spark.read.parquet(str(out / "retries")).where("topic = 't'").collect()
    }
    assert retries == {1: 900 + 40, 2: 60}
    letters = spark.read.parquet(str(out / "dead")).collect()
    assert {bytes(row["value"]) for row in letters} == {message.body for message in dead}
    assert {row["cause"] for row in letters} == {"retries"}
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 3
    assert "http://" not in page.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", ""), "nothing is loaded from elsewhere"
    assert len(page) < 300_000
    # Again, into the same place.
    assert run(spark, audit, host.folder, out)["states"] == done["states"]


def test_an_audit_of_some_topics_groups_and_hours(spark: Any, host: Host, tmp_path: Path) -> None:
    for hour, topic in enumerate(("t", "u", "v")):
        host.send(10 + hour, delay=hour * HOUR, topic=topic)
    host.checkpoint()
    out, folder = tmp_path / "out", host.folder
    words = ["--partitions", "2", "--on-corrupt", "skip"]
    assert run(spark, audit, folder, out, *words)["rows"] == 33
    assert run(spark, audit, folder, out, *words, "--topic", "t,v")["rows"] == 22
    assert run(spark, audit, folder, out, "--group", "nobody")["rows"] == 0
    hours = ["--start-hour", hour_name(START_HOUR + 1), "--end-hour", hour_name(START_HOUR + 2)]
    assert run(spark, audit, folder, out, *hours)["rows"] == 11
    letters = spark.read.parquet(str(out / "dead"))
    assert (letters.count(), "value" in letters.columns) == (0, False), "no --bodies"


def test_an_audit_of_damage_fails_or_counts_it(spark: Any, host: Host, tmp_path: Path) -> None:
    host.send(10, delay=HOUR)
    host.send(5, delay=2 * HOUR)
    host.checkpoint()
    path = host.folder / "hours" / hour_name(START_HOUR + 1) / "delay.index"
    raw = bytearray(path.read_bytes())
    raw[200] ^= 1
    path.write_bytes(raw)
    out = tmp_path / "out"
    with pytest.raises(Exception, match=r"delay\.index at byte 0"):
        run(spark, audit, host.folder, out)
    done = run(spark, audit, host.folder, out, "--on-corrupt", "skip")
    assert done["states"] == {"damaged": 10, "waiting": 5}


def test_an_audit_of_nothing_says_so(spark: Any, host: Host, tmp_path: Path) -> None:
    done = run(spark, audit, host.folder, tmp_path / "out")
    assert done["rows"] == 0
    assert (tmp_path / "out" / "report.html").exists()
    with pytest.raises(SegmentError, match="not a broker's data folder"):
        run(spark, audit, tmp_path / "out", tmp_path / "out2")


def end_hours(host: Host, hours: int) -> None:
    """Fill hours, acknowledge all in them, and let the broker call them over."""
    for hour in range(hours):
        host.send([b"%d " % hour * (k + 1) for k in range(20)], delay=hour * HOUR + 1)
    host.send(5, delay=50 * HOUR)
    for _ in range(hours):
        host.advance(1)
        host.ack(host.receive(100))
        host.advance(HOUR - 1)
    host.advance(2 * HOUR)
    host.ack(host.receive(100))
    host.checkpoint()
    host.checkpoint()


def test_an_archive_holds_each_ended_hour_once(spark: Any, host: Host, tmp_path: Path) -> None:
    end_hours(host, 3)
    out = tmp_path / "archive"
    words = (host.folder, out)
    wanted = [hour_name(START_HOUR + k) for k in range(3)]
    assert run(spark, archive, *words, "--dry-run")["would_archive"] == wanted
    one = run(spark, archive, *words, "--end-hour", wanted[1])
    assert (one["hours"], one["rows"], one["archived_before"]) == (1, 20, 0)
    rest = run(spark, archive, *words)
    assert (rest["hours"], rest["rows"], rest["archived_before"]) == (2, 40, 1)
    before = sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*.parquet"))
    again = run(spark, archive, *words)
    assert (again["hours"], again["rows"], again["archived_before"]) == (0, 0, 3)
    assert sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*.parquet")) == before
    manifest = json.loads((out / "_manifest.json").read_text())
    assert sorted(manifest["hours"]) == wanted
    for name, entry in manifest["hours"].items():
        place = out / f"utc_hour={name}"
        assert {file["name"]: file["size"] for file in entry["files"]} == {
            path.name: path.stat().st_size for path in place.glob("*.parquet")
        }
    found = spark.read.parquet(str(out)).collect()
    assert len(found) == 60
    assert {bytes(row["value"]) for row in found} == {
        b"%d " % hour * (k + 1) for hour in range(3) for k in range(20)
    }
    assert {row["state"] for row in found} == {"acked"}


def test_an_archive_releases_what_a_broker_holds(spark: Any, tmp_path: Path) -> None:
    """All of it: parquet that reads back, the manifest, and then the broker lets the hours go."""
    host = Host(tmp_path / "data")
    host.engine.state.archive_hold = True
    end_hours(host, 3)
    host.close()
    out = tmp_path / "archive"
    with RealBroker(tmp_path, "--archive-hold", "on") as broker:
        assert broker.get("/v1/archive")["hours"] == 3
        words = (tmp_path / "data", out, "--endpoint", broker.url, "--release")
        done = run(spark, archive, *words)
        assert (done["hours"], done["rows"]) == (3, 60)
        assert done["released_through"] == hour_name(START_HOUR + 3)
        assert run(spark, archive, *words)["hours"] == 0
        assert broker.get("/v1/archive")["hours"] == 0
        broker.kill()
        broker.start()
        through_ms = broker.get("/v1/archive")["released_through_ms"]
        assert through_ms == (START_HOUR + 3) * HOUR
    assert spark.read.parquet(str(out)).count() == 60


def test_an_archive_that_was_cut_off_goes_on(
    spark: Any, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the files and the manifest; and while files are written."""
    end_hours(host, 2)
    out = tmp_path / "archive"

    def cut(*_: Any) -> None:
        raise OSError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(archive, "write_manifest", cut)
        with pytest.raises(OSError, match="cut off"):
            run(spark, archive, host.folder, out)
    (out / "_staging").mkdir(exist_ok=True)
    (out / "_staging" / "half").write_text("x")
    done = run(spark, archive, host.folder, out)
    assert (done["hours"], done["rows"]) == (2, 40)
    assert spark.read.parquet(str(out)).count() == 40
    assert not (out / "_staging").exists()


def test_the_sums_of_an_hour_show_every_difference(spark: Any) -> None:
    """A row that is lost, doubled, swapped for another one, or has one other value."""
    schema = f"{archive.HOUR_COLUMN} string, ref bigint, value binary"

    def sums(*rows: tuple[int, bytes | None]) -> Any:
        return archive.sums_of(spark.createDataFrame([("h", *row) for row in rows], schema))

    whole = sums((1, b"a"), (2, b"b"), (3, None))
    assert sums((3, None), (1, b"a"), (2, b"b")) == whole, "in any order"
    others = [
        sums((1, b"a"), (2, b"b")),
        sums((1, b"a"), (2, b"b"), (3, None), (3, None)),
        sums((1, b"a"), (1, b"a"), (3, None)),
        sums((1, b"b"), (2, b"a"), (3, None)),
        sums((1, b"a"), (2, b"b"), (3, b"")),
    ]
    assert [other for other in others if other == whole] == []


def test_an_archive_that_differs_is_not_taken(
    spark: Any, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_hours(host, 1)
    out = tmp_path / "archive"
    sums = iter([{"a": (1, 2)}, {"a": (1, 3)}])
    monkeypatch.setattr(archive, "sums_of", lambda _: next(sums))
    with pytest.raises(JobError, match="copy differs from"):
        run(spark, archive, host.folder, out)
    assert not (out / "_manifest.json").exists()
    assert not list(out.glob("utc_hour=*"))
