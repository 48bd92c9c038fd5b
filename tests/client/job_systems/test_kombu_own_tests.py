"""kombu's own tests of transports, from the sources of the kombu that is installed.

`make test-redis` puts the archive of the sources into the environment. Left out are two tests that
need what only AMQP does: one call of `drain_events` that delivers several messages. Their subject,
priorities, is tested in test_kombu_transport.py. Their limits of one second become five, since
kombu repeats tests that fail on a busy machine and we do not.
"""

from __future__ import annotations

import sys
import tarfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import kombu
import pytest

from delaylog.client.child_broker import free_port
from delaylog.client.job_systems import register_kombu_transport

SOURCES = f"kombu-{kombu.__version__}"
PATIENCE = 5


class Connection(kombu.Connection):
    """Waits longer for events."""

    def drain_events(self, timeout: float | None = None, **options: Any) -> Any:
        longer = None if timeout is None else timeout * PATIENCE
        return super().drain_events(timeout=longer, **options)


def load_tests() -> ModuleType:
    """t/integration/common.py, which the tests of every transport derive from."""
    name = f"{SOURCES}/t/integration/common.py"
    with tarfile.open(Path(sys.prefix) / "sources" / f"{SOURCES}.tar.gz") as archive:
        member = archive.extractfile(name)
        assert member is not None
        module = ModuleType("kombu_tests")
        exec(compile(member.read(), name, "exec"), module.__dict__)
    module.__dict__["monotonic"] = lambda: time.monotonic() / PATIENCE
    return module


common: Any = load_tests()


@pytest.fixture
def connection(url: str) -> Connection:
    register_kombu_transport()
    return Connection(url)


@pytest.fixture
def invalid_connection() -> Connection:
    register_kombu_transport()
    return Connection(f"delaylog://127.0.0.1:{free_port()}")


@pytest.fixture
def failover_connection(url: str) -> Connection:
    register_kombu_transport()
    return Connection(f"delaylog://127.0.0.1:{free_port()};{url}")


class TestBasicFunctionality(common.BasicFunctionality):
    pass


class TestFailover(common.BaseFailover):
    pass


class TestEventLoop(common.BaseEventLoop):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestMessage(common.BaseMessage):
    pass


class TestPriority(common.BasePriority):
    test_publish_consume = None
    test_publish_requeue_consume = None


class TestTimeToLive(common.BaseTimeToLive):
    pass
