"""SQL alone: views of the formats, and INSERT INTO, as docs/SPARK.md shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.broker.engine.host import Host
from tests.client.spark.fake_broker import FakeBroker

PAGE = Path(__file__).parents[2] / "docs" / "SPARK.md"


@pytest.fixture
def statements() -> list[str]:
    """The statements of the page, in order."""
    block = PAGE.read_text().split("```sql\n")[1].split("```")[0]
    return [each.strip() for each in block.split(";") if each.strip()]


@pytest.fixture(autouse=True)
def no_views(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("reminders", "messages", "bare", "coloured"):
        spark.catalog.dropTempView(name)


def test_the_statements_of_the_page(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path, statements: list[str]
) -> None:
    """Rows are sent by INSERT INTO a view, and a folder's messages are counted."""
    host = Host(tmp_path / "data")
    host.send(5, delay=1_000)
    host.checkpoint()
    host.close()
    create, insert, look, count = (
        each.replace("http://127.0.0.1:8711", broker.url).replace(
            "/var/lib/delaylog", str(host.folder)
        )
        for each in statements
    )
    spark.sql(create)
    spark.sql(insert)
    assert sorted(broker.ids("reminders")) == ["rent-1", "rent-2"]
    assert {row["value"] for row in broker.rows("reminders")} == {b"pay rent"}
    spark.sql(look)
    found = spark.sql(count).collect()
    assert [(row["topic"], row["n"]) for row in found] == [("t", 5)]


VIEW = "(id string, value string, deliver_at timestamp)"
ROW = "'a' AS id, 'pay rent' AS value, current_timestamp() AS deliver_at"
REFUSED = {
    "SELECT * FROM reminders": "a queue cannot be read as a batch",
    "INSERT INTO reminders TABLE reminders": "a queue cannot be read as a batch",
    f"INSERT OVERWRITE reminders SELECT {ROW}": "sent messages cannot be overwritten; write "
    '.mode("append"), or INSERT INTO in SQL',
    f"CREATE TABLE made USING delaylog OPTIONS (topic 't') AS SELECT {ROW}": "In SQL write CREATE "
    "TEMPORARY VIEW: Spark does not pass on the OPTIONS of a CREATE TABLE",
    "INSERT INTO reminders (id, colour) VALUES ('a', 'red')": "`colour` cannot be resolved",
    "INSERT INTO reminders VALUES ('a', 'pay rent')": "not enough data columns",
    "INSERT INTO reminders VALUES ('a', 'pay rent', 'tomorrow')": "Cannot safely cast `deliver_at`",
    "INSERT INTO coloured VALUES ('pay rent', current_timestamp(), 'red')": "column 'colour' is not"
    " known; rename or drop it",
    "INSERT INTO bare (value, deliver_at) VALUES (X'00', current_timestamp())": "column "
    "'attempts' is not known",
    "DELETE FROM reminders WHERE id = 'a'": "does not support deletes",
}


@pytest.fixture
def views(spark: SparkSession, broker: FakeBroker) -> None:
    columns = {
        "reminders": VIEW,
        "coloured": "(value string, deliver_at timestamp, colour string)",
        "bare": "",
    }
    for name, declared in columns.items():
        spark.sql(
            f"CREATE TEMPORARY VIEW {name} {declared} USING delaylog "
            f"OPTIONS (endpoint '{broker.url}', topic 'reminders')"
        )


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("statement", REFUSED)
def test_what_a_queue_cannot_do_is_refused(
    spark: SparkSession, broker: FakeBroker, statement: str
) -> None:
    """By an error that says why, and nothing is sent or left in the catalog."""
    with pytest.raises(PySparkException) as caught:
        spark.sql(statement).collect()
    assert REFUSED[statement] in str(caught.value)
    assert broker.sent == {}
    assert spark.sql("SHOW TABLES").where("NOT isTemporary").collect() == []


@pytest.mark.usefixtures("views")
def test_columns_are_inserted_by_name_too(spark: SparkSession, broker: FakeBroker) -> None:
    """By a list, which may leave columns out, and by BY NAME; else by their position."""
    spark.sql("INSERT INTO reminders (deliver_at, value) VALUES (current_timestamp(), 'listed')")
    spark.sql(
        "INSERT INTO reminders BY NAME SELECT 'named' AS value, current_timestamp() AS deliver_at,"
        " 'b' AS id"
    )
    found = [(row["id"], row["value"]) for row in broker.rows("reminders")]
    assert found == [(None, b"listed"), ("b", b"named")]
