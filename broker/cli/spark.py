"""`delaylog spark …`: the jobs of `pyspark_delaylog`, in a process of their own.

The broker never imports Spark, which brings half a gigabyte and needs Java; nor does this verb. It
looks whether it is there and becomes the job.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Final

from delaylog.broker.host.config import ConfigError

NEEDED: Final = ("pyspark", "pyarrow", "pandas", "pyspark_delaylog")
HINT: Final = "pip install 'delaylog[spark]'"


def spark_command(args: argparse.Namespace) -> int:
    """Become the job; returns only when it cannot. Raises ConfigError."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the jobs on Spark need {', '.join(missing)}: {HINT}")
    # -P: the folder one happens to stand in is no place to import from.
    words = [sys.executable, "-P", "-m", "pyspark_delaylog.jobs", *args.words]
    sys.stdout.flush()
    os.execv(sys.executable, words)
