"""Loads packages in the daemons of Spark's Python workers, before they fork; see `session`.

Spark gives each load five workers, which would each take half a second of a processor for it. Spark
forbids threads before a fork, so the libraries must start none.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    os.environ |= {
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }
    for name in (*sys.orig_argv[3:], "pandas", "pyspark_delaylog.source"):
        import_module(name)
    assert len(list(Path("/proc/self/task").glob("*"))) <= 1, "a fork would lose a thread"
