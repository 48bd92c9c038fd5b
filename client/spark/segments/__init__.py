"""The format `delaylog-segments`: a broker's data folder, or a backup of one, as a table.

Read only, live or offline. Everything but `source` does without Spark.
"""
