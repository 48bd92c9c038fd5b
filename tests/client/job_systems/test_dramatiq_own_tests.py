"""dramatiq's own tests with its stub and its Redis broker, run with ours instead.

They come from the sources of the dramatiq that is installed, which `make test-redis` puts into the
environment; the sources contain neither their fixtures nor their module `common`, so both are here.
`LEFT_OUT` names every test that is not run, and why. dramatiq's other files test no broker, or need
RabbitMQ's client.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import dramatiq
import dramatiq.worker
import pytest
from dramatiq.rate_limits.backends import StubBackend as StubRates
from dramatiq.results.backends import StubBackend as StubResults

from delaylog.client.job_systems.dramatiq_broker import DelaylogBroker
from tests.broker.conftest import Broker

SOURCES: Final = f"dramatiq-{version('dramatiq')}"
FILES: Final = (
    "actors",
    "callbacks",
    "composition",
    "encoders",
    "generic_actors",
    "messages",
    "redis",
    "results",
    "stub_broker",
    "worker",
)
THREADS: Final = 8
JOIN_MS: Final = 180_000
IN_MEMORY: Final = "relies on the queues in memory of the stub broker"
DECLARED: Final = (
    "the stub broker alone refuses to send to a queue, or join it, before its declaration"
)
REDIS: Final = "looks into Redis, or calls methods that the Redis broker alone has"
LEFT_OUT: Final = {
    "test_actors_can_be_sent_messages": IN_MEMORY,
    "test_exception_from_actor_doesnt_leak": IN_MEMORY,
    "test_messages_belonging_to_missing_actors_are_rejected": IN_MEMORY,
    "test_stub_broker_can_be_flushed": IN_MEMORY,
    "test_stub_broker_respects_prefetch": IN_MEMORY,
    "test_worker_handles_non_numeric_eta_and_logs_warning": IN_MEMORY,
    "test_worker_handles_none_eta": IN_MEMORY,
    "test_workers_process_messages_in_order": IN_MEMORY,
    "test_stub_broker_raises_queue_error_when_enqueueing_messages_on_undeclared_queues": DECLARED,
    "test_stub_broker_raises_queue_error_when_joining_on_undeclared_queues": DECLARED,
    "test_redis_unacked_messages_can_be_requeued": REDIS,
    "test_redis_messages_can_be_dead_lettered": REDIS,
    "test_redis_dead_lettered_messages_are_cleaned_up": REDIS,
    "test_redis_messages_belonging_to_missing_actors_are_rejected": REDIS,
    "test_redis_requeues_unhandled_messages_on_shutdown": REDIS,
    "test_redis_requeues_unhandled_delay_messages_on_shutdown": REDIS,
    "test_redis_broker_can_connect_via_url": REDIS,
    "test_redis_broker_can_connect_via_client": REDIS,
    "test_redis_consumer_ack_can_retry_on_connection_error": REDIS,
    "test_redis_consumer_nack_can_retry_on_connection_error": REDIS,
    "test_redis_consumer_nack_does_not_raise_on_missing_id": REDIS,
    "test_redis_join_race_condition": REDIS,
}
"""test_dramatiq.py tests the same of our broker: dead letters, flushes, stops and settling."""


class Failures(dramatiq.Middleware):
    """Collects what the actors of rejected messages have raised."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []

    def before_nack(self, broker: dramatiq.Broker, message: Any) -> None:
        self.raised.append(message._exception)


class JoinedBroker(DelaylogBroker):
    """Its `join` is that of the stub broker: it raises what an actor has raised."""

    def __init__(self, *endpoints: str, **options: Any) -> None:
        super().__init__(*endpoints, **options)
        self._failures = Failures()
        self.add_middleware(self._failures)

    def join(
        self,
        queue_name: str,
        *,
        interval: int = 20,
        timeout: int | None = None,
        fail_fast: bool = True,
    ) -> None:
        super().join(queue_name, interval=interval, timeout=timeout or JOIN_MS)
        if fail_fast and self._failures.raised:
            raise self._failures.raised.pop()


@contextmanager
def worker(*args: Any, **options: Any) -> Iterator[dramatiq.Worker]:
    worker = dramatiq.Worker(*args, **options)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def load_tests() -> dict[str, Callable[..., None]]:
    """The tests of all files, by name."""
    package = ModuleType("dramatiq_tests")
    common = ModuleType("dramatiq_tests.common")
    vars(common).update(worker=worker, skip_on_pypy=lambda test: test)
    sys.modules.update({each.__name__: each for each in (package, common)})
    found: dict[str, Callable[..., None]] = {}
    with tarfile.open(Path(sys.prefix) / "sources" / f"{SOURCES}.tar.gz") as archive:
        for file in FILES:
            member = archive.extractfile(f"{SOURCES}/tests/test_{file}.py")
            assert member is not None
            module = ModuleType(f"dramatiq_tests.test_{file}")
            module.__package__ = package.__name__
            sys.modules[module.__name__] = module
            exec(compile(member.read(), f"test_{file}.py", "exec"), vars(module))
            tests = {name: each for name, each in vars(module).items() if name.startswith("test_")}
            assert found.keys().isdisjoint(tests)
            found |= tests
    return found


TESTS: Final = load_tests()
globals().update({name: test for name, test in TESTS.items() if name not in LEFT_OUT})


def test_what_is_left_out_exists() -> None:
    assert LEFT_OUT.keys() <= TESTS.keys()


@pytest.fixture
def stub_broker(
    broker: Broker, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JoinedBroker]:
    """dramatiq's global broker, on a namespace of its own."""
    monkeypatch.setattr(dramatiq.worker, "CONSUMER_RESTART_DELAY_SECS", 0.1)
    jobs = JoinedBroker(broker.url, namespace=namespace)
    jobs.emit_after("process_boot")
    dramatiq.set_broker(jobs)
    yield jobs
    jobs.close()


@pytest.fixture
def stub_worker(stub_broker: JoinedBroker) -> Iterator[dramatiq.Worker]:
    with worker(stub_broker, worker_timeout=100, worker_threads=THREADS) as running:
        yield running


@pytest.fixture
def redis_broker(stub_broker: JoinedBroker) -> JoinedBroker:
    return stub_broker


@pytest.fixture
def redis_worker(stub_worker: dramatiq.Worker) -> dramatiq.Worker:
    return stub_worker


@pytest.fixture
def result_backend() -> StubResults:
    return StubResults()


@pytest.fixture
def redis_result_backend(result_backend: StubResults) -> StubResults:
    return result_backend


@pytest.fixture
def rate_limiter_backend() -> StubRates:
    return StubRates()


@pytest.fixture
def pickle_encoder() -> Iterator[dramatiq.PickleEncoder]:
    before = dramatiq.get_encoder()
    encoder = dramatiq.PickleEncoder()
    dramatiq.set_encoder(encoder)
    yield encoder
    dramatiq.set_encoder(before)
