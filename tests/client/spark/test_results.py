"""What a result says of itself: what was added, what is missing and why."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import SparkFiles

from pyspark_delaylog import last_result, publication
from pyspark_delaylog.deliveries import RowSum, marker_of, sum_of
from pyspark_delaylog.errors import BrokerError, DelaylogError, PartialLoadError, TransactionError
from pyspark_delaylog.load_result import FILE, OF_NAME, LoadResult, report
from pyspark_delaylog.publication import LOOK_S, SMALL_ROWS_MAX, STALL_S, published
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker, FakeTransaction

KEPT = {"created": 10, "replaced": 2, "kept": 985, "rejected": 3}


@pytest.mark.parametrize(
    ("result", "added", "line"),
    [
        (
            LoadResult("n", "committed", 1_000, published=1_000, results={"created": 1_000}),
            1_000,
            "n: 1,000 of 1,000 rows added",
        ),
        (
            LoadResult("n", "committed", 1_000, published=1_000, results=KEPT),
            12,
            "n: 12 of 1,000 rows added; 985 kept, since a message with the same id lives, "
            "3 rejected, since a message with the same id lives",
        ),
        (
            LoadResult("n", "committed", 1_000, published=7, results={"created": 7}),
            7,
            "n: 1,000 rows committed, 7 of them published so far; "
            "last_result().refresh(wait=True) gives the counts of all",
        ),
        (
            LoadResult("n", "already", 5, published=5, results={"created": 5}),
            0,
            "n: 0 of 5 rows added; an earlier run of this name has added them",
        ),
        (
            LoadResult("q.3", "already", 5, published=5, results={"created": 5}, batch=3),
            0,
            "q.3 (batch 3): 0 of 5 rows added; "
            "this batch was committed before, so none of its rows was sent",
        ),
        (
            LoadResult("n", "sent", 5, 2, published=5, results={"created": 5}, repeated_calls=1),
            5,
            "n: 5 of 5 rows added; 2 put aside; 1 calls repeated",
        ),
    ],
)
def test_a_line_for_a_person(result: LoadResult, added: int, line: str) -> None:
    assert (result.added, str(result)) == (added, line)


def test_a_repeated_micro_batch_is_not_partial() -> None:
    """It is how Spark recovers, and must not stop a query with failOnPartial."""
    assert LoadResult("q.3", "already", 5, batch=3).shortfall == ""
    assert LoadResult("n", "already", 5).shortfall != ""


class Publisher:
    """Publishes rows at a rate, until it stalls."""

    def __init__(
        self, rows_per_s: float, stalls_at: float = float("inf"), rows: int = 1_000
    ) -> None:
        self.now_s = 0.0
        self._rows = rows
        self._rate = rows_per_s
        self._stalls_at = stalls_at

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s

    def shape(self) -> dict[str, Any]:
        done = int(min(self._rows, self._stalls_at, self._rate * self.now_s))
        return {"transaction": "x", "rows": self._rows, "published": done}


def clock(monkeypatch: pytest.MonkeyPatch, publisher: Publisher) -> Publisher:
    monkeypatch.setattr(publication, "time", publisher)
    return publisher


def test_a_small_load_is_seen_published(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(100_000))
    assert published(one.shape, wait=False)["published"] == 1_000
    assert one.now_s < LOOK_S


def test_a_large_one_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(100_000, rows=SMALL_ROWS_MAX + 1))
    assert published(one.shape, wait=False)["published"] == 0
    assert one.now_s == 0


def test_a_slow_one_is_left_after_a_moment_or_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(1.5))
    assert published(one.shape, wait=False)["published"] < 1_000
    assert one.now_s < 2 * LOOK_S
    assert published(one.shape, wait=True)["published"] == 1_000
    assert one.now_s > 2 * STALL_S, "it lasts, but never stalls"


def test_a_stall_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    one = clock(monkeypatch, Publisher(100, stalls_at=40))
    with pytest.raises(TransactionError, match="only 40 of 1,000 rows and none for 300 s"):
        published(one.shape, wait=True)


ROWS = 60_000


def committed(broker: FakeBroker, options_of: OptionsOf, **options: str) -> LoadResult:
    """The result at the commit of a load of which nothing is published yet."""
    broker.transactions["load"] = FakeTransaction("committed", ROWS)
    connection = options_of(**options).connection
    return LoadResult("load", "committed", ROWS, bytes=7, connection=connection)


def test_counts_grow_until_all_rows_are_published(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    broker.unpublished, broker.kept = 20_000, 10
    first = committed(broker, options_of)
    some = first.refresh()
    assert not first.complete
    assert not some.complete
    assert (some.published, some.added, some.published_at_ms) == (40_000, 39_990, None)
    broker.unpublished = 0
    whole = some.refresh(wait=True)
    assert whole.complete
    assert (whole.rows, whole.added, whole.results["kept"]) == (ROWS, ROWS - 10, 10)
    assert (whole.published_at_ms or 0) > (whole.committed_at_ms or 0)
    assert (whole.bytes, whole.name) == (7, "load"), "what was known stays"
    broker.transactions.clear()
    assert whole.refresh() is whole, "a complete result asks nobody"


def test_the_token_is_not_part_of_a_result(broker: FakeBroker, options_of: OptionsOf) -> None:
    """A result is kept in a file, so the caller gives the token again."""
    broker.token = "a-secret"
    first = committed(broker, options_of, token="a-secret")
    assert "a-secret" not in json.dumps(asdict(first)) + repr(first)
    with pytest.raises(BrokerError, match="401"):
        first.refresh()
    assert first.refresh(token="a-secret").complete


def test_it_reaches_the_broker_as_the_load_did(options_of: OptionsOf) -> None:
    """By the same files, whose names are no secrets, and at all of its members."""
    given = {
        "endpoint": "https://a:1,https://b:1",
        "tokenFile": "/t",
        "caFile": "/ca",
        "clientCert": "/cert",
        "clientKey": "/key",
        "insecurePlainToken": "true",
    }
    assert options_of(**given).connection == given
    assert list(options_of(tokenFile="").connection) == ["endpoint"]


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


@pytest.mark.parametrize("before", ["", "make_audible()"])
def test_a_person_sees_the_line_where_nothing_configures_logging(before: str) -> None:
    """As in the process in which Spark commits; it copies standard error to that of the driver.
    Also where a claim has warned before.
    """
    code = (
        "from pyspark_delaylog.load_result import LoadResult, make_audible\n"
        "from pyspark_delaylog.load_result import report\n"
        f"{before}\n"
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


TEXTS = st.lists(st.none() | st.binary(max_size=40), max_size=30)


def binary(texts: list[bytes | None]) -> Any:
    return pa.array(texts, pa.binary())


@given(texts=TEXTS, cut=st.integers(0, 30), order=st.randoms())
def test_order_and_partitions_do_not_change_the_sum(
    texts: list[bytes | None], cut: int, order: Random
) -> None:
    whole = marker_of("load", sum_of(binary(texts)))
    parts = [binary(texts).slice(0, cut), binary(texts).slice(cut)]
    assert marker_of("load", sum(map(sum_of, parts))) == whole
    order.shuffle(texts)
    assert marker_of("load", sum_of(binary(texts))) == whole


@pytest.mark.parametrize("number", ["{:05d}", "{:05o}", "{:04x}"])
def test_the_ids_of_another_day_are_other_rows(number: str) -> None:
    """A sum of CRC-32 is the same for most of these days, because the checksum is linear."""
    days = [
        [f"2026-11-{day:02d}-{number.format(each)}" for each in range(2**12)]
        for day in range(1, 31)
    ]
    assert len({sum_of(pa.array(ids)) for ids in days}) == 30


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_the_type_of_a_column_does_not_change_the_sum(kind: Any) -> None:
    texts = pa.array(["", None, "a", "reminder-17", "z" * 200])
    assert sum_of(texts.cast(kind)) == sum_of(texts)


def test_batches_are_passed_on_and_summed_by_id_or_body() -> None:
    named = pa.record_batch({"value": pa.array(["x", "y"]), "id": pa.array(["1", "2"])})
    bare = named.drop_columns(["id"])
    for batch, name in ((named, "id"), (bare, "value")):
        total = RowSum()
        assert list(total.watch([batch, batch])) == [batch, batch]
        assert (total.rows, total.sum) == (4, 2 * sum_of(batch.column(name)))
    counted = RowSum(adds=False)
    assert list(counted.watch([named])) == [named]
    assert (counted.rows, counted.sum) == (2, 0)
