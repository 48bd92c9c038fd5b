"""Workers of every job system outlive their server: a stop, a kill, and a hand-over in a cluster.

All workers stand side by side and their server goes away once for all. Each must run the job that
is sent to its system afterwards, in the process that was started first.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.redis.servers import (
    DELAYLOG,
    ENDPOINTS,
    PROGRAM,
    REFERENCE,
    ROOT,
    TIMEOUT_S,
    RedisServer,
)
from tests.redis.workers import JOBS, OTHER_LANGUAGES, Bench, wait_for
from tests.waiting import await_that

CLUSTER = "cluster"
STOP, KILL, HAND_OVER = "stop", "kill", "hand_over"
WAYS = {REFERENCE: (STOP, KILL), DELAYLOG: (STOP, KILL), CLUSTER: (HAND_OVER, STOP, KILL)}
"""How a server goes away. In a cluster the leader does, and workers find the next one."""
OLDER = ROOT / ".venv-redis-older" / "bin"
"""Programs of job systems that ask for an older redis-py."""
CHECKS = {"bullmq": ["node", "bullmq_checks.cjs"], "sidekiq": ["ruby", "sidekiq_checks.rb"]}
"""Senders of other languages."""


@dataclass(frozen=True)
class System:
    """How a job system's worker is started."""

    program: str
    arguments: tuple[str, ...]
    older: bool = False


def _system(words: str, *, older: bool = False) -> System:
    program, *arguments = words.split()
    return System(program, tuple(arguments), older=older)


SYSTEMS = {
    "celery": _system("celery -A celery_jobs worker --pool threads --concurrency 2 -l WARNING"),
    "rq": _system("rq worker --config rq_settings --verbose"),
    "dramatiq": _system("dramatiq dramatiq_jobs --processes 1 --threads 2"),
    "huey": _system("huey_consumer huey_jobs.huey --no-periodic"),
    "taskiq_list": _system("taskiq worker taskiq_jobs:listed --workers 1"),
    "taskiq_stream": _system("taskiq worker taskiq_jobs:streamed --workers 1"),
    "saq": _system("saq saq_jobs.settings", older=True),
    "bullmq": _system(f"node {OTHER_LANGUAGES / 'bullmq_jobs.cjs'}"),
    "sidekiq": _system(f"sidekiq --require {OTHER_LANGUAGES / 'sidekiq_jobs.rb'} -c 1"),
}
"""Not arq: it ends when it polls while its server is away, also if that is redis-server."""
NUMBERS = {name: number for number, name in enumerate(SYSTEMS, 1)}
"""Of the systems, in their jobs."""
AGAIN_S = 10
"""After this time a worker that has started is sent another job."""


class Cluster(ThreeNodes):
    """Three nodes in place of a `RedisServer`."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.resp[NODES[0]]}/0"

    @property
    def sentinels(self) -> str:
        return " ".join(f"127.0.0.1:{port}" for port in self.resp.values())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each server of this run goes away in each of its ways; its workers stay for all of them."""
    kinds = list(metafunc.config.getoption("--endpoint") or ENDPOINTS)
    kinds += [CLUSTER] if DELAYLOG in kinds else []
    rows = [(kind, way) for kind in kinds for way in WAYS[kind]]
    metafunc.parametrize(("place", "way"), rows, indirect=["place"], scope="module")


class Place:
    """A server, or a cluster, with a worker of each system."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._server: RedisServer | None = None
        self._cluster: Cluster | None = None
        if kind == CLUSTER:
            self._cluster = Cluster(folder, redis=True, program=lambda _: [str(PROGRAM)])
        else:
            self._server = RedisServer(kind, folder, fsync="always")
        server: Any = self._server or self._cluster
        self._bench = Bench(server, folder)
        self._step = 0
        self._workers: dict[str, Any] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Start the server, then the workers, which run a job each; kill them in the end."""
        with ExitStack() as opened:
            if self._server is not None:
                opened.callback(self._server.remove)
                self._server.start()
            if self._cluster is not None:
                opened.callback(self._cluster.clean_up)
                self._cluster.start(new_cluster=True)
                self._cluster.followers()
            for name in SYSTEMS:
                self._start(name, opened)
            self._send()
            again_s = time.monotonic() + AGAIN_S

            def ready() -> bool:
                nonlocal again_s
                # On a busy machine the leader may change while a worker starts.
                for name in self._left():
                    self._start(name, opened)
                # When SAQ starts it sweeps away what is popped and not yet marked as running.
                if self._missing() and time.monotonic() > again_s:
                    self._send()
                    again_s = time.monotonic() + AGAIN_S
                return not self._missing()

            await_that(ready, self._why, seconds=TIMEOUT_S)
            yield
            # How they end by themselves is tested elsewhere.
            for process in self._workers.values():
                process.kill()
            for process in self._workers.values():
                process.wait()

    def go_away(self, way: str) -> None:
        """The server ends and is started again, or another node leads.

        Not before RQ's worker waits for jobs: it ends if a connection is lost while it stores what
        came of a job, unless redis-py repeats the command, which it does not with sentinels.
        """
        wait_for(self._rq_waits, "the next wait of RQ's worker")
        server, cluster = self._server, self._cluster
        if server is not None:
            if way == STOP:
                assert server.terminate() == 0
            else:
                server.kill()
            server.start()
        if cluster is not None:
            if way == HAND_OVER:
                leader, answer = cluster.hand_over()
                assert answer.json["node"] != leader
            else:
                leader = cluster.leader()
                if way == STOP:
                    assert cluster.stop(leader) == [0]
                else:
                    cluster.kill(leader)
                cluster.leader()
                cluster.start(leader)
            cluster.followers()

    def run_jobs(self) -> None:
        """Send a job to each system, and wait until all have run in the first workers."""
        self._send()
        await_that(lambda: self._left() or not self._missing(), self._why, seconds=TIMEOUT_S)
        assert self._left() == [], "these workers have ended"

    def _start(self, name: str, opened: ExitStack) -> None:
        system = SYSTEMS[name]
        program = str(OLDER / system.program) if system.older else system.program
        worker = self._bench.worker(program, *system.arguments)
        self._workers[name] = opened.enter_context(worker)

    def _left(self) -> list[str]:
        return [name for name, each in self._workers.items() if each.poll() is not None]

    def _rq_waits(self) -> bool:
        """Whether it has asked for jobs since it began the last one."""
        log = self._bench.log()
        return "dequeueing jobs on queues" in log.rpartition("rq_jobs.add(")[2]

    def _missing(self) -> list[str]:
        """The systems whose last job has not run."""
        ran = [word.partition(":")[2] for word in self._bench.names()]
        return [name for name in SYSTEMS if f"{NUMBERS[name]}+{self._step}" not in ran]

    def _why(self) -> str:
        return f"no job of {self._missing()} has run"

    def _send(self) -> None:
        """Send a job to each system, again where a sender failed."""
        self._step += 1
        step = str(self._step)
        waiting = [
            [program, str(OTHER_LANGUAGES / file), "one", str(NUMBERS[name]), step]
            for name, (program, file) in CHECKS.items()
        ]
        for older, python in ((True, str(OLDER / "python")), (False, sys.executable)):
            names = [name for name in SYSTEMS.keys() - CHECKS if SYSTEMS[name].older == older]
            jobs = [f"{name}={NUMBERS[name]}" for name in names]
            waiting.append([python, str(JOBS / "send.py"), step, *jobs])
        environment = self._bench.child_environment()

        def sent() -> bool:
            sending = [(each, subprocess.Popen(each, env=environment)) for each in waiting]
            waiting[:] = [each for each, sender in sending if sender.wait(TIMEOUT_S)]
            return not waiting

        await_that(sent, lambda: f"these senders failed: {waiting}", seconds=TIMEOUT_S)


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A server or cluster with its workers."""
    node_modules = _fetched("bullmq")
    _fetched("sidekiq")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NODE_PATH", node_modules)
        place = Place(request.param, tmp_path_factory.mktemp(request.param))
        with place.opened():
            yield place


def _fetched(name: str) -> str:
    """Fetch what a system of another language needs; returns the last word about it."""
    script = JOBS.parent / f"get_{name}.sh"
    return subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def test_workers_go_on(place: Place, way: str) -> None:
    place.go_away(way)
    place.run_jobs()
