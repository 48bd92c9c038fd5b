"""The job `backfill` with the real broker: CSV and JSON, its programs, and running it again."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pyspark_delaylog.jobs.main
from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs import backfill
from pyspark_delaylog.jobs.progress import rows_read
from tests.programs import run_program
from tests.spark.frames import FIRST_DUE_MS, ids_of
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_jobs import run
from tests.waiting import await_that

PROGRAMS = Path(sys.executable).parent
SUBMIT = [str(PROGRAMS / "spark-submit"), "--master", "local[2,4]"]
SUBMIT += ["--conf", "spark.ui.enabled=false", pyspark_delaylog.jobs.main.__file__]
COMMAND = [str(PROGRAMS / "delaylog"), "spark"]


def write_csv(path: Path, first: int, end: int) -> None:
    """As a spreadsheet has it: quotes, commas, and times as text."""
    lines = ["number,note,due"]
    for number in range(first, end):
        seconds = FIRST_DUE_MS // 1_000 + number
        hours, rest = divmod(seconds % 86_400, 3_600)
        time = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
        lines.append(f'{number},"note, ""{number}""",2030-03-17 {time}')
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def csv_words(folder: Path, real: RealBroker) -> list[str]:
    words = [f"{folder}/*.csv", "--endpoint", real.url, "--topic", "t"]
    words += ["--id", "format_string('m%08d', number)", "--value", "note"]
    return [*words, "--deliver-at", "to_timestamp(concat(due, ' UTC'), 'yyyy-MM-dd HH:mm:ss z')"]


def write_json(path: Path, first: int, end: int) -> None:
    """One object a line, of which some have a member that others have not."""
    rows: list[dict[str, Any]] = [
        {"id": each, "deliver_at": FIRST_DUE_MS + number, "to": {"name": "Ä", "tags": [number]}}
        for number, each in enumerate(ids_of(first, end), first)
    ]
    rows[0]["urgent"] = True
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def only(done: dict[str, Any]) -> tuple[int, int]:
    return done["rows"], done["loaded_before"]


def test_csv_is_loaded_once(spark: SparkSession, real: RealBroker, tmp_path: Path) -> None:
    """Run again it says that it added nothing; a file more makes it another load."""
    folder = tmp_path / "in"
    write_csv(folder / "a.csv", 0, 300)
    write_csv(folder / "b.csv", 300, 500)
    words = csv_words(folder, real)
    done = run(spark, backfill, *words)
    assert only(done) == (500, 0)
    assert real.settled(done["transaction"])["rows"] == 500
    for _ in range(2):
        again = run(spark, backfill, *words)
        assert (only(again), again["transaction"]) == ((0, 500), done["transaction"])
    real.assert_holds(ids_of(0, 500))
    message = real.get("/v1/topics/t/messages/m00000007")
    assert message["body"] == 'note, "7"'
    assert message["deliver_at_ms"] == FIRST_DUE_MS + 7_000
    write_csv(folder / "c.csv", 500, 600)
    more = run(spark, backfill, *words)
    assert only(more) == (600, 0)
    assert real.settled(more["transaction"])["results"] == {
        "created": 100,
        "kept": 500,
        "replaced": 0,
        "rejected": 0,
        "ended": 0,
    }
    real.assert_holds(ids_of(0, 600))


def test_json_is_loaded_once(spark: SparkSession, real: RealBroker, tmp_path: Path) -> None:
    """The columns by their names, and the whole row as the body."""
    path = tmp_path / "rows.jsonl"
    write_json(path, 0, 500)
    words = [path, "--endpoint", real.url, "--topic", "t"]
    assert only(run(spark, backfill, *words, "--txn-app-id", "mine")) == (500, 0)
    assert only(run(spark, backfill, *words, "--txn-app-id", "mine")) == (0, 500)
    assert real.settled("mine")["rows"] == 500
    other = tmp_path / "other.jsonl"
    write_json(other, 500, 1_000)
    with pytest.raises(Exception, match="mine was committed before with other ids"):
        run(spark, backfill, other, *words[1:], "--txn-app-id", "mine")
    real.assert_holds(ids_of(0, 500))
    message = real.get("/v1/topics/t/messages/m00000007")
    assert message["deliver_at_ms"] == FIRST_DUE_MS + 7
    assert json.loads(message["body"]) == {
        "deliver_at": FIRST_DUE_MS + 7,
        "id": "m00000007",
        "to": {"name": "Ä", "tags": [7]},
    }
    first = json.loads(real.get("/v1/topics/t/messages/m00000000")["body"])
    assert first["urgent"] is True


@pytest.mark.parametrize(
    ("name", "text", "options", "found"),
    [
        ("a.csv.gz", 'id,value\n007,"a ""b"""\n', ["inferSchema=false"], ("007", 'a "b"')),
        ("a.csv", 'id,value\n7,"two\nlines"\n', ["multiLine=true"], ("7", "two\nlines")),
        ("a.NDJSON.gz", '{"id": "7", "value": "v"}\n', [], ("7", "v")),
    ],
)
def test_names_of_files_and_options_say_how_to_read_them(
    spark: SparkSession,
    real: RealBroker,
    tmp_path: Path,
    name: str,
    text: str,
    options: list[str],
    found: tuple[str, str],
) -> None:
    raw = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    words = [f"--reader-option={each}" for each in options]
    words += ["--endpoint", real.url, "--topic", "t", "--delay-ms", "60000"]
    done = run(spark, backfill, tmp_path / name, *words)
    assert real.settled(done["transaction"])["rows"] == 1
    message = real.get(f"/v1/topics/t/messages/{found[0]}")
    assert message["body"] == found[1]


def test_all_columns_and_options_of_a_load(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """Each of them that other tests do not have. A null leaves a column of the input out."""
    path = tmp_path / "rows"
    path.write_text("n;to;merge\n1;a;x\n2;b;x\n3;a;x\n4;a;x\n")
    words = [path, "--endpoint", real.url, "--format", "csv", "--reader-option", "sep=;"]
    words += ["--where", "n < 4", "--delay-ms", "60000", "--namespace", "n"]
    words += ["--id", "concat('m', n)", "--key", "concat('k', n)", "--priority", "n * 2"]
    words += ["--headers", "array(struct('h' as key, cast(to as binary) as value))"]
    words += ["--tags", "array('x', to)", "--ttl-ms", "'90000'", "--max-retry", "n + 1"]
    words += ["--backoff", "named_struct('first_ms', 5L)", "--merge", "null"]
    words += ["--sink-option", "compression=lz4", "--sink-option", "batchSize=1"]
    with pytest.raises(Exception, match="option topic"):
        run(spark, backfill, *words)
    done = run(spark, backfill, *words, "--topic", "a", "--txn-app-id", "first")
    assert (only(done), done["transaction"]) == ((3, 0), "first")
    assert real.settled("first")["parts"] == 3, "a request for each row"
    message = real.get("/v1/ns/n/topics/a/messages/m2")
    assert abs(message["deliver_at_ms"] - message["sent_at_ms"] - 60_000) < 30_000
    assert (message["key"], message["priority"], message["headers"]) == ("k2", 4, {"h": "b"})
    assert (message["tags"], message["max_retry"]) == (["x", "b"], 3)
    assert message["expires_at_ms"] - message["deliver_at_ms"] == 90_000
    assert message["backoff"] == {"first_ms": 5}
    assert json.loads(message["body"]) == {"n": 2, "to": "b", "merge": "x"}


@pytest.mark.usefixtures("spark")
def test_a_time_without_a_zone_is_utc_or_converted(real: RealBroker, tmp_path: Path) -> None:
    """In a session of its own, on a machine in another time zone."""
    path, base = tmp_path / "rows.csv", ["--endpoint", real.url, "--topic", "t", "--id", "id"]
    path.write_text("id,due\na,2030-03-17T12:00:00.123456\n")
    for name, due in (("a", "due"), ("b", "to_utc_timestamp(due, 'Europe/Berlin')")):
        path.write_text(path.read_text().replace("a,", f"{name},"))
        words = [*COMMAND, "backfill", path, *base, "--deliver-at", due]
        env = {**os.environ, "TZ": "Pacific/Auckland"}
        done = run_program(*words, cwd=tmp_path, env=env, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr[-5_000:]
    noon_ms = 1_899_979_200_000
    found = [real.get(f"/v1/topics/t/messages/{name}")["deliver_at_ms"] for name in "ab"]
    assert found == [noon_ms + 124, noon_ms - 3_600_000 + 124]


def test_what_a_direct_load_sent_is_counted(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    write_json(path, 0, 50)
    words = [path, "--endpoint", real.url, "--topic", "t", "--sink-option", "delivery=direct"]
    for _ in range(2):
        shown = rows_read(spark)
        assert only(run(spark, backfill, *words)) == (50, 0)
        await_that(lambda read=shown: read() == 50)
    real.assert_holds(ids_of(0, 50))


@pytest.mark.parametrize(
    ("name", "line"),
    [("rows.csv", '500,"a note",2030-03-17 17:00:00,too much'), ("rows.json", "{")],
)
def test_a_line_that_cannot_be_parsed_fails_the_load(
    spark: SparkSession, real: RealBroker, tmp_path: Path, name: str, line: str
) -> None:
    """By itself Spark would send a row of nulls, or lose what it did not understand."""
    path = tmp_path / name
    (write_csv if name.endswith("csv") else write_json)(path, 0, 10)
    path.write_text(path.read_text() + line + "\n")
    words = [path, "--endpoint", real.url, "--topic", "t", "--delay-ms", "1000", "--value", "'x'"]
    with pytest.raises(Exception, match=r"MALFORMED|malformed"):
        run(spark, backfill, *words)
    assert real.get("/v1/topics")["topics"] == []
    done = run(spark, backfill, *words, "--reader-option", "mode=DROPMALFORMED")
    assert only(done) == (10, 0)


def test_seconds_are_refused_with_the_id_of_the_row(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """As the sink reads a number, seconds are in January 1970; they must not all be due at once."""
    file = tmp_path / "seconds.jsonl"
    file.write_text(json.dumps({"id": "one", "remind_at": FIRST_DUE_MS // 1_000, "body": "x"}))
    words = [str(file), "--endpoint", real.url, "--topic", "t", "--deliver-at", "remind_at"]
    with pytest.raises(Exception, match=r"row with id 'one'.* is before 2001-09-09"):
        run(spark, backfill, *words)
    assert real.get("/v1/topics")["topics"] == []


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--id", "number", "--deliver-at", "note"],
            "column 'deliver_at' of the row with id 0: 'note, \"0\"' cannot be read as timestamp; "
            "correct such rows, or convert them by SQL in --deliver-at",
        ),
        (["--delay-ms", "1", "--priority", "note"], "column 'priority': 'note, \"0\"' cannot be"),
        (
            ["--deliver-at", "to_timestamp(note, 'yyyy')"],
            "[CANNOT_PARSE_TIMESTAMP] Text 'note, \"0\"' could not be parsed",
        ),
    ],
)
def test_a_value_that_cannot_be_read_is_said_in_a_line(
    real: RealBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    """By its column and row, where the job reads it; in Spark's words in SQL of the user's own."""
    path = tmp_path / "rows.csv"
    write_csv(path, 0, 1)
    there = ["backfill", str(path), "--endpoint", real.url, "--topic", "t"]
    assert pyspark_delaylog.jobs.main.main([*there, *words]) == 1
    (line,) = [
        each for each in capsys.readouterr().err.splitlines() if "read" in each or "parsed" in each
    ]
    assert line.startswith(f"delaylog spark backfill: {said}")
    assert real.get("/v1/topics")["topics"] == []
    aside = ["--deliver-at", "try_to_timestamp(note)", "--sink-option", "onError=deadLetter"]
    assert pyspark_delaylog.jobs.main.main([*there, *aside, "--id", "number"]) == 0
    assert real.counts("t.rejected") == {"ready": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--id", "nmber", "--deliver-at", "due"], "nmber.*number"),
        (["--id", "number"], "say when messages are due.*number, note, due"),
        (["--id", "(", "--delay-ms", "1"], "PARSE_SYNTAX_ERROR"),
    ],
)
def test_what_is_wrong_with_the_words_is_said_in_a_line(
    spark: SparkSession, real: RealBroker, tmp_path: Path, words: list[str], said: str
) -> None:
    write_csv(tmp_path / "rows.csv", 0, 10)
    there = [str(tmp_path / "rows.csv"), "--endpoint", real.url, "--topic", "t"]
    with pytest.raises(JobError, match=said) as caught:
        run(spark, backfill, *there, *words)
    assert "\n" not in str(caught.value)
    with pytest.raises(JobError, match="PATH_NOT_FOUND"):
        run(spark, backfill, str(tmp_path / "none.csv"), *there[1:], *words)


def test_spark_submit_and_the_command_run_the_same_job(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """In sessions of their own; the second knows what the first has loaded."""
    assert spark.version, "the fixture says where Java is"
    folder = tmp_path / "in"
    write_csv(folder / "a.csv", 0, 300)
    words = csv_words(folder, real)
    found = []
    for program in (SUBMIT, COMMAND):
        done = run_program(*program, "backfill", *words, cwd=tmp_path, env=os.environ, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr[-5_000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert [only(each) for each in found] == [(300, 0), (0, 300)]
    assert found[0]["transaction"] == found[1]["transaction"]
    real.assert_holds(ids_of(0, 300))
    assert real.get("/v1/topics/t/messages/m00000007")["deliver_at_ms"] == FIRST_DUE_MS + 7_000
