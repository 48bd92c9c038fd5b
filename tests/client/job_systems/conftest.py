"""For tests of job systems on the delay log: a broker a file, and workers as their users run them.

These tests need the packages of the job systems, so `make test-redis` runs them in its environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from delaylog.client import Client
from tests.broker.conftest import Broker
from tests.job_bench import TIMEOUT_S
from tests.job_bench import JobBench as Bench

ROOT: Final = Path(__file__).parents[3]
PROGRAM: Final = ROOT / ".venv" / "bin" / "delaylog"
APPS: Final = Path(__file__).parent / "apps"

__all__ = ["TIMEOUT_S", "Bench"]


def pytest_configure(config: pytest.Config) -> None:
    """What others call, and leave to the garbage collector, is their affair."""
    for kind in ("DeprecationWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It has logged no error when the file is done."""
    broker = Broker(tmp_path_factory.mktemp("broker"), program=[str(PROGRAM)])
    broker.start()
    try:
        yield broker
        broker.end_well()
    finally:
        broker.kill()


@pytest.fixture
def namespace() -> str:
    """One that no other test uses."""
    return f"n-{uuid4().hex}"


def url_of(broker: Broker, namespace: str) -> str:
    """The broker URL of an application."""
    return f"delaylog://127.0.0.1:{broker.port}/{namespace}"


@pytest.fixture
def url(broker: Broker, namespace: str) -> str:
    """The broker URL of an application, in a namespace of its own."""
    return url_of(broker, namespace)


@pytest.fixture
def client(broker: Broker, namespace: str) -> Iterator[Client]:
    """The SDK's view of what the job system has stored."""
    with Client(broker.url, namespace=namespace) as client:
        yield client


def load_app(module: str, url: str, folder: Path, patches: pytest.MonkeyPatch) -> tuple[Any, Bench]:
    """A module of apps/, imported anew for this broker, and its bench."""
    bench = Bench(folder, APPS, lambda: {"BROKER_URL": url})
    for name, value in bench.environment.items():
        patches.setenv(name, value)
    patches.syspath_prepend(APPS)
    patches.delitem(sys.modules, module, raising=False)
    return __import__(module), bench


@pytest.fixture
def make_app(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[Any, Bench]]:
    """`load_app` for this test."""
    return lambda module: load_app(module, url, tmp_path, monkeypatch)
