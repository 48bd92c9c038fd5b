"""Pythons without delaylog, what is sent to them, and `spark-submit` with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.programs import run_program
from tests.spark.session import ROOT, prepare_environment

PROJECT: Final = ROOT / "ops" / "pyspark-delaylog"
PROGRAM: Final = Path(__file__).with_name("submitted.py")
LIMIT_S: Final = 600


@dataclass(frozen=True)
class Environment:
    """A virtual environment with PySpark."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / minor / "site-packages"

    def submit(self, *words: object, cwd: Path, **variables: str) -> dict[str, Any]:
        """What a program prints as its last line, in JSON."""
        done = self.run(*words, cwd=cwd, **variables)
        assert done.returncode == 0, done.stdout + done.stderr[-5_000:]
        said = json.loads(done.stdout.splitlines()[-1])
        assert isinstance(said, dict)
        return said

    def run(self, *words: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """`spark-submit` in this environment; nothing of the one of these tests reaches it."""
        prepare_environment()
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL_ENV"))
        }
        home = linked_home(self.packages / "pyspark", cwd / "spark-home")
        kept |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": str(self.python), **variables}
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "512m",
            "spark.local.dir": str(cwd / "local"),
        }
        given = [f"--conf={name}={value}" for name, value in settings.items()]
        submit = home / "bin" / "spark-submit"
        return run_program(submit, *given, *words, cwd=cwd, env=kept, timeout=LIMIT_S)


def linked_home(installed: Path, folder: Path) -> Path:
    """A home of Spark whose executors work below `folder`, as they would in their home."""
    folder.mkdir()
    for each in installed.iterdir():
        if each.name != "work":
            (folder / each.name).symlink_to(each)
    return folder


def linked(folder: Path, *without: str) -> Environment:
    """An environment with the packages of this one, but for delaylog's and those named here."""
    venv.create(folder, with_pip=False)
    made = Environment(folder)
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "delaylog" not in each.name and not each.name.startswith(without or ("/",)):
            (made.packages / each.name).symlink_to(each)
    return made


def beside(name: str) -> Environment:
    """An environment that `make test-spark` or `make drills-spark` has made."""
    folder = ROOT / name
    assert folder.is_dir(), f"{name} is missing: run make {name}/ready"
    return Environment(folder)


def built_wheel(folder: Path) -> Path:
    """The wheel of pyspark-delaylog, made from a copy, so that the checkout stays as it is."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(PROJECT, folder / "project", ignore=ignored)
    pip = [sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    run_program(*pip, "--no-deps", "-w", folder, folder / "project", timeout=LIMIT_S, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed_apart(wheel: Path, folder: Path) -> Path:
    """What `pip install --target` makes of the wheel, and an archive of it beside."""
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run_program(*pip, "--no-deps", "--target", folder, wheel, timeout=LIMIT_S, check=True)
    with tarfile.open(folder.with_suffix(".tar.gz"), "w:gz") as archive:
        archive.add(folder, ".")
    return folder
