"""One session of Spark for all tests below this folder, and a broker of its own for each.

A session takes some 15 s to start, so it is shared. Tasks are tried four times, which plain
`local[2]` would not do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.real.real_broker import RealBroker
from tests.spark.session import prepare_environment, start_session


def pytest_configure(config: pytest.Config) -> None:
    """What PySpark and pandas call in each other is their affair."""
    for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    prepare_environment()
    session = start_session(tmp_path_factory.mktemp("spark"))
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealBroker]:
    with RealBroker(tmp_path) as broker:
        yield broker


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Of 600 rows, so that tasks have some before they fail."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "600")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
