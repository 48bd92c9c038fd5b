"""What needs the packages of an extra names the command that installs them.

A process of its own misses a package, as this one has loaded them all.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from delaylog.extras import EXTRAS, needed_by
from tests.programs import run_program

ROOT = Path(__file__).parents[1]
MISSING = "import sys; sys.modules[{package!r}] = None; "
COMMAND = "pip install 'delaylog[server]'"
PACKAGES = EXTRAS["server"]


OTHER_NAMES = {
    "opentelemetry_api": "opentelemetry",
    "pyspark_delaylog[folders,pyspark]": "pyspark_delaylog",
}
"""Import names that differ from those of the distributions."""
BROUGHT = {"kombu", "pandas", "pyarrow", "pyspark", "raftos"}
"""Packages that those of an extra bring, and raftos, which is installed by itself."""


def test_the_packages_are_those_of_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert EXTRAS.keys() == extras.keys() - {"dev"}
    for extra, wanted in extras.items():
        names = [re.split(r"[<>=;]", each)[0].strip().replace("-", "_") for each in wanted]
        packages = {OTHER_NAMES.get(name, name) for name in names} - {"delaylog[server]"}
        if extra != "dev":
            assert packages <= EXTRAS[extra] <= packages | BROUGHT, extra


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


@pytest.mark.parametrize(
    ("statement", "package", "extra"),
    [
        ("from delaylog.broker.embedded import ManualClock", "numpy", "server"),
        ("from delaylog.broker.embedded.clocks import ManualClock", "sortedcontainers", "server"),
        ("from delaylog import EmbeddedBroker", "numpy", "server"),
        ("from delaylog import ManualClock", "cronsim", "server"),
        ("import delaylog; delaylog.open_async", "crc32c", "server"),
        ("import delaylog.client.instruments.prometheus", "prometheus_client", "prometheus"),
        ("import delaylog.client.instruments.opentelemetry", "opentelemetry", "opentelemetry"),
        ("import delaylog.client.job_systems.kombu_transport", "kombu", "celery"),
        (
            "from delaylog.client.job_systems import register_kombu_transport as r; r()",
            "kombu",
            "celery",
        ),
        ("import delaylog.client.job_systems.dramatiq_broker", "dramatiq", "dramatiq"),
        ("import delaylog.client.job_systems.taskiq_broker", "taskiq", "taskiq"),
    ],
)
def test_an_import_says_which_extra_it_needs(statement: str, package: str, extra: str) -> None:
    ran = run_program(sys.executable, "-P", "-c", MISSING.format(package=package) + statement)
    assert ran.stderr.splitlines()[-1].startswith("ImportError: delaylog")
    assert ran.stderr.endswith(f"not installed; run: pip install 'delaylog[{extra}]'\n")


def test_another_missing_package_is_another_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="'nowhere'"), needed_by("it"):
        import nowhere  # type: ignore[import-not-found]  # noqa: F401
