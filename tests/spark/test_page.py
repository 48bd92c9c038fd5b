"""The examples of docs/SPARK.md are run as they stand, but for the places they name."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import messages
from tests.spark.session import ROOT
from tests.spark.test_consuming_stream import fill

EXAMPLE = r'delaylog"\)|write_frame\(|last_result\(\)'


def test_the_examples_do_what_they_say(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "SPARK.md").read_text()
    # What is fenced is run by test_shards.py.
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"(?:^    .*\n|^\n)+", page, re.MULTILINE)
    examples = [textwrap.dedent(block) for block in blocks if re.search(EXAMPLE, block)]
    assert len(examples) == 5
    messages(spark, 0, 10).select("id", "value", "deliver_at").write.parquet(
        str(tmp_path / "reminders")
    )
    fill(broker, 5)
    broker.ready["reminders"] = broker.ready.pop("t")
    names: dict[str, object] = {}
    for example in examples:
        placed = example.replace("http://127.0.0.1:8711", broker.url)
        exec(compile(placed.replace("/data", str(tmp_path)), "SPARK.md", "exec"), names)
    assert len(broker.rows("reminders")) == 1_010
    assert broker.transactions["reminders-2026-11"].rows == 1_000
    assert broker.transactions["notices-2026-11"].rows == 1_000
    assert len(broker.acked) == 5
    told = capsys.readouterr().out
    assert "1000 1000" in told, "rows and added of the batch load"
    assert "0 5" in told
