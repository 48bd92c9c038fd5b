"""Three real `delaylog serve` processes that are one cluster, on loopback ports of their own.

The fixtures `three` and `start_three` make them. A busy machine elects another leader without a
fault now and then, so a test either asks whoever leads (`on_leader`), or is `steady`.
"""

from __future__ import annotations

import contextlib
import http.client
import inspect
import itertools
import json
import os
import secrets
import signal
import ssl
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

from delaylog.client.child_broker import free_ports
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.log.tick_slots import newest_slot
from tests.broker.answer import Answer
from tests.starts.tuned import tuning
from tests.starts.warm import WarmProcess
from tests.waiting import await_that

NODES = (1, 2, 3)
NAMES = {1: "alpha", 2: "beta", 3: "gamma"}
START_S = 60
CALL_S = 15
TRIES = 3
PASSED_OVER_MAX = 2
Process = subprocess.Popen[bytes] | WarmProcess
Scene = TypeVar("Scene", bound=Callable[..., Any])


class ThreeNodes:
    """Nodes 1 to 3 (alpha, beta, gamma) and a plain client for them, which follows nothing."""

    wait_s = START_S
    """How long anything may take."""

    def __init__(
        self,
        folder: Path,
        *,
        acks: str = "quorum",
        limits: str = "",
        constants: Mapping[str, float] | None = None,
        redis: bool = False,
        program: Callable[[int], Sequence[str]] | None = None,
        more: Mapping[int, str] | None = None,
        token: str = "",
        without_raftos: Collection[int] = (),
    ) -> None:
        """`limits` = lines of a configuration file for all nodes; `constants` of the code: see
        `tests/starts/tuned.py`; `redis` = they take Redis clients too; `program` gives what stands
        for the command on a node; `more` = lines of the cluster file about a node; `token` = the
        administrator's, which calls carry by default; `without_raftos` = nodes where raftos is not
        installed."""
        self.folder = folder
        self._program = program
        ports = free_ports(9)
        self.http = dict(zip(NODES, ports[:3], strict=True))
        self.peers = dict(zip(NODES, ports[3:6], strict=True))
        self.resp = dict(zip(NODES, ports[6:], strict=True)) if redis else {}
        secret = folder / "cluster.secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        lines = ['cluster = "three"', 'secret_file = "cluster.secret"', f'acks = "{acks}"']
        for node in NODES:
            lines += [
                f"[members.{node}]",
                f'name = "{NAMES[node]}"',
                f'peer = "127.0.0.1:{self.peers[node]}"',
                f'http = "127.0.0.1:{self.http[node]}"',
            ]
            if redis:
                lines.append(f'resp = "127.0.0.1:{self.resp[node]}"')
            lines.append((more or {}).get(node, ""))
        self.config = folder / "cluster.toml"
        self.config.write_text("\n".join(lines) + "\n")
        self.configs: dict[int, Path] = {}
        """Of nodes that have a cluster file of their own."""
        self._options: list[str] = []
        if limits:
            (folder / "delaylog.toml").write_text(limits)
            self._options = ["--config", str(folder / "delaylog.toml")]
        self._tuning = tuning(constants or {})
        self.token = token
        self._without_raftos = without_raftos
        self.tls: ssl.SSLContext | None = None
        """Trusts the nodes' certificates, if their cluster file has https URLs."""
        self._processes: dict[int, Process] = {}
        self._outs: dict[int, IO[str]] = {}
        self.passed_over = 0
        """Failures that `Try` has passed over."""
        self._starts = itertools.count()
        self._fresh = itertools.count()
        self._hung: set[int] = set()
        self.handed_over = 0
        """How often `hand_over` has begun an epoch."""

    # ------------------------------------------------------------------ processes

    def start(self, *nodes: int, new_cluster: bool = False, wait: bool = True) -> None:
        """Start nodes, all without any named, and wait until they serve."""
        for node in nodes or NODES:
            words = ["--data-dir", str(self.data_dir(node)), "--http", self.address(node)]
            config = self.configs.get(node, self.config)
            words += ["--cluster", str(config), "--node", str(node), *self._options]
            if self.resp:
                words += ["--resp", f"127.0.0.1:{self.resp[node]}"]
            words += ["--new-cluster"] if new_cluster else []
            reading, writing = os.pipe()
            self._outs[node] = os.fdopen(reading)
            with self.log_path(node).open("ab") as log:
                self._processes[node] = self.launch(node, words, writing, log.fileno())
            os.close(writing)
        for node in (nodes or NODES) if wait else ():
            line = self._outs[node].readline()
            assert line.startswith("ready http="), self.log_path(node).read_text()

    def launch(self, node: int, words: Sequence[str], out: int, log: int) -> Process:
        """The process of a node; `out` and `log` are the descriptors of its streams."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DELAYLOG_")}
        environment |= self._tuning
        if self.token:
            environment["DELAYLOG_ADMIN_TOKEN"] = self.token
        with Path(os.devnull).open() as nothing:
            if self._program is not None:
                return subprocess.Popen(
                    [*self._program(node), "serve", *words],
                    stdin=nothing,
                    stdout=out,
                    stderr=log,
                    env=environment,
                )
            return WarmProcess(
                "serve",
                *words,
                stdin=nothing.fileno(),
                stdout=out,
                stderr=log,
                environment=environment,
                turn=node + next(self._starts) // len(NODES),
                hidden=["raftos"] if node in self._without_raftos else [],
            )

    def stop(self, *nodes: int) -> list[int]:
        """End nodes politely, all without any named; returns their exit statuses."""
        ending = [(node, self._processes.pop(node)) for node in nodes or list(self._processes)]
        for _, process in ending:
            process.terminate()
        return [self._ended(node, process) for node, process in ending]

    def ended(self, node: int) -> int:
        """The status that a node ends with by itself."""
        return self._ended(node, self._processes.pop(node))

    def kill(self, *nodes: int) -> None:
        """End nodes at once."""
        for node in nodes or list(self._processes):
            process = self._processes.pop(node)
            process.kill()
            self._ended(node, process)

    def signal(self, node: int, number: signal.Signals) -> None:
        """Such as SIGSTOP and SIGCONT."""
        if number == signal.SIGSTOP:
            self._hung.add(node)
        elif number == signal.SIGCONT:
            self._hung.discard(node)
        self._processes[node].send_signal(number)

    def _ended(self, node: int, process: Process) -> int:
        self._hung.discard(node)
        try:
            return process.wait(self.wait_s)
        finally:
            self._outs.pop(node).close()

    @property
    def running(self) -> list[int]:
        return sorted(self._processes)

    # ------------------------------------------------------------------ places

    def data_dir(self, node: int) -> Path:
        return self.folder / f"n{node}"

    def log_path(self, node: int) -> Path:
        return self.folder / f"n{node}.log"

    def address(self, node: int) -> str:
        return f"127.0.0.1:{self.http[node]}"

    def url(self, node: int) -> str:
        return f"http://{self.address(node)}"

    # ------------------------------------------------------------------ calls

    def call(
        self,
        node: int,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request to a node. Members become JSON, bytes go as they are."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = self._connection(node)
        try:
            known = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            connection.request(method, path, body, known | (headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        except (OSError, http.client.HTTPException):
            return Answer(0, {}, b"")
        finally:
            connection.close()

    def _connection(self, node: int) -> http.client.HTTPConnection:
        at = ("127.0.0.1", self.http[node])
        if self.tls is None:
            return http.client.HTTPConnection(*at, timeout=CALL_S)
        return http.client.HTTPSConnection(*at, timeout=CALL_S, context=self.tls)

    def status(self, node: int) -> Any:
        """What a node knows of the cluster; {} while it is not reached."""
        answer = self.call(node, "GET", "/v1/cluster")
        return answer.json if answer.status == 200 else {}

    def leader(self) -> int:
        """The node that leads and takes changes, waited for."""
        return self.until(self._leader, "nobody came to lead")

    def _leader(self) -> int | None:
        # A stopped node would keep the caller waiting for as long as a call may take.
        asked = [node for node in self.running if node not in self._hung]
        roles = {node: self.status(node).get("role") for node in asked}
        leaders = [node for node, role in roles.items() if role == "leader"]
        return leaders[0] if len(leaders) == 1 else None

    def on_leader(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        later: tuple[int, ...] = (0, 307, 503),
    ) -> Answer:
        """The answer of the leader, which may change at any moment on a busy machine.

        A call with a status of `later` is repeated.
        """

        def answered() -> Answer | None:
            answer = self.call(self.leader(), method, path, body, headers)
            return None if answer.status in later else answer

        found: Answer = self.until(answered, f"no leader took {method} {path}")
        return found

    def all_there(self, paths: Sequence[str]) -> None:
        """Each path is found at the leader."""
        leader = self.leader()
        for path in paths:
            answer = self.call(leader, "GET", path)
            if answer.status in (0, 307, 503):
                answer = self.on_leader("GET", path)
            assert answer.status == 200, (path, answer)

    def on_node(
        self,
        node: int,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """The answer of this node, asked again while it hears nothing of its leader (503)."""

        def answered() -> Answer | None:
            answer = self.call(node, method, path, body, headers)
            return None if answer.status in (0, 503) else answer

        found: Answer = self.until(answered, f"node {node} did not take {method} {path}")
        return found

    def hand_over(self, to: int | str | None = None) -> tuple[int, Answer]:
        """The leader that has handed over, to `to` if that is given, and its answer.

        A refusal is repeated: on a busy machine a target may lag for a moment.
        """

        def done() -> tuple[int, Answer] | None:
            leader = self.leader()
            assert leader != to, f"node {to} leads already"
            shape = {} if to is None else {"to": to}
            answer = self.call(leader, "POST", "/v1/cluster/handover", shape)
            assert answer.status in (200, 409), answer
            return (leader, answer) if answer.status == 200 else None

        found: tuple[int, Answer] = self.until(done, "no leader handed over")
        self.handed_over += 1
        return found

    def unplanned(self) -> int:
        """How many epochs there were that no `hand_over` began."""

        def counter() -> int:
            epochs = [self.status(node).get("epoch") for node in self.running]
            return max((each["counter"] for each in epochs if each), default=0)

        return int(self.until(counter, "no node knows an epoch")) - self.handed_over

    def fresh(self, word: str) -> str:
        """A name that begins with the word, and is new with each call."""
        return f"{word}{next(self._fresh)}"

    def followers(self) -> list[int]:
        """The nodes that follow, each of which knows who leads.

        Who leads is asked for anew with each look: a node that was stopped and goes on takes over
        again, a moment after it was seen to follow.
        """

        def known() -> list[int] | None:
            if (leader := self._leader()) is None:
                return None
            others = [node for node in self.running if node != leader]
            seen = [self.status(node).get("leader") for node in others]
            return others if all(each and each["node"] == leader for each in seen) else None

        found: list[int] = self.until(known, "the followers do not know the leader")
        return found

    def until(self, look: Callable[[], Any], text: str = "it never came") -> Any:
        """What `look` finds, once it finds something."""
        return await_that(look, lambda: f"{text}\n{self.tails()}", seconds=self.wait_s)

    def caught_up(self) -> None:
        """Wait until every node has applied what the leader has now."""
        ends: dict[str, int] = {}
        """The end of the log when this leader was first seen."""

        def all_applied() -> bool:
            seen = [self.status(node) for node in self.running]
            leaders = [each for each in seen if each.get("role") == "leader"]
            if len(leaders) != 1:
                return False
            end = ends.setdefault(str(leaders[0]["epoch"]), leaders[0]["log_end"])
            return all(each.get("applied", 0) >= end for each in seen)

        self.until(all_applied, "a node lags")

    def kept(self) -> None:
        """Wait until every node would know after a kill what it has applied now.

        A node that starts without a leader applies what its tick on disk covers, and the tick
        follows every 50 ms.
        """
        self.caught_up()
        for node in self.running:
            applied = self.status(node)["applied"]
            path = f"{self.data_dir(node)}/tick"

            def covered(path: str = path, applied: int = applied) -> bool:
                with contextlib.closing(OsFileSystem().open(path)) as file:
                    record, _ = newest_slot(file)
                return record is not None and record.tick.position >= applied

            self.until(covered, "the tick on disk lags")

    def tails(self) -> str:
        """The ends of the logs, for a failure's message."""
        return "\n".join(
            f"--- node {node}\n{self.log_path(node).read_text()[-2_000:]}"
            for node in sorted(self.http)
            if self.log_path(node).exists()
        )

    def log_lines(self, node: int) -> list[dict[str, Any]]:
        """All log lines of a node; each must be a JSON object."""
        return [json.loads(line) for line in self.log_path(node).read_text().splitlines()]

    def clean_up(self) -> None:
        """Kill what runs; the reserve is real space, and pytest keeps folders."""
        self.kill()
        for node in self.http:
            (self.data_dir(node) / "reserve").unlink(missing_ok=True)


class Try:
    """A block of a test; a failure is passed over if a node came to lead that nobody had asked to.

    The last try passes nothing over, and all tests of one cluster together only a few: a product
    that loses its leader now and then fails them.
    """

    def __init__(self, nodes: ThreeNodes, *, last: bool) -> None:
        self._nodes = nodes
        self._last = last
        self._before = 0

    def __enter__(self) -> None:
        self._nodes.followers()
        self._before = self._nodes.unplanned()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._last or not isinstance(error, Exception):
            return False
        if self._nodes.passed_over == PASSED_OVER_MAX or self._nodes.unplanned() == self._before:
            return False
        self._nodes.passed_over += 1
        return True


def tries(nodes: ThreeNodes) -> Iterator[Try]:
    """Tries of a block, which leaves the loop when it has succeeded."""
    for number in range(TRIES):
        yield Try(nodes, last=number == TRIES - 1)


def steady(scene: Scene) -> Scene:
    """A test in which nobody comes to lead but by `hand_over`; otherwise it is tried again.

    So each try has to find what it needs, whatever an earlier one has done.
    """

    def nodes_of(fixtures: Mapping[str, Any]) -> ThreeNodes:
        return next(each for each in fixtures.values() if isinstance(each, ThreeNodes))

    def played(**fixtures: Any) -> None:
        for each in tries(nodes_of(fixtures)):
            with each:
                scene(**fixtures)
                return

    async def played_in_loop(**fixtures: Any) -> None:
        for each in tries(nodes_of(fixtures)):
            with each:
                await scene(**fixtures)
                return

    chosen = played_in_loop if inspect.iscoroutinefunction(scene) else played
    return wraps(scene)(chosen)  # type: ignore[return-value]
