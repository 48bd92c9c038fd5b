"""What Spark finds in our modules where a package is missing, and what `register` registers.

The search for formats is played as Spark's worker does it, in a process of its own, where an entry
None in sys.modules makes a package unimportable.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyspark.errors import PySparkException

import pyspark_delaylog
from pyspark_delaylog import versions
from pyspark_delaylog.errors import LoadError, VersionError
from pyspark_delaylog.segments.source import SegmentSource
from pyspark_delaylog.source import DelaylogSource
from tests.programs import run_program

SEARCH = """
import pickle, sys
for name in sys.argv[1:]:
    sys.modules[name] = None
for name in ("pyspark_delaylog", "pyspark_delaylog_segments"):
    found = pickle.loads(pickle.dumps(__import__(name).DefaultSource))
    try:
        made = found({"path": "/nowhere"})
        print(found.name(), type(made).__name__)
    except Exception as error:
        print(found.name(), type(error).__name__, str(error).replace(sys.executable, "PYTHON"))
"""


def found(*missing: str) -> list[str]:
    done = run_program(sys.executable, "-P", "-c", SEARCH, *missing, check=True)
    return done.stdout.splitlines()


class Session:
    """The part of a session that knows formats."""

    def __init__(self) -> None:
        self.registered: list[Any] = []
        self.dataSource = self
        self.refusal: str | None = None

    def register(self, source: Any) -> None:
        if self.refusal is not None:
            raise PySparkException(message="refused", errorClass=self.refusal)
        self.registered.append(source)


def test_both_formats_are_found() -> None:
    assert found() == ["delaylog DelaylogSource", "delaylog-segments SegmentSource"]


def test_without_delaylog_the_sink_is_found_and_the_other_format_says_why() -> None:
    first, second = found("delaylog")
    assert first == "delaylog DelaylogSource"
    assert second.startswith("delaylog-segments LoadError format delaylog-segments cannot be")
    assert "pip install 'pyspark-delaylog[folders]'" in second


@pytest.mark.parametrize("missing", ["pyarrow", "numpy", "requests"])
def test_a_missing_package_is_named_by_the_format(missing: str) -> None:
    said = found(missing)[0]
    assert said.startswith("delaylog LoadError format delaylog cannot be loaded by the Python of")
    assert f"PYTHON: ModuleNotFoundError: import of {missing} halted" in said
    assert "pip install 'pyspark-delaylog'" in said


def test_a_format_that_loads_after_all_asks_for_a_new_session() -> None:
    with pytest.raises(LoadError, match="start a new session"):
        versions.UnloadedSource({})


def test_register_gives_a_session_both_formats() -> None:
    session = Session()
    pyspark_delaylog.register(session)
    assert session.registered == [DelaylogSource, SegmentSource]


def test_register_leaves_what_spark_has_found_itself() -> None:
    session = Session()
    session.refusal = "DATA_SOURCE_ALREADY_EXISTS"
    pyspark_delaylog.register(session)
    session.refusal = "INVALID_SOMETHING"
    with pytest.raises(PySparkException, match="refused"):
        pyspark_delaylog.register(session)


def test_what_a_version_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    source = DelaylogSource({"endpoint": "http://127.0.0.1:9", "topic": "t"})
    for name in ("DataSource", "DataSourceStreamArrowWriter", "_READ_LIMIT"):
        monkeypatch.setattr(versions, name, object)
    with pytest.raises(VersionError, match=r"formats in Python need PySpark 4\.0 or newer"):
        pyspark_delaylog.register(Session())
    with pytest.raises(VersionError, match=r"streaming sink needs PySpark 4\.1.*foreachBatch"):
        source.streamWriter(source.schema(), False)
    with pytest.raises(VersionError, match=r"consuming stream needs PySpark 4\.2"):
        source.streamReader(source.schema())
