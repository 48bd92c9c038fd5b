"""A task's rows on their way: numbers of chunks, topics, rejected rows, and the pace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyspark_delaylog import task_load
from pyspark_delaylog.columns import PAST_MS, Columns
from pyspark_delaylog.errors import RefusedError, RowError
from pyspark_delaylog.task_load import Loading
from tests.client.spark.batches import TIME, batch_of, ids_of
from tests.client.spark.conftest import OptionsOf


class Taken:
    """Takes chunks, and refuses rows for a topic whose body is among the unwanted."""

    def __init__(self, *unwanted: bytes, status: int = 400, topic: str = "t") -> None:
        self.chunks: list[tuple[str, int, Any]] = []
        self.tries = 0
        self._unwanted = unwanted
        self._status = status
        self._topic = topic

    def __call__(self, topic: str, number: int, body: bytes) -> None:
        self.tries += 1
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
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
    options, taken = options_of(), Taken()
    modes = pa.array(["keep", None, "reject", "keep"], pa.string())
    Loading(options, Columns(options, None), taken).run([batch_of(ids_of(0, 4), merge=modes)])
    columns = [table.to_pydict().get("merge") for _, _, table in taken.chunks]
    assert columns == [["keep", "keep"], None, ["reject"]]


def test_chunks_are_numbered_and_counted(options_of: OptionsOf) -> None:
    options, taken = options_of(batchSize=3), Taken()
    batches = [batch_of(ids_of(0, 4)), batch_of([]), batch_of(ids_of(4, 8))]
    loaded = Loading(options, Columns(options, None), taken).run(iter(batches))
    assert taken.ids("t") == ids_of(0, 8)
    assert [(number, table.num_rows) for _, number, table in taken.chunks] == [
        (0, 3),
        (1, 3),
        (2, 2),
    ]
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
    options = options_of()
    with pytest.raises(RowError, match=r"row with id 'm000002' for topic 't': not wanted.*onError"):
        Loading(options, Columns(options, None), Taken(b"body of m000002")).run(
            [batch_of(ids_of(0, 4))]
        )


def test_refused_rows_are_put_aside_with_what_was_wrong(options_of: OptionsOf) -> None:
    options = options_of(onError="deadLetter", batchSize=4)
    taken = Taken(b"body of m000001", b"body of m000002")
    ids = [*ids_of(0, 6), "~mine"]
    loaded = Loading(options, Columns(options, None), taken).run([batch_of(ids)])
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
    options = options_of(onError="deadLetter")
    times = [1_804_827_600_000, 0, -5, 1_770_000_000_000_000]
    taken = Taken()
    loaded = Loading(options, Columns(options, 1_800_000_000_000), taken).run(
        [batch_of(ids_of(0, 4), deliver_at=pa.array(times, pa.int64()).cast(TIME))]
    )
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
        options = options_of(delayMs=delay_ms)
        loaded = Loading(options, Columns(options, start_ms), Taken()).run(
            [batch_of(ids_of(0, 4), deliver_at=due)]
        )
        assert loaded.past == 1


def test_a_whole_chunk_may_be_put_aside(options_of: OptionsOf) -> None:
    options = options_of(onError="deadLetter", deadLetterTopic="bad", batchSize=1)
    taken = Taken(b"body of m000000", status=413)
    Loading(options, Columns(options, None), taken).run([batch_of(ids_of(0, 1))])
    assert [topic for topic, _, _ in taken.chunks] == ["bad"]


def test_a_large_body_is_cut_when_it_is_put_aside(options_of: OptionsOf) -> None:
    options = options_of(onError="deadLetter")
    huge = b"x" * 5_000_000
    taken = Taken(huge, status=413)
    batch = batch_of(["a"], value=pa.array([huge]))
    Loading(options, Columns(options, None), taken).run([batch])
    (table,) = (table for _, _, table in taken.chunks)
    assert len(table["value"][0].as_py()) == 256 * 1024
    (letter,) = taken.headers("t.rejected")
    assert letter["delaylog-rejected-bytes"] == "5000000"


def test_rows_of_the_dead_letter_topic_itself_do_not_mix_with_letters(
    options_of: OptionsOf,
) -> None:
    options = options_of(topic="", onError="deadLetter", deadLetterTopic="bad")
    taken = Taken()
    batch = batch_of(["a", "~b"], topic=pa.array(["bad", "bad"]))
    loaded = Loading(options, Columns(options, None), taken).run([batch])
    assert (loaded.rows, loaded.rejected) == (2, 1)


def test_when_everything_is_refused_the_load_fails(options_of: OptionsOf) -> None:
    options = options_of(onError="deadLetter")
    ids = ids_of(0, 150)
    taken = Taken(*(f"body of {each}".encode() for each in ids))
    with pytest.raises(RowError, match="more than 100 rows of one chunk"):
        Loading(options, Columns(options, None), taken).run([batch_of(ids)])


def test_a_refused_letter_fails(options_of: OptionsOf) -> None:
    options = options_of(onError="deadLetter")
    taken = Taken(b"body of ~a", topic="t.rejected")
    with pytest.raises(RowError, match=r"refuses a rejected row for topic 't\.rejected'"):
        Loading(options, Columns(options, None), taken).run([batch_of(["~a"])])


@pytest.mark.parametrize(("status", "item"), [(409, 0), (400, None), (413, None), (400, 99)])
def test_a_refusal_that_is_about_no_row_is_passed_on(
    options_of: OptionsOf, status: int, item: int | None
) -> None:
    def refuse(topic: str, number: int, body: bytes) -> None:
        raise RefusedError("the whole of it", status, {"item": item})

    options = options_of(onError="deadLetter")
    with pytest.raises(RefusedError, match="the whole of it"):
        Loading(options, Columns(options, None), refuse).run([batch_of(ids_of(0, 3))])


def test_a_pace_is_kept(options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(task_load.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(task_load.time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    options, sent = options_of(maxRowsPerSecond=100), []

    def send(topic: str, number: int, body: bytes) -> None:
        sent.append(now[0])

    Loading(options, Columns(options, None), send).run([batch_of(ids_of(0, 450))])
    assert sent == [100.0, 101.0, 102.0, 103.0, 104.0]


def test_rows_of_many_topics_share_requests_and_are_numbered_by_runs(
    options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task makes one part for each topic, however its rows are mixed; rows keep their order."""
    monkeypatch.setattr(task_load, "TOPICS_A_CHUNK_MAX", 4)
    options, sent = options_of(topic="", batchSize=8), []

    def send(topic: str | None, number: int, body: bytes) -> None:
        assert topic is None
        with pa.ipc.open_stream(body) as stream:
            sent.append((number, stream.read_all()))

    batches = [
        batch_of(ids_of(at, at + 10), topic=pa.array([f"t{n % 5}" for n in range(10)]))
        for at in (0, 10)
    ]
    loaded = Loading(options, Columns(options, None), send, combines=True).run(batches)
    found = [(number, table["topic"].to_pylist()) for number, table in sent]
    # Four topics, cut after eight rows; then the fifth.
    assert found == [
        (0, ["t0"] * 4 + ["t1"] * 4),
        (2, ["t2"] * 4 + ["t3"] * 4),
        (4, ["t4"] * 4),
    ]
    for _, table in sent:
        pairs = list(zip(table["topic"].to_pylist(), ids_in(table), strict=True))
        assert pairs == sorted(pairs)
    assert (loaded.rows, loaded.chunks) == (20, 3)


def test_a_refused_row_of_many_topics_is_put_aside_with_its_topic(options_of: OptionsOf) -> None:
    options = options_of(topic="", onError="deadLetter", deadLetterTopic="bad")
    taken: list[tuple[str | None, int, Any]] = []

    def send(topic: str | None, number: int, body: bytes) -> None:
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        for row, value in enumerate(table["value"].to_pylist()):
            if value == b"body of b" and topic is None:
                raise RefusedError("refused", 400, {"item": row, "detail": "not wanted"})
        taken.append((topic, number, table))

    batch = batch_of(["a", "b", "c"], topic=pa.array(["x", "y", "z"]))
    loaded = Loading(options, Columns(options, None), send, combines=True).run([batch])
    assert [(topic, number) for topic, number, _ in taken] == [(None, 0), ("bad", 2)]
    (headers,) = taken[1][2]["headers"].to_pylist()
    assert {"key": "delaylog-rejected-topic", "value": b"y"} in headers
    assert (loaded.rows, loaded.rejected) == (3, 1)
