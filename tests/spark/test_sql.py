"""SQL alone: views of the formats, and INSERT INTO, as docs/SPARK_SQL.md shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.engine.host import Host
from tests.client.spark.fake_broker import FakeBroker

PAGE = Path(__file__).parents[2] / "docs" / "SPARK_SQL.md"


@pytest.fixture
def statements() -> list[str]:
    """The statements of the page, in order."""
    block = PAGE.read_text().split("```sql\n")[1].split("```")[0]
    return [each.strip() for each in block.split(";") if each.strip()]


@pytest.fixture(autouse=True)
def no_views(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("reminders", "messages"):
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
