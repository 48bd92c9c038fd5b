"""Where only the client is installed, what needs the broker names the command that installs it.

A process of its own misses a package, as this one has loaded them all.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from delaylog.broker.server_extra import PACKAGES, needed_by
from tests.programs import run_program

ROOT = Path(__file__).parents[2]
MISSING = "import sys; sys.modules[{package!r}] = None; "
COMMAND = "pip install 'delaylog[server]'"


def test_the_packages_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=;]", each)[0] for each in project["optional-dependencies"]["server"]]
    assert {name.strip().replace("-", "_") for name in names} == PACKAGES


SERVE = ["serve"], "delaylog: {}\n"
VERIFY = (
    ["verify", "folder", "--json"],
    '{{"error":{{"code":"usage","message":"{}"}}}}\n',
)


@pytest.mark.parametrize(
    ("package", "words", "error"),
    [
        *((package, *SERVE) for package in sorted(PACKAGES - {"uvloop"})),
        # A verb that reads folders counts nothing for Prometheus.
        *((package, *VERIFY) for package in sorted(PACKAGES - {"uvloop", "prometheus_client"})),
    ],
)
def test_a_verb_says_it_in_one_line(package: str, words: list[str], error: str) -> None:
    program = f"from delaylog.broker.cli import main; sys.exit(main({words!r}))"
    ran = run_program(sys.executable, "-P", "-c", MISSING.format(package=package) + program)
    line = f"delaylog {words[0]} needs the broker, which is not installed; run: {COMMAND}"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", error.format(line))


def test_a_program_with_the_broker_inside_gets_an_import_error() -> None:
    program = "import delaylog; print(delaylog.Client.__name__); delaylog.open('folder')"
    ran = run_program(sys.executable, "-P", "-c", MISSING.format(package="numpy") + program)
    assert ran.stdout == "Client\n"
    assert ran.stderr.endswith(
        f"ImportError: delaylog.open needs the broker, which is not installed; run: {COMMAND}\n"
    )


def test_another_missing_package_is_another_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="'nowhere'"), needed_by("it"):
        import nowhere  # type: ignore[import-not-found]  # noqa: F401
