"""A program of Spark that prints whatever Spark shows of the options of a source and a sink.

Arguments: a folder with a file `token`, and the address of a broker. Everything that Spark keeps
goes below the folder.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tests.spark.session import prepare_environment, start_session

folder, url = Path(sys.argv[1]), sys.argv[2]
events = folder / "events"
events.mkdir()
prepare_environment()
spark = start_session(
    folder,
    settings={
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    },
)


def use(way: str, **token: str) -> None:
    """A load, a stream of each kind with its plans, and a load that fails."""
    given = {"endpoint": url, "topic": "t", **token}
    frame = spark.range(20).select(
        f.concat(f.lit(way), "id").alias("value"), f.current_timestamp().alias("deliver_at")
    )
    frame.write.format("delaylog").options(**given).mode("append").save()
    stream = spark.readStream.format("delaylog").options(**given).load()
    stream.explain(True)
    query = (
        stream.select("value", "deliver_at")
        .writeStream.format("delaylog")
        .options(**given)
        .option("checkpointLocation", str(folder / "checkpoints" / way))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    query.explain(True)
    print(query.lastProgress)
    refused = frame.withColumn("value", f.lit("refuse me"))
    try:
        refused.write.format("delaylog").options(**given).mode("append").save()
    except PySparkException as error:
        print("refused:", error)


use("file", tokenFile=str(folder / "token"))
use("option", token=(folder / "token").read_text())
base = spark.sparkContext.uiWebUrl
for page in (
    "/SQL/",
    "/SQL/execution/?id=0",
    "/SQL/execution/?id=3",
    "/environment/",
    "/jobs/",
    "/StreamingQuery/",
):
    with urllib.request.urlopen(base + page) as found:
        print(found.read().decode())
spark.stop()
