"""A data source for Apache Spark, imported by the name `pyspark_delaylog` only.

Spark finds `DefaultSource` here by itself, because the module's name begins with `pyspark_`: then
`format("delaylog")` works without registering anything. Nothing here imports pyspark before one of
the two names is asked for, so that what runs without it (a program's `--help`) can say so itself.
The package imports nothing from `delaylog`: executors may get it alone, by `--py-files`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource", "DelaylogSource"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pyspark_delaylog.source import DelaylogSource

        return DelaylogSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
