"""Load the reminders of a day, once: `load_reminders.py DAY SOURCE`."""

import sys

from pyspark.sql import SparkSession

day, source = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
(
    spark.read.parquet(f"{source}/day={day}")
    .write.format("delaylog")
    .option("topic", "reminders")
    .option("txnAppId", f"reminders-{day}")
    .option("wait", "published")
    .mode("append")
    .save()
)
