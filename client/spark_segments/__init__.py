"""Lets Spark discover the format `delaylog-segments`.

Spark looks for one `DefaultSource` in each top-level module whose name begins with `pyspark_`; that
of `pyspark_delaylog` is the format `delaylog`. So this package is imported by the name
`pyspark_delaylog_segments` only. Without the package `delaylog` it is a class that says so.
"""

from pyspark_delaylog.versions import loaded_segments

DefaultSource = loaded_segments()

__all__ = ["DefaultSource"]
