"""A result is kept where the driver finds it, and says what is missing as loudly as asked."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles

from pyspark_delaylog import last_result
from pyspark_delaylog.errors import DelaylogError, PartialLoadError
from pyspark_delaylog.load_result import FILE, OF_NAME, LoadResult, report

WHOLE = LoadResult("a", "committed", 5, published=5, results={"created": 5}, batch=0)
PARTIAL = LoadResult("b", "committed", 5, published=5, results={"created": 1, "kept": 4}, batch=0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    return tmp_path


def test_the_last_result_is_found(folder: Path) -> None:
    assert last_result() is None
    for result in (PARTIAL, WHOLE):
        report(result, fail_on_partial=False)
        assert last_result() == result
    names = {OF_NAME.format(each.name) for each in (PARTIAL, WHOLE)}
    assert {path.name for path in folder.iterdir()} == {FILE, *names}


def test_a_session_with_files_of_its_own_is_found_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(WHOLE, fail_on_partial=False)
    os.utime(folder / FILE, ns=(0, 0))
    session = folder / "0000-uuid"
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(session))
    report(PARTIAL, fail_on_partial=False)
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(folder))
    assert last_result() == PARTIAL


@pytest.mark.usefixtures("folder")
def test_loads_of_one_driver_are_told_apart_by_their_names() -> None:
    """A stream by that of all its batches; a name that nobody gave leaves no file."""
    one, two = (replace(WHOLE, name=name, batch=None) for name in ("one", "two.r3"))
    batches = [replace(WHOLE, name=f"app.{batch}", batch=batch) for batch in range(3)]
    again = replace(WHOLE, name="app.3.r1", batch=3)
    nameless = replace(WHOLE, name="spark-0123", batch=None)
    for result in (one, two, *batches, again, nameless):
        report(result, fail_on_partial=False)
    assert last_result() == nameless
    assert last_result("one") == one
    assert last_result("two") == last_result("two.r3") == two
    assert last_result("app") == again
    assert last_result("spark-0123") is None
    assert last_result("three") is None


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("change", [{"state": "already"}, {"put_aside": 5}, {"past": 3}])
def test_rows_that_went_elsewhere_or_nowhere_are_a_warning(
    caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    """As of a stream whose checkpoint was deleted: other rows may have the number of a batch."""
    report(replace(WHOLE, **change), fail_on_partial=True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.usefixtures("folder")
def test_what_is_missing_is_a_warning_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    report(WHOLE, fail_on_partial=True)
    report(PARTIAL, fail_on_partial=False)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    with pytest.raises(PartialLoadError, match=r"1 of 5 rows added; 4 kept.*what was added stays"):
        report(PARTIAL, fail_on_partial=True)
    assert last_result() == PARTIAL, "also of a load that fails so"


def test_a_person_sees_the_line_where_nothing_configures_logging() -> None:
    """As in the process in which Spark commits; it copies standard error to that of the driver."""
    code = (
        "from pyspark_delaylog.load_result import LoadResult\n"
        "from pyspark_delaylog.load_result import report\n"
        "report(LoadResult('load', 'committed', 5, published=5, results={'created': 5}),"
        " fail_on_partial=False)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stderr.splitlines() == ["INFO delaylog: load: 5 of 5 rows added"]


def test_without_a_driver_there_is_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    report(WHOLE, fail_on_partial=False)
    with pytest.raises(DelaylogError, match="GET /v1/transactions/NAME"):
        last_result()


def test_a_folder_that_cannot_be_written_fails_no_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(blocked / "below"))
    report(WHOLE, fail_on_partial=False)
    assert "last_result() will not show this load" in caplog.text
