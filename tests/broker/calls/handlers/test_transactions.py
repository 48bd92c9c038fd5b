"""A refusal that says what became of a transaction goes out when that is safe, as answers do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from delaylog.broker.calls.context import Context
from delaylog.broker.calls.handlers import transactions
from delaylog.broker.calls.operations import HANDLERS
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.errors import ConflictError, EngineError, GoneError, NotLeadingError
from delaylog.contract.calls.table import BY_NAME
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.engine.host import batch_of
from tests.broker.engine.staging import Transactions

NOW_MS = 450_000 * 3_600_000


class Stub(Context):
    """A call with what a handler needs of its node, clock and role; the log is never safe."""

    def __init__(self, engine: Engine, name: str, query: dict[str, str], members: Any) -> None:
        itself: Any = self
        super().__init__(itself, {}, urlencode(query))
        self.engine, self.params = engine, {"transaction": "x"}
        self.node = self.clock = self.role = itself
        self.call = BY_NAME[name]
        self._wire = orjson.dumps(members)
        self.waits_for = 0

    async def _body(self, size_max: int) -> bytes:
        assert len(self._wire) <= size_max
        return self._wire

    def now_ms(self) -> int:
        return NOW_MS

    def free_bytes(self) -> int:
        return 1 << 60

    def kick_publish(self) -> None: ...

    def check(self) -> None:
        """It leads."""

    async def safe(self, position: int, _acks: Any) -> None:
        self.waits_for = position
        await asyncio.Event().wait()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(OsFileSystem(), str(tmp_path / "data"), Setup(random=Random(1)), now_ms=NOW_MS)
    yield made
    made.close()


STAGE = {"topic": "t", "part": "0", "attempt": "0", "number": "0"}
WINNERS = {"winners": [{"part": 0, "attempt": 0, "rows": 2}]}


@pytest.mark.parametrize(
    ("end", "name", "query", "members", "refusal"),
    [
        ("commit", "abort", {}, {}, ConflictError),
        ("commit", "stage", STAGE, {}, GoneError),
        ("abort", "commit", {}, WINNERS, GoneError),
        ("", "commit", {}, WINNERS, ConflictError),
        ("", "stage", STAGE, {}, ConflictError),
    ],
)
def test_it_waits(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    name: str,
    query: dict[str, str],
    members: Any,
    refusal: type[EngineError],
) -> None:
    calls = Transactions(engine)
    calls.begin("x", NOW_MS)
    calls.stage("x", [b"a"], NOW_MS)
    if end == "commit":
        calls.commit("x", NOW_MS, (0, 0, 1))
    elif end == "abort":
        calls.abort("x", NOW_MS)
    stub = Stub(engine, name, query, members)

    async def read(_ctx: Any) -> Any:
        return batch_of([b"other"])

    monkeypatch.setattr(transactions, "read_batch", read)

    async def call() -> None:
        task = asyncio.ensure_future(HANDLERS[name](stub))
        done, _ = await asyncio.wait([task], timeout=0.05)
        if done:
            with pytest.raises(refusal):
                await task
        assert not done, "it was told before it was safe"
        task.cancel()

    asyncio.run(call())
    assert stub.waits_for == engine.state.position


def test_a_commit_looks_again_whether_this_node_leads(engine: Engine) -> None:
    """Many winners are looked through in slices, between which another node may come to lead."""
    Transactions(engine).begin("x", NOW_MS)
    before = engine.state.position
    stub = Stub(engine, "commit", {}, {"winners": [{"part": 0, "attempt": 0, "rows": 2}] * 1_200})
    slices = 0

    def check() -> None:
        assert slices > 1
        raise NotLeadingError("this node no longer leads")

    stub.check = check  # type: ignore[method-assign]

    async def others() -> None:
        nonlocal slices
        while True:
            slices += 1
            await asyncio.sleep(0)

    async def call() -> None:
        counting = asyncio.create_task(others())
        with pytest.raises(NotLeadingError):
            await transactions.commit_transaction(stub)
        counting.cancel()

    asyncio.run(call())
    assert engine.state.position == before
