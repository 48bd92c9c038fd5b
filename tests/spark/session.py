"""Sessions of Spark on this machine: the one that tests share, and those of drivers to be killed.

Workers find what tests define by PYTHONPATH, in whichever process the session is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
TRIED_FOUR_TIMES = "local[2,4]"
"""Tasks, which plain `local[2]` would not try again."""


def prepare_environment() -> None:
    """For Spark in this process and in those that it starts."""
    script = ROOT / "tests" / "spark" / "get_java.sh"
    java = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    os.environ["JAVA_HOME"] = java.stdout.strip()
    # Workers are plain `python3` unless this says otherwise.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # What tests run is too short for the optimizing compiler, which takes a quarter of their time.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_session(
    folder: Path, master: str = TRIED_FOUR_TIMES, settings: dict[str, str] | None = None
) -> SparkSession:
    """A session that keeps all its files below `folder`, and says little."""
    logging = folder / "log4j2.properties"
    logging.write_text(QUIET)
    ours = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging}",
    }
    builder = SparkSession.builder.master(master).appName("delaylog tests")
    for name, value in (ours | (settings or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
# A task that fails on purpose is told by its job.
logger.tasks.name = org.apache.spark
logger.tasks.level = off
"""
