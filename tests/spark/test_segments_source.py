"""The format `delaylog-segments` in Spark: found by its name, filtered, packed into tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.engine.host import HOUR, START_MS, Host

START_HOUR = START_MS // HOUR


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """24 hours of two topics; the first hour is acknowledged, with one dead letter."""
    host = Host(tmp_path_factory.mktemp("broker") / "data")
    host.configure(max_retry=0, ended_keep_ms=1_000 * HOUR)
    due = [k % 24 * HOUR + 60_000 + k for k in range(4_800)]
    host.send(
        [b"body %d" % k for k in range(4_800)], delay=due, ids=[f"i{k}" for k in range(4_800)]
    )
    host.send(240, delay=[k % 24 * HOUR for k in range(240)], topic="u")
    host.advance(70_000)
    got = host.receive(10_000)
    assert len(got) == 200
    host.nack(got[:1])
    host.ack(got[1:])
    host.checkpoint()
    yield host.folder
    host.close()


def load(spark: Any, folder: Path, **options: Any) -> Any:
    return spark.read.format("delaylog-segments").options(**options).load(str(folder))


def test_the_format_is_found_and_a_folder_is_a_table(spark: Any, folder: Path) -> None:
    frame = load(spark, folder)
    counts = {
        (row["topic"], row["state"]): row["count"]
        for row in frame.groupBy("topic", "state").count().collect()
    }
    assert counts == {
        ("t", "acked"): 199,
        ("t", "dead"): 1,
        ("t", "waiting"): 4_600,
        ("u", "ready"): 10,
        ("u", "waiting"): 230,
    }
    assert dict(frame.dtypes)["deliver_at"] == "timestamp"


def test_hours_are_packed_into_as_many_tasks_as_asked_for(spark: Any, folder: Path) -> None:
    for count in (1, 2, 7):
        parts = load(spark, folder, numPartitions=count).rdd.glom().map(len).collect()
        assert len(parts) == count
        assert sum(parts) == 5_040
        assert max(parts) < 2 * 5_040 / count


@pytest.fixture(params=["true", "false"], ids=["pushing", "not pushing"])
def pushing(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield
    spark.conf.set(name, before)


HOUR_3 = f"timestamp_millis({(START_HOUR + 3) * HOUR})"
ALL = "SELECT count(*) FROM messages"
QUERIES = {
    ALL: 5_040,
    f"{ALL} WHERE topic = 'u'": 240,
    f"{ALL} WHERE topic = 'absent'": 0,
    f"{ALL} WHERE hour = {HOUR_3}": 210,
    f"{ALL} WHERE hour >= {HOUR_3} AND topic IN ('u', 'v')": 210,
    f"{ALL} WHERE deliver_at < {HOUR_3} AND state = 'waiting'": 420,
    f"{ALL} WHERE state = 'dead' OR topic = 'u'": 241,
    f"{ALL} WHERE attempts = 1 AND namespace = 'default'": 200,
    "SELECT count(DISTINCT topic) FROM messages": 2,
    f"{ALL} a JOIN messages b USING (ref) WHERE a.topic = 'u' AND b.state = 'waiting'": 230,
    "SELECT (SELECT count(*) FROM messages WHERE topic = 'u') - "
    "(SELECT count(*) FROM messages WHERE topic = 't')": -4_560,
    "SELECT count(*) FROM (SELECT ref FROM messages WHERE topic = 'u' UNION ALL "
    "SELECT ref FROM messages WHERE state = 'dead' UNION ALL SELECT ref FROM messages)": 5_281,
    f"{ALL} WHERE topic = 'u' AND hour IN (SELECT hour FROM messages WHERE state = 'dead')": 10,
}
"""Queries and their counts."""


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("kind", ["DataFrame", "view", "cached"])
def test_a_table_that_is_used_often_gives_each_query_its_own_rows(
    spark: Any, folder: Path, kind: str
) -> None:
    """In turn, and after each other one: no query gets the rows of an earlier one."""
    if kind == "view":
        spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW messages USING `delaylog-segments` "
            f"OPTIONS (path '{folder}', numPartitions 2)"
        )
    else:
        frame = load(spark, folder, numPartitions=2)
        (frame.cache() if kind == "cached" else frame).createOrReplaceTempView("messages")
    queries = list(QUERIES)
    for query in [*queries, *queries[::-1], queries[1], queries[0], queries[3], queries[0]]:
        assert spark.sql(query).first()[0] == QUERIES[query], query
    spark.catalog.clearCache()
    spark.catalog.dropTempView("messages")


def test_a_view_shows_the_folder_as_of_its_first_query(spark: Any, tmp_path: Path) -> None:
    host = Host(tmp_path / "data")
    counts = []
    for _ in range(2):
        host.send(10, delay=HOUR)
        host.checkpoint()
        counts.append(load(spark, host.folder).count())
        if len(counts) == 1:
            load(spark, host.folder).createOrReplaceTempView("messages")
        counts.append(spark.sql(ALL).first()[0])
    assert counts == [10, 10, 20, 10]
    host.close()
    spark.catalog.dropTempView("messages")


def test_a_mistake_is_said_before_anything_runs(spark: Any, folder: Path) -> None:
    with pytest.raises(Exception, match="unknown option 'starthoure'"):
        load(spark, folder, startHoure="x").count()
    with pytest.raises(Exception, match="not a broker's data folder"):
        load(spark, folder / "hours").count()
