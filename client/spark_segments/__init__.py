"""Lets Spark discover the format `delaylog-segments`.

Spark looks for one `DefaultSource` in each top-level module whose name begins with `pyspark_`; that
of `pyspark_delaylog` is the format `delaylog`. So this package is imported by the name
`pyspark_delaylog_segments` only.
"""

from pyspark_delaylog.segments.source import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
