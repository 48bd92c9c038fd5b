"""A broker of its own for every test, options that name it, and a task that the test plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspark_delaylog import tasks
from pyspark_delaylog.options import Options
from tests.client.spark.fake_broker import FakeBroker
from tests.client.spark.task_context import Spark

OptionsOf = Callable[..., Options]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def options_of(broker: FakeBroker) -> OptionsOf:
    """Options of this broker; retries wait hardly, and not for long."""

    def made(**given: Any) -> Options:
        said = {
            "endpoint": broker.url,
            "topic": "t",
            "retryWaitMs": 1,
            "retryForMs": 1_000,
            **given,
        }
        return Options.parse({name: str(value) for name, value in said.items()})

    return made


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    spark = Spark()
    monkeypatch.setattr(tasks, "TaskContext", spark)
    return spark
