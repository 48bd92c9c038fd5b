"""A data source for Apache Spark, imported by the name `pyspark_delaylog` only."""
