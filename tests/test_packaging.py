"""The folders at the root are the package `delaylog`, on every checkout and in every build.

Read from the files themselves: the links that give the folders their import name, the names that
would hide the standard library's, and that each module can be imported by its one name.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import delaylog

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "delaylog"
FOLDERS = ("broker", "client", "contract", "replication", "storage", "wheel")
SPARK = "delaylog.client.spark"
"""Ships as `pyspark_delaylog` and is imported by that name only."""
APART = ("celery_", "dramatiq_", "kombu_", "taskiq_")
"""Modules for these packages, which only the environment of `make test-redis` has."""


def python_files(*folders: str) -> list[Path]:
    """All modules below these folders of the root."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def module_names() -> list[str]:
    """Every module of delaylog, but the ones that run a program when they are imported."""
    found = pkgutil.walk_packages([str(SOURCE)], "delaylog.")
    names = [module.name for module in found if not module.name.startswith(SPARK)]
    names = [name for name in names if not name.rpartition(".")[2].startswith(APART)]
    return [name for name in names if not name.endswith(".__main__")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_is_linked_under_its_import_name(folder: str) -> None:
    """Git without links checks out small text files, and a wheel built there would be empty."""
    link = SOURCE / folder
    assert link.is_symlink(), f"{link} is no link; was it checked out with core.symlinks=false?"
    assert link.readlink() == Path("../..") / folder
    assert link.resolve() == ROOT / folder


def test_each_data_source_of_spark_is_linked_as_a_package_of_its_own() -> None:
    links = {"pyspark_delaylog": "spark", "pyspark_delaylog_segments": "spark_segments"}
    for name, folder in links.items():
        link = ROOT / "src" / name
        assert link.is_symlink()
        assert link.readlink() == Path("../client") / folder
        assert (link / "__init__.py").is_file()


def test_nothing_else_lies_in_the_package() -> None:
    """What is not linked would have a second home beside the folders of the root."""
    names = {path.name for path in SOURCE.iterdir()} - {"__pycache__"}
    assert names == {
        "__init__.py",
        "extras.py",
        "log_lines.py",
        "py.typed",
        "secret_files.py",
        *FOLDERS,
    }


def test_each_folder_with_modules_is_a_package() -> None:
    """A build leaves out folders without `__init__.py`, while a checkout imports them."""
    folders = {path.parent for path in python_files(*FOLDERS)}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_no_module_has_the_name_of_a_standard_one() -> None:
    """A file run as a script has its folder first on the path, and would hide the real module."""
    paths = python_files(*FOLDERS, "bench", "tests/drills")
    names = {path: path.parent.name if path.stem == "__init__" else path.stem for path in paths}
    reserved = sys.stdlib_module_names | {"pytest", "numpy", "uvloop", "aiohttp"}
    clashes = [path for path, name in names.items() if name in reserved and name != "__main__"]
    assert clashes == []


@pytest.mark.parametrize("name", module_names())
def test_each_module_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__name__ == name


def test_the_folders_are_what_is_imported() -> None:
    """Not some other installed copy."""
    for folder in FOLDERS:
        found = importlib.import_module(f"delaylog.{folder}").__file__
        assert found is not None, f"{folder} has no __init__.py"
        assert Path(found).resolve() == ROOT / folder / "__init__.py"


def test_the_version_is_said_once_more_and_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert delaylog.__version__ == project["version"] == version("delaylog")


@pytest.mark.parametrize(
    "path",
    [
        "constraints.txt",
        "tests/frameworks/requirements.txt",
        "tests/languages/requirements.txt",
        "tests/redis/requirements.txt",
        "tests/redis/requirements-older.txt",
        "tests/spark/requirements.txt",
    ],
)
def test_constraints_pin_exact_versions_from_anywhere(path: str) -> None:
    """No address and no path: the same file serves on every machine."""
    lines = (ROOT / path).read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    for pin in pins:
        # A marker may follow: a version for some versions of Python.
        name, separator, number = pin.partition(";")[0].rstrip().partition("==")
        assert separator, pin
        assert re.fullmatch(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*", name), pin
        assert number.replace(".", "").isalnum(), pin
