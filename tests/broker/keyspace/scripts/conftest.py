"""Scripts and libraries of an executor, beside commands of the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.scripts import ScriptLimits


class Toy:
    """Scripts under limits of the test; `extra` has its commands, by lower-case name."""

    def __init__(self, limits: ScriptLimits | None = None) -> None:
        self.executor = Executor(Keyspace(Random(1)))
        self.executor.waits.clock_ms = lambda: time.monotonic_ns() // 1_000_000
        self.session = self.executor.connect(0)
        self.data = self.executor.keyspace.databases[0].values
        self.calls: list[list[bytes]] = []
        self.extra: dict[bytes, Callable[[list[bytes]], Reply]] = {}
        self.scripts = self.executor.scripting.enter(self.session)
        self.functions = self.executor.scripting.functions()
        if limits is not None:
            self.scripts.limits = limits
        owner = self.scripts.owner
        self._command, owner.call = owner.call, self._call

    def _call(self, argv: list[bytes]) -> Reply:
        self.calls.append(argv)
        return self.extra.get(argv[0].lower(), self._command)(argv)

    def eval(self, source: str | bytes, keys: Any = (), args: Any = ()) -> Reply:
        """EVAL; a refusal is an ErrorReply, which tells it from a script's string."""
        text = source.encode() if isinstance(source, str) else source
        argv = [b"EVAL", text, b"%d" % len(keys), *keys, *args]
        return self.executor.execute(self.session, argv)


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture(scope="module")
def shared() -> Toy:
    """One for all examples of a property."""
    return Toy()


@pytest.fixture
def make_toy() -> Callable[..., Toy]:
    return Toy
