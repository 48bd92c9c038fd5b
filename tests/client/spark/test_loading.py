"""A task's rows on their way: numbers of chunks, topics, rejected rows, and the pace.

Batches of any size become chunks within both limits, with every row in its place; rows of many
topics are sorted, in their order within a topic, and cut into runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delaylog import task_load
from pyspark_delaylog.columns import PAST_MS, Columns
from pyspark_delaylog.errors import RefusedError, RowError
from pyspark_delaylog.options import Options
from pyspark_delaylog.task_load import (
    ROW_BYTES,
    Chunk,
    Chunker,
    Loaded,
    Loading,
    MixedRows,
    groups_of_runs,
    row_bytes,
    run_starts,
    runs_of,
)
from tests.client.spark.batches import HEADERS, TIME, batch_of, ids_of
from tests.client.spark.conftest import OptionsOf


def read(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()


def load(
    options: Options, send: Any, *batches: Any, base_ms: int | None = None, combines: bool = False
) -> Loaded:
    """Send batches as a task does."""
    columns = Columns(options, base_ms)
    return Loading(options, columns, send, combines=combines).run(iter(batches))


class Taken:
    """Takes chunks, and refuses rows for a topic whose body is among the unwanted."""

    def __init__(self, *unwanted: bytes, status: int = 400, topic: str | None = "t") -> None:
        self.chunks: list[tuple[str | None, int, Any]] = []
        self._unwanted = unwanted
        self._status = status
        self._topic = topic

    def __call__(self, topic: str | None, number: int, body: bytes) -> None:
        table = read(body)
        for row, value in enumerate(table["value"].to_pylist()):
            if topic == self._topic and value in self._unwanted:
                problem = {"item": row, "detail": "not wanted"}
                raise RefusedError("refused", self._status, problem)
        self.chunks.append((topic, number, table))

    def ids(self, topic: str) -> list[str]:
        return [row for name, _, table in self.chunks if name == topic for row in ids_in(table)]

    def headers(self, topic: str) -> Iterator[dict[str, str]]:
        for name, _, table in self.chunks:
            if name == topic:
                for pairs in table["headers"].to_pylist():
                    yield {pair["key"]: pair["value"].decode() for pair in pairs}


def ids_in(table: Any) -> list[str]:
    found = table["id"].to_pylist()
    assert isinstance(found, list)
    return found


def test_rows_of_different_merge_modes_are_in_different_chunks(options_of: OptionsOf) -> None:
    taken = Taken()
    modes = pa.array(["keep", None, "reject", "keep"], pa.string())
    load(options_of(), taken, batch_of(ids_of(0, 4), merge=modes))
    columns = [table.to_pydict().get("merge") for _, _, table in taken.chunks]
    assert columns == [["keep", "keep"], None, ["reject"]]


def test_chunks_are_numbered_and_counted(options_of: OptionsOf) -> None:
    taken = Taken()
    batches = [batch_of(ids_of(0, 4)), batch_of([]), batch_of(ids_of(4, 8))]
    loaded = load(options_of(batchSize=3), taken, *batches)
    assert taken.ids("t") == ids_of(0, 8)
    sizes = [(number, table.num_rows) for _, number, table in taken.chunks]
    assert sizes == [(0, 3), (1, 3), (2, 2)]
    assert (loaded.rows, loaded.chunks, loaded.rejected) == (8, 3, 0)
    assert loaded.size > 0


def test_rows_go_to_their_topics_and_little_is_held_back(
    options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, taken = options_of(topic="", batchSize=100, batchBytes=1024), Taken()
    monkeypatch.setattr(task_load, "CHUNKS_HELD_MAX", 1)
    for_sent = Loading(options, Columns(options, None), taken)

    def batches() -> Iterator[Any]:
        for at in range(0, 300, 30):
            topics = [f"t{number % 7}" for number in range(30)]
            yield batch_of(ids_of(at, at + 30), topic=pa.array(topics))
            held = sum(mixed.size for mixed in for_sent._mixed.values())
            assert held < 3 * 1024

    loaded = for_sent.run(batches())
    assert loaded.rows == 300
    assert sorted(row for _, _, table in taken.chunks for row in ids_in(table)) == ids_of(0, 300)
    for topic in range(7):
        found = taken.ids(f"t{topic}")
        assert found == sorted(found)
        assert {int(each[1:]) % 30 % 7 for each in found} == {topic}
    assert [number for _, number, _ in taken.chunks] == list(range(loaded.chunks))


def test_a_refused_row_fails_with_its_id_and_the_way_out(options_of: OptionsOf) -> None:
    with pytest.raises(RowError, match=r"row with id 'm000002' for topic 't': not wanted.*onError"):
        load(options_of(), Taken(b"body of m000002"), batch_of(ids_of(0, 4)))


def test_refused_rows_are_put_aside_with_what_was_wrong(options_of: OptionsOf) -> None:
    taken = Taken(b"body of m000001", b"body of m000002")
    options = options_of(onError="deadLetter", batchSize=4)
    loaded = load(options, taken, batch_of([*ids_of(0, 6), "~mine"]))
    assert taken.ids("t") == ["m000000", "m000003", "m000004", "m000005"]
    letters = list(taken.headers("t.rejected"))
    assert [each["delaylog-rejected-id"] for each in letters] == ["~mine", "m000001", "m000002"]
    assert letters[1] == {
        "delaylog-rejected-reason": "not wanted",
        "delaylog-rejected-topic": "t",
        "delaylog-rejected-id": "m000001",
        "delaylog-rejected-deliver-at": "2026-02-02 02:40:00+00:00",
    }
    assert (loaded.rows, loaded.rejected, loaded.chunks) == (7, 3, len(taken.chunks))
    assert [number for _, number, _ in taken.chunks] == list(range(loaded.chunks))


def test_times_of_another_unit_are_put_aside_without_asking_the_broker(
    options_of: OptionsOf,
) -> None:
    """Seconds read as milliseconds are in January 1970; 0 is now."""
    times = [1_804_827_600_000, 0, -5, 1_770_000_000_000_000]
    batch = batch_of(ids_of(0, 4), deliver_at=pa.array(times, pa.int64()).cast(TIME))
    options, taken = options_of(onError="deadLetter"), Taken()
    loaded = load(options, taken, batch, base_ms=1_800_000_000_000)
    assert taken.ids("t") == ["m000001", "m000003"]
    letters = list(taken.headers("t.rejected"))
    assert [each["delaylog-rejected-id"] for each in letters] == ["m000000", "m000002"]
    assert "before 2001-09-09" in letters[0]["delaylog-rejected-reason"]
    assert (loaded.rejected, loaded.past) == (2, 2)


def test_rows_that_were_due_before_the_load_are_counted(options_of: OptionsOf) -> None:
    """By over a minute, by the broker's clock at the start: neither rows that Spark stamped with
    the current time while it planned the load, nor rows that only have a delay.
    """
    start_ms = 1_770_000_000_000
    times = [None, start_ms - PAST_MS - 1, start_ms - PAST_MS, start_ms + 1]
    due = pa.array([None if ms is None else ms * 1_000 for ms in times], pa.int64()).cast(TIME)
    for delay_ms in (0, 5_000):
        batch = batch_of(ids_of(0, 4), deliver_at=due)
        assert load(options_of(delayMs=delay_ms), Taken(), batch, base_ms=start_ms).past == 1


def test_a_whole_chunk_may_be_put_aside(options_of: OptionsOf) -> None:
    options = options_of(onError="deadLetter", deadLetterTopic="bad", batchSize=1)
    taken = Taken(b"body of m000000", status=413)
    load(options, taken, batch_of(ids_of(0, 1)))
    assert [topic for topic, _, _ in taken.chunks] == ["bad"]


def test_a_large_body_is_cut_when_it_is_put_aside(options_of: OptionsOf) -> None:
    huge = b"x" * 5_000_000
    taken = Taken(huge, status=413)
    load(options_of(onError="deadLetter"), taken, batch_of(["a"], value=pa.array([huge])))
    (table,) = (table for _, _, table in taken.chunks)
    assert len(table["value"][0].as_py()) == 256 * 1024
    (letter,) = taken.headers("t.rejected")
    assert letter["delaylog-rejected-bytes"] == "5000000"


def test_rows_of_the_dead_letter_topic_itself_do_not_mix_with_letters(
    options_of: OptionsOf,
) -> None:
    options = options_of(topic="", onError="deadLetter", deadLetterTopic="bad")
    loaded = load(options, Taken(), batch_of(["a", "~b"], topic=pa.array(["bad", "bad"])))
    assert (loaded.rows, loaded.rejected) == (2, 1)


def test_when_everything_is_refused_the_load_fails(options_of: OptionsOf) -> None:
    ids = ids_of(0, 150)
    taken = Taken(*(f"body of {each}".encode() for each in ids))
    with pytest.raises(RowError, match="more than 100 rows of one chunk"):
        load(options_of(onError="deadLetter"), taken, batch_of(ids))


def test_a_refused_letter_fails(options_of: OptionsOf) -> None:
    taken = Taken(b"body of ~a", topic="t.rejected")
    with pytest.raises(RowError, match=r"refuses a rejected row for topic 't\.rejected'"):
        load(options_of(onError="deadLetter"), taken, batch_of(["~a"]))


@pytest.mark.parametrize(("status", "item"), [(409, 0), (400, None), (413, None), (400, 99)])
def test_a_refusal_that_is_about_no_row_is_passed_on(
    options_of: OptionsOf, status: int, item: int | None
) -> None:
    def refuse(topic: str, number: int, body: bytes) -> None:
        raise RefusedError("the whole of it", status, {"item": item})

    with pytest.raises(RefusedError, match="the whole of it"):
        load(options_of(onError="deadLetter"), refuse, batch_of(ids_of(0, 3)))


def test_a_pace_is_kept(options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(task_load.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(task_load.time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    sent: list[float] = []
    options = options_of(maxRowsPerSecond=100)
    load(options, lambda *_: sent.append(now[0]), batch_of(ids_of(0, 450)))
    assert sent == [100.0, 101.0, 102.0, 103.0, 104.0]


def test_rows_of_many_topics_share_requests_and_are_numbered_by_runs(
    options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task makes one part for each topic, however its rows are mixed; rows keep their order."""
    monkeypatch.setattr(task_load, "TOPICS_A_CHUNK_MAX", 4)
    taken = Taken()
    batches = [
        batch_of(ids_of(at, at + 10), topic=pa.array([f"t{n % 5}" for n in range(10)]))
        for at in (0, 10)
    ]
    loaded = load(options_of(topic="", batchSize=8), taken, *batches, combines=True)
    found = [(topic, number, table["topic"].to_pylist()) for topic, number, table in taken.chunks]
    # Four topics, cut after eight rows; then the fifth.
    assert found == [
        (None, 0, ["t0"] * 4 + ["t1"] * 4),
        (None, 2, ["t2"] * 4 + ["t3"] * 4),
        (None, 4, ["t4"] * 4),
    ]
    for _, _, table in taken.chunks:
        pairs = list(zip(table["topic"].to_pylist(), ids_in(table), strict=True))
        assert pairs == sorted(pairs)
    assert (loaded.rows, loaded.chunks) == (20, 3)


def test_a_refused_row_of_many_topics_is_put_aside_with_its_topic(options_of: OptionsOf) -> None:
    options = options_of(topic="", onError="deadLetter", deadLetterTopic="bad")
    taken = Taken(b"body of b", topic=None)
    batch = batch_of(["a", "b", "c"], topic=pa.array(["x", "y", "z"]))
    loaded = load(options, taken, batch, combines=True)
    assert [(topic, number) for topic, number, _ in taken.chunks] == [(None, 0), ("bad", 2)]
    (headers,) = taken.headers("bad")
    assert headers["delaylog-rejected-topic"] == "y"
    assert (loaded.rows, loaded.rejected) == (3, 1)


def of(sizes: list[int], first: int = 0) -> pa.RecordBatch:
    """Rows with bodies of these sizes, numbered by priority."""
    numbers = range(first, first + len(sizes))
    return pa.record_batch(
        {"value": [b"x" * size for size in sizes], "priority": pa.array(numbers, pa.int32())}
    )


@given(
    st.lists(st.lists(st.integers(0, 200), max_size=20), max_size=10),
    st.integers(1, 15),
    st.integers(1, 500),
)
def test_chunks_keep_the_limits_and_the_order(
    sizes: list[list[int]], rows_max: int, bytes_max: int
) -> None:
    chunker, chunks, first = Chunker(rows_max, bytes_max), [], 0
    for each in sizes:
        chunks += list(chunker.add(of(each, first)))
        first += len(each)
    chunks += list(chunker.rest())
    assert list(chunker.rest()) == []
    numbers = []
    for chunk in chunks:
        table = read(chunk.body(None))
        assert table.num_rows == chunk.rows <= rows_max
        taken = sum(len(value) + ROW_BYTES for value in table["value"].to_pylist())
        assert taken == chunk.size
        assert taken <= bytes_max or chunk.rows == 1
        numbers += table["priority"].to_pylist()
    assert numbers == list(range(first))


def test_full_chunks_are_as_full_as_they_may_be() -> None:
    chunker = Chunker(4, 10_000)
    rows = [chunk.rows for chunk in chunker.add(of([1] * 10))]
    assert (rows, chunker.size) == ([4, 4], 2 * (1 + ROW_BYTES))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_body_is_read_again_whatever_packs_it(compression: str | None) -> None:
    chunk = Chunk([of([100] * 100)], 100)
    assert read(chunk.body(compression)) == pa.Table.from_batches(chunk.batches)
    assert (len(chunk.body(compression)) < 5_000) == (compression is not None)


def test_one_row_can_be_taken_out() -> None:
    chunk = Chunk([of([1, 2]), of([3, 4, 5], 2)], 5)
    assert chunk.row(3).column("priority").to_pylist() == [3]
    rest = chunk.without(3)
    assert rest.rows == 4
    assert read(rest.body(None))["priority"].to_pylist() == [0, 1, 2, 4]
    assert read(rest.without(0).without(0).body(None))["priority"].to_pylist() == [2, 4]
    with pytest.raises(IndexError):
        chunk.row(5)


def test_texts_count_and_headers_by_their_mean() -> None:
    batch = pa.record_batch(
        {
            "value": [b"12345", None],
            "id": ["ä", None],
            "headers": pa.array([[{"key": "k", "value": b"v"}], None], HEADERS),
        }
    )
    plain = row_bytes(batch.drop_columns(["headers"]))
    assert plain.tolist() == [ROW_BYTES + 7, ROW_BYTES]
    assert (row_bytes(batch) > plain).all()


TOPICS = st.lists(st.lists(st.sampled_from("abcd"), max_size=12), min_size=1, max_size=4)


@given(TOPICS, st.integers(1, 5))
def test_rows_are_sorted_stably_and_cut_where_a_topic_ends(
    batches: list[list[str]], runs_max: int
) -> None:
    """Against Python's sort and groupby."""
    mixed, model = MixedRows(), []
    for topics in batches:
        ids = [f"{len(model) + at:03d}" for at in range(len(topics))]
        model += list(zip(topics, ids, strict=True))
        mixed.add(batch_of(ids, topic=pa.array(topics, pa.string())))
    assert (mixed.size > 0) == bool(model)
    found = mixed.take()
    assert mixed.size == 0
    assert mixed.take() == []
    model.sort(key=lambda pair: pair[0])
    rows = [
        pair
        for batch in found
        for pair in zip(batch["topic"].to_pylist(), batch["id"].to_pylist(), strict=True)
    ]
    assert rows == model
    for batch in found:
        topics = batch["topic"].to_pylist()
        expected = [(topic, len(list(group))) for topic, group in groupby(topics)]
        assert [(topic, count) for topic, _, count in runs_of(batch)] == expected
        assert all(topics[first] == topic for topic, first, _ in runs_of(batch))
        groups = list(groups_of_runs(batch, runs_max))
        assert [row for group in groups for row in group["topic"].to_pylist()] == topics
        assert all(len(run_starts(group)) <= runs_max for group in groups)
