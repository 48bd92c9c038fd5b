"""`delaylog spark …`: the jobs of `pyspark_delaylog`, which replace this process.

Neither the broker nor this verb imports Spark, which takes half a gigabyte and needs Java. The verb
checks that it is installed and replaces itself by the job.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Final

from delaylog.broker.cli.failing import UsageError
from delaylog.extras import EXTRAS, command

HINT: Final = command("spark")


def spark_command(args: argparse.Namespace) -> int:
    """Replace this process by the job. Raises UsageError if a package is missing."""
    missing = [name for name in sorted(EXTRAS["spark"]) if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the jobs on Spark need {', '.join(missing)}; run: {HINT}")
    # -P: do not import modules from the current folder.
    words = [sys.executable, "-P", "-m", "pyspark_delaylog.jobs", *args.words]
    sys.stdout.flush()
    os.execv(sys.executable, words)
