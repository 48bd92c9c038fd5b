"""A data source for Apache Spark, imported by the name `pyspark_delaylog` only.

Spark discovers `DefaultSource` because the name of the module begins with `pyspark_`, so
`format("delaylog")` works without registration. pyspark is imported only when one of the names
is used, so that a program can run without it, for example with `--help`. The package imports
nothing from `delaylog`, so that it can be shipped to executors alone, with `--py-files`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource", "DelaylogSource", "last_result"]


def __getattr__(name: str) -> Any:
    if name == "last_result":
        from pyspark_delaylog.results.reporting import last_result

        return last_result
    if name in __all__:
        from pyspark_delaylog.source import DelaylogSource

        return DelaylogSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
