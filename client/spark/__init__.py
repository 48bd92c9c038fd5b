"""A data source for Apache Spark, imported by the name `pyspark_delaylog` only.

Spark discovers `DefaultSource` because the name of the module begins with `pyspark_`, so
`format("delaylog")` works where this package is installed; elsewhere `register` does it. A name is
imported when it is first used, so that a program can run without pyspark, for example with
`--help`. The package imports nothing from `delaylog` but in `segments` and `jobs`, so that it can
be installed, or shipped to executors, alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_MODULES: Final = {
    "DelaylogSource": "source",
    "home_shard": "shards",
    "last_result": "load_result",
    "register": "versions",
    "write_frame": "writers",
}
__all__ = [
    "DefaultSource",
    "DelaylogSource",
    "home_shard",
    "last_result",
    "register",
    "write_frame",
]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from pyspark_delaylog.versions import loaded_source

        return loaded_source()
    if name in _MODULES:
        return getattr(import_module(f"pyspark_delaylog.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
