"""Several brokers: rows go where `Client(a, b)` sends them, and looks for them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from delaylog.client import BySlot
from delaylog.client.shards.sharding import ByKey, Sharding
from pyspark_delaylog import home_shard
from pyspark_delaylog.errors import OptionError
from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import ids_of, messages
from tests.spark.session import ROOT

ROWS = [
    *((f"id-{n}", None if n % 3 else f"key-{n % 50}", f"body {n}") for n in range(2_000)),
    *((f"id-{n}", "", "x") for n in range(50)),
    ("ä€𝄞", None, "x"),
    ("id", "ключ", "x"),
    ("", "", "a"),
    (None, None, "b"),
]
SCHEMA = "id string, key string, value string"


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("sharding", [ByKey(), BySlot(8), BySlot(1024)], ids=repr)
def test_the_home_of_a_row_is_that_of_the_sdk(
    spark: SparkSession, shards: int, sharding: Sharding
) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    slots = sharding.slots if isinstance(sharding, BySlot) else None
    found = frame.withColumn("home", home_shard(frame, shards, slots=slots)).collect()
    homes = [row.home for row in found]
    wanted = [sharding.home(row.id, row.key, shards) for row in found]
    assert [home for home, sure in zip(homes, wanted, strict=True) if sure is not None] == [
        each for each in wanted if each is not None
    ]
    assert set(homes) == set(range(shards))
    again = frame.repartition(3).withColumn("home", home_shard(frame, shards, slots=slots))
    assert sorted(row.home for row in again.collect()) == sorted(homes), "of rows without both too"


def test_a_frame_without_keys_and_ids_is_divided_by_its_bodies(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA).select("value")
    counts = frame.groupBy(home_shard(frame, 2)).count().collect()
    assert sum(row["count"] for row in counts) == len(ROWS)
    assert len(counts) == 2


def test_the_recipe_of_the_page(spark: SparkSession, broker: FakeBroker) -> None:
    """Both brokers together have each row, once; a second run adds none."""
    page = (ROOT / "docs" / "SPARK.md").read_text()
    recipe = page.split("### Several brokers")[1].split("```python\n")[1].split("```")[0]
    with FakeBroker() as other:
        recipe = recipe.replace("http://127.0.0.1:8711", broker.url)
        recipe = recipe.replace("http://127.0.0.1:8712", other.url)
        for _ in range(2):
            exec(compile(recipe, "SPARK.md", "exec"), {"frame": messages(spark, 0, 200)})
        found = [each.ids("bills") for each in (broker, other)]
    assert sorted(found[0] + found[1]) == ids_of(0, 200)
    for number, ids in enumerate(found):
        assert {ByKey().home(each, None, 2) for each in ids} == {number}


@pytest.mark.parametrize(
    "given", [{"shards": 0}, {"shards": 4, "slots": 2}, {"shards": 2, "slots": 6}]
)
def test_impossible_numbers_are_refused(spark: SparkSession, given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="home_shard"):
        home_shard(spark.createDataFrame(ROWS, SCHEMA), **given)
