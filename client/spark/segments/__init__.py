"""The format `delaylog-segments`: a broker's data folder, or a backup of one, as a table.

Read-only; the broker may be running. Only `source` requires Spark.
"""
