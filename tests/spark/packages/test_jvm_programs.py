"""The Java and Scala programs of examples/spark, compiled by compilers of Spark's own jars."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.client.spark.misbehaving_server import Call, Fault
from tests.programs import run_program
from tests.spark.packages.environments import built_wheel, installed_apart, linked
from tests.spark.real.fault_proxy import FaultProxy
from tests.spark.real.real_broker import RealBroker
from tests.spark.session import ROOT, prepare_environment

ROWS = 1_000


@pytest.mark.drill
def test_the_java_program_loads_by_name(real: RealBroker, tmp_path: Path) -> None:
    """Janino, which Spark has for its own code, also compiles Java where there is no JDK."""
    program = example("LoadByName.java").replace("http://127.0.0.1:8711", real.url)
    (tmp_path / "LoadByName.java").write_text(program)
    python = linked(tmp_path / "venv")
    packages = installed_apart(built_wheel(tmp_path), tmp_path / "packages")
    (janino,) = (python.packages / "pyspark" / "jars").glob("janino-*.jar")
    loader = "--class=org.codehaus.janino.JavaSourceClassLoader"
    words = ["--master=local[2,4]", loader, janino, "-sourcepath", tmp_path, "LoadByName"]
    done = python.run(*words, cwd=tmp_path, PYTHONPATH=str(packages))
    assert done.returncode == 0, done.stdout + done.stderr[-5_000:]
    assert sorted(real.ids("from-java")) == sorted(f"rent-{number}" for number in range(ROWS))


@pytest.mark.drill
def test_the_scala_program_loads_both_ways(real: RealBroker, tmp_path: Path) -> None:
    """Over HTTP, the answers of a part and of the commit are lost; the repeated part is refused, so
    its task fails and runs again."""
    program = example("Load.scala")
    python = linked(tmp_path / "venv")
    packages = installed_apart(built_wheel(tmp_path), tmp_path / "packages")
    faults = {
        "parts": [Fault(lose_answer=True), Fault(400)],
        "commit": [Fault(lose_answer=True)],
    }

    def fail_some(call: Call) -> Fault | None:
        if "/rent-2026-11/" not in call.path or call.query.get("part", "1") != "1":
            return None
        waiting = faults[call.path.rpartition("/")[2]]
        return waiting.pop(0) if waiting else None

    with FaultProxy(real.url) as proxy:
        proxy.fault = fail_some
        source = tmp_path / "Load.scala"
        source.write_text(program.replace("http://127.0.0.1:8711", proxy.url))
        compiled = compile_with(python.packages / "pyspark" / "jars", source)
        words = ["--master=local[2,4]", "--class=Load", compiled]
        done = python.run(*words, cwd=tmp_path, PYTHONPATH=str(packages))
    assert done.returncode == 0, done.stdout + done.stderr[-5_000:]
    assert not any(faults.values())
    assert real.settled("rent-2026-11")["discarded_rows"] == ROWS // 4, "of the task that failed"
    expected = sorted(f"rent-{number}" for number in range(ROWS))
    for topic in ("by-name", "by-http"):
        assert sorted(real.ids(topic)) == expected, topic


def example(name: str) -> str:
    """The program in this file."""
    return (ROOT / "examples" / "spark" / name).read_text()


def compile_with(jars: Path, source: Path) -> Path:
    prepare_environment()
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    target = source.with_name("load.jar")
    words = ["scala.tools.nsc.Main", "-usejavacp", "-d", target, source]
    done = run_program(java, "-cp", f"{jars}/*", *words, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return target
