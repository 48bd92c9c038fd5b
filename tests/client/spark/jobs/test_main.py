"""The words of the jobs, and what can be said without a session."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from delaylog.broker.host.system.folder_lock import retention_suspended
from pyspark_delaylog.errors import JobError, OptionError
from pyspark_delaylog.field_table import FIELD_TYPES
from pyspark_delaylog.jobs import backfill
from pyspark_delaylog.jobs import main as jobs_main
from pyspark_delaylog.jobs.archive import (
    MANIFEST,
    read_manifest,
    suspended_retention,
    write_manifest,
)
from pyspark_delaylog.jobs.audit import segment_options
from pyspark_delaylog.jobs.backfill import name_of
from pyspark_delaylog.jobs.main import JOBS, main, make_parser
from pyspark_delaylog.jobs.report import PLACES_MAX, places_of
from pyspark_delaylog.jobs.session import connection_options
from pyspark_delaylog.segments.options import parse_options


@pytest.mark.parametrize("job", JOBS)
def test_each_job_says_what_it_does(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args([job, "--help"])
    assert ended.value.code == 0
    assert "Spark:" in capsys.readouterr().out


def test_a_load_can_give_every_field_of_a_message() -> None:
    words = ["in", "--endpoint", "http://h", "--topic", "t"]
    said = {f"--{name.replace('_', '-')}": f"c_{name}" for name in FIELD_TYPES}
    args = make_parser().parse_args(["backfill", *words, *itertools.chain(*said.items())])
    assert {name: getattr(args, name) for name in FIELD_TYPES} == {
        name: f"c_{name}" for name in FIELD_TYPES
    }
    page = (Path(__file__).parents[4] / "docs" / "SPARK_FOLDERS.md").read_text()
    assert [option for option in said if f"`{option}`" not in page] == []


def test_the_name_of_a_load_stays_what_it_was() -> None:
    """Otherwise a load that was committed before would be added again; new fields count."""
    words = ["a.json", "--endpoint", "http://h:1", "--topic", "t", "--id", "n", "--delay-ms", "5"]
    files = [["file:/a.json", 7, 8]]
    plain = make_parser().parse_args(["backfill", *words])
    assert name_of(files, plain) == "backfill-6e1234438c60250d13b851640c8013ec"
    tagged = make_parser().parse_args(["backfill", *words, "--tags", "array('a')"])
    assert name_of(files, tagged) != name_of(files, plain)


def test_without_java_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert main(["audit", "/data", "/out"]) == 1
    assert "apt-get install openjdk-17-jre-headless" in capsys.readouterr().err


def of_spark(last: str) -> PySparkException:
    """An error of a task, as Spark wraps it in a traceback."""
    shown = ["Failed to commit: Traceback (most recent call last):", '  File "/x.py", line 1']
    return PySparkException("\n".join([*shown, last, " SQLSTATE: 38000"]))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OptionError("option endpoint: no base URL"), "option endpoint: no base URL"),
        (of_spark("pyspark_delaylog.errors.TransactionError: other: data"), "other: data"),
        (of_spark("pyspark_delaylog.segments.errors.DamagedError: x at byte 0"), "x at byte 0"),
        (of_spark("ValueError: a bug"), None),
    ],
)
def test_what_is_wrong_with_a_load_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    line: str | None,
) -> None:
    """Without a traceback: there is nothing in the job to be mended. A bug is shown as it is."""
    monkeypatch.setattr(jobs_main, "open_session", lambda args: nullcontext())
    monkeypatch.setattr(backfill, "run", Mock(side_effect=error))
    with pytest.raises(PySparkException) if line is None else nullcontext():
        assert main(BACKFILL) == 1
    said = capsys.readouterr().err
    assert said == ("" if line is None else f"delaylog spark backfill: {line}\n")


def test_what_is_said_of_a_folder_becomes_options(tmp_path: Path) -> None:
    words = ["audit", str(tmp_path), "/out", "--start-hour", "2026-01-31T07Z", "--partitions", "3"]
    options = segment_options(make_parser().parse_args(words), onCorrupt="skip")
    parsed = parse_options(options)
    assert (parsed.path, parsed.partitions, parsed.skip_corrupt) == (str(tmp_path), 3, True)
    assert parsed.wanted.hour_from > 0


def test_retention_is_held_as_by_a_backup(tmp_path: Path) -> None:
    with suspended_retention(str(tmp_path)):
        assert not (tmp_path / "hold").exists(), "a backup is not written to"
    (tmp_path / "hold").touch()
    with suspended_retention(str(tmp_path)), suspended_retention(str(tmp_path)):
        assert retention_suspended(str(tmp_path))
    assert not retention_suspended(str(tmp_path))


def test_a_manifest_is_whole_or_not_there(tmp_path: Path) -> None:
    empty = read_manifest(tmp_path)
    assert empty["hours"] == {}
    empty["hours"]["2026-01-31T07Z"] = {"rows": 1}
    write_manifest(tmp_path, empty)
    assert read_manifest(tmp_path) == empty
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(JobError, match="damaged"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": 2}')
    with pytest.raises(JobError, match="format 2"):
        read_manifest(tmp_path)


def test_plots_have_few_places_whatever_the_number_of_hours() -> None:
    assert places_of([]) == ({}, [], 1)
    places, starts, width = places_of([5, 6, 9])
    assert (places, len(starts), width) == ({5: 0, 6: 1, 9: 4}, 5, 1)
    places, starts, width = places_of([0, 87_659])
    assert len(starts) <= PLACES_MAX
    assert places[87_659] == len(starts) - 1


BACKFILL = ["backfill", "a.csv", "--endpoint", "https://h:1", "--topic", "t"]


def test_a_job_takes_a_token_and_files_of_tls_by_their_paths() -> None:
    files = {"token-file": "tokenFile", "ca-file": "caFile", "client-cert": "clientCert"}
    files["client-key"] = "clientKey"
    words = [word for flag in files for word in (f"--{flag}", f"/run/{flag}")]
    args = make_parser().parse_args([*BACKFILL, *words, "--insecure-plain-token"])
    paths = {option: f"/run/{flag}" for flag, option in files.items()}
    assert connection_options(args) == {
        "endpoint": "https://h:1",
        **paths,
        "insecurePlainToken": "true",
    }
    assert connection_options(make_parser().parse_args(BACKFILL)) == {"endpoint": "https://h:1"}


@pytest.mark.parametrize("name", ["token", "Token"])
def test_a_token_in_the_arguments_of_a_job_is_refused_unseen(name: str) -> None:
    args = make_parser().parse_args([*BACKFILL, "--sink-option", f"{name}=s3cret"])
    with pytest.raises(JobError, match="use --token-file or DELAYLOG_TOKEN") as caught:
        backfill._sink_options(args, "n")
    assert "s3cret" not in str(caught.value)
