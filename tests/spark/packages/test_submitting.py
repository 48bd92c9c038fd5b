"""The connector in Pythons without delaylog, with PySpark of other versions, by `spark-submit`.

`local-cluster` starts two executors as processes of their own, each in a folder of its own: what an
executor imports was sent to it. A task reports the path from which it has imported the package.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import ids_of
from tests.spark.packages.environments import (
    PROGRAM,
    Environment,
    beside,
    built_wheel,
    installed_apart,
    linked,
)
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_consuming_stream import fill

ROWS = 2_000
CLUSTER = "local-cluster[2,1,1024]"
OLDEST = ".venv-spark-4.0"
FORMATLESS = ".venv-spark-3.5"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return linked(tmp_path_factory.mktemp("current") / "venv")


def by_py_files(
    python: Environment, master: str, wheel: Path, url: str, folder: Path
) -> dict[str, Any]:
    """As docs/SPARK.md says: a wheel is a zip file."""
    package = shutil.copy(wheel, folder / "pyspark_delaylog.zip")
    words = [f"--master={master}", f"--py-files={package}", PROGRAM, url, ROWS, folder, "read"]
    return python.submit(*words, cwd=folder)


def by_archives(
    python: Environment, master: str, wheel: Path, broker: FakeBroker, folder: Path
) -> dict[str, Any]:
    packages = installed_apart(wheel, folder / "packages")
    words = [
        f"--master={master}",
        f"--archives={packages}.tar.gz#unpacked",
        "--conf=spark.executorEnv.PYTHONPATH=./unpacked",
    ]
    words += [str(PROGRAM), broker.url, str(ROWS), str(folder)]
    return python.submit(*words, cwd=folder, PYTHONPATH=str(packages))


def assert_loaded(said: dict[str, Any], broker: FakeBroker | RealBroker, *topics: str) -> None:
    for topic in topics:
        assert sorted(broker.ids(topic)) == ids_of(0, ROWS), topic
    assert all(place.endswith(" False") for place in said["places"]), "no task had delaylog"
    assert "No module named 'delaylog'" in said["folder"]
    assert "pip install 'pyspark-delaylog[folders]'" in said["folder"]


def assert_two_executors(said: dict[str, Any], place: str) -> None:
    found = [each.split() for each in said["places"]]
    assert len({process for process, _, _ in found}) == 2
    assert {path for _, path, _ in found} == {f"{place}/pyspark_delaylog/__init__.py"}


def test_py_files_on_two_executors(
    current: Environment, wheel: Path, broker: FakeBroker, tmp_path: Path
) -> None:
    fill(broker, ROWS)
    broker.ready["ready"] = broker.ready.pop("t")
    said = by_py_files(current, CLUSTER, wheel, broker.url, tmp_path)
    assert (said["register"], said["load"], said["sink"]) == ("", "", "")
    assert (said["read"], sorted(said["ids"])) == ("", ids_of(0, ROWS))
    assert_loaded(said, broker, "batch", "mapped", "stream")
    assert_two_executors(said, "pyspark_delaylog.zip")


def test_archives_on_two_executors_with_the_oldest_pyspark(
    wheel: Path, broker: FakeBroker, tmp_path: Path
) -> None:
    """4.0 has no writer for its streams: `foreachBatch` with write_frame writes the same rows."""
    said = by_archives(beside(OLDEST), CLUSTER, wheel, broker, tmp_path)
    assert said["version"].startswith("4.0.")
    assert (said["register"], said["load"]) == ("", "")
    assert "the streaming sink needs PySpark 4.1 or newer, this is 4.0." in said["sink"]
    assert_loaded(said, broker, "batch", "mapped", "stream")
    assert_two_executors(said, "unpacked")


@pytest.mark.drill
@pytest.mark.parametrize("version", ["4.1", "4.2"])
def test_versions_between(wheel: Path, real: RealBroker, tmp_path: Path, version: str) -> None:
    """Batch loads and both streams, with a real broker; 4.1 cannot consume."""
    ready = [{"id": each, "body": "body", "delay_ms": 0} for each in ids_of(0, ROWS)]
    sent = requests.post(f"{real.url}/v1/topics/ready/messages", json=ready, timeout=30)
    assert sent.status_code == 200, sent.text
    said = by_py_files(beside(f".venv-spark-{version}"), "local[2]", wheel, real.url, tmp_path)
    assert said["version"].startswith(f"{version}.")
    assert (said["register"], said["load"], said["sink"]) == ("", "", "")
    if version == "4.1":
        assert "the consuming stream needs PySpark 4.2 or newer, this is 4.1." in said["read"]
    else:
        assert (said["read"], sorted(said["ids"])) == ("", ids_of(0, ROWS))
        assert real.counts("ready") == {"acked": ROWS}
    for load in ("batch", "mapped"):
        real.settled(load)
    assert_loaded(said, real, "batch", "mapped", "stream")


@pytest.mark.drill
def test_pyspark_without_formats(wheel: Path, broker: FakeBroker, tmp_path: Path) -> None:
    said = by_py_files(beside(FORMATLESS), "local[2]", wheel, broker.url, tmp_path)
    assert said["version"].startswith("3.5.")
    assert "formats in Python need PySpark 4.0 or newer, this is 3.5." in said["register"]
    for topic in ("mapped", "stream"):
        assert sorted(broker.ids(topic)) == ids_of(0, ROWS), topic


def test_workers_without_pyarrow_say_so(wheel: Path, tmp_path: Path) -> None:
    """Spark searches formats in a worker, and would only say NOT_FOUND."""
    bare = linked(tmp_path / "bare", "pyarrow")
    packages = installed_apart(wheel, tmp_path / "packages")
    program = tmp_path / "program.py"
    program.write_text(UNREGISTERED)
    said = bare.submit(
        "--master=local[1]",
        program,
        cwd=tmp_path,
        PYTHONPATH=str(packages),
    )
    for name, missing in {"delaylog": "pyarrow", "delaylog-segments": "delaylog"}.items():
        assert "DATA_SOURCE_NOT_FOUND" not in said[name]
        assert f"format {name} cannot be loaded by the Python of Spark's workers" in said[name]
        assert f"{bare.python}: ModuleNotFoundError: No module named '{missing}'" in said[name]


UNREGISTERED = """
import json
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
said = {}
for name in ("delaylog", "delaylog-segments"):
    try:
        spark.read.format(name).load()
    except Exception as error:
        said[name] = str(error)
spark.stop()
print(json.dumps(said))
"""
