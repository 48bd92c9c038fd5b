"""One session of Spark for all tests below this folder, and a broker of its own for each.

A session takes some 15 s to start, so it is shared. Tasks are tried four times, which plain
`local[2]` would not do. Workers find what tests define by PYTHONPATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.client.spark.fake_broker import FakeBroker

ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    """What PySpark and pandas call in each other is their affair."""
    for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    script = ROOT / "tests" / "spark" / "get_java.sh"
    java = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    os.environ["JAVA_HOME"] = java.stdout.strip()
    # Workers are plain `python3` unless this says otherwise.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging = folder / "log4j2.properties"
    logging.write_text(QUIET)
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("delaylog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{logging}")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


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
