"""Examples for Airflow and dbt: the program runs with the arguments of the DAG, and the hooks run.

Airflow and dbt are stood in for: what they would do with examples/spark is done here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import ids_of, messages
from tests.spark.session import ROOT

FOLDER = ROOT / "examples" / "spark"
DAY = "20261128"


def example(name: str) -> str:
    return (FOLDER / name).read_text()


class Operator:
    """Of Airflow; it notes what the DAG says."""

    said: dict[str, Any]

    def __init__(self, **said: Any) -> None:
        type(self).said = said


class Dag:
    """Of Airflow."""

    def __init__(self, name: str, **schedule: Any) -> None:
        assert (name, schedule["schedule"]) == ("reminders", "@daily")

    def __enter__(self) -> None:
        """The operators follow."""

    def __exit__(self, *error: object) -> None:
        """Nothing is scheduled."""


def run_dag(monkeypatch: pytest.MonkeyPatch, dag: str) -> dict[str, Any]:
    """What its operator was given."""
    place = "airflow.providers.apache.spark.operators.spark_submit"
    for name, members in (
        (place, {"SparkSubmitOperator": Operator}),
        ("airflow.sdk", {"DAG": Dag}),
    ):
        module = ModuleType(name)
        vars(module).update(members)
        parts = name.split(".")
        for count in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:count]), ModuleType(parts[0]))
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile(dag, "dag.py", "exec"), {})
    return Operator.said


def test_the_dag_runs_the_program_once_however_often(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = example("airflow/load_reminders.py")
    said = run_dag(monkeypatch, example("airflow/dag.py"))
    messages(spark, 0, 300).write.parquet(str(tmp_path / f"day={DAY}"))
    values = {"{{ ds_nodash }}": DAY, "/data/reminders": str(tmp_path)}
    words = [values[word] for word in said["application_args"]]
    assert said["env_vars"]["DELAYLOG_URL"].startswith("http://")
    # Workers of this session have the environment in which it began.
    program = program.replace(
        'format("delaylog")', f'format("delaylog").option("endpoint", "{broker.url}")'
    )
    monkeypatch.setattr(sys, "argv", [said["application"], *words])
    for _ in range(2):
        exec(compile(program, "load_reminders.py", "exec"), {})
    assert sorted(broker.ids("reminders")) == ids_of(0, 300)
    assert broker.transactions[f"reminders-{DAY}"].state == "committed"


def test_the_hooks_of_dbt_send_the_rows_of_a_model_once(
    spark: SparkSession, broker: FakeBroker
) -> None:
    config, query = example("dbt/reminders.sql").split(") }}\n")
    hooks = re.findall(r'^        "(.*?)"(?=,?\n)', config, re.DOTALL | re.MULTILINE)
    assert len(hooks) == 2
    spark.sql("SELECT 'a' AS tenant, timestamp'2030-01-01' AS due").createOrReplaceTempView(
        "tenants"
    )
    spark.sql(query).createOrReplaceTempView("model")
    known = {
        '{{ var(\\"day\\") }}': DAY,
        "{{ this }}": "model",
        "http://127.0.0.1:8711": broker.url,
    }
    for _ in range(2):
        for hook in hooks:
            for text, value in known.items():
                hook = hook.replace(text, value)
            spark.sql(hook)
    assert broker.ids("reminders") == ["rent-a"]
    assert next(iter(broker.transactions)) == f"reminders-{DAY}"
    for view in ("tenants", "model", "reminders_out"):
        spark.catalog.dropTempView(view)
