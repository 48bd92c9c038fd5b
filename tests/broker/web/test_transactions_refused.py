"""A refusal that says what became of a transaction goes out when that is safe, as answers do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.calls import transactions
from delaylog.broker.engine import Engine
from delaylog.broker.engine.errors import ConflictError, EngineError, GoneError, NotLeadingError
from delaylog.storage.file_system import OsFileSystem
from tests.broker.engine.staging import Transactions, batch_of

NOW_MS = 450_000 * 3_600_000


class Stub:
    """What a handler needs of its context, node, clock and standing; the log is never safe."""

    def __init__(self, engine: Engine, query: dict[str, str], members: Any) -> None:
        self.engine, self.params = engine, {"transaction": "x"}
        self.node = self.clock = self.standing = self
        self._query, self._members = query, members
        self.waits_for = 0

    def query(self, *_declared: Any) -> dict[str, str]:
        return self._query

    async def members(self, _values_max: int | None = None) -> Any:
        return self._members

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
    made = Engine(OsFileSystem(), str(tmp_path / "data"), now_ms=NOW_MS, random=Random(1))
    yield made
    made.close()


STAGE = {"topic": "t", "part": "0", "attempt": "0", "number": "0"}
WINNERS = {"winners": [{"part": 0, "attempt": 0, "rows": 2}]}


@pytest.mark.parametrize(
    ("end", "handler", "query", "members", "refusal"),
    [
        ("commit", transactions.abort_transaction, {}, {}, ConflictError),
        ("commit", transactions.stage_part, STAGE, {}, GoneError),
        ("abort", transactions.commit_transaction, {}, WINNERS, GoneError),
        ("", transactions.commit_transaction, {}, WINNERS, ConflictError),
        ("", transactions.stage_part, STAGE, {}, ConflictError),
    ],
)
def test_it_waits(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    handler: Any,
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
    stub = Stub(engine, query, members)

    async def read(_ctx: Any) -> Any:
        return batch_of([b"other"])

    monkeypatch.setattr(transactions, "read_batch", read)

    async def call() -> None:
        task = asyncio.create_task(handler(stub))
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
    stub = Stub(engine, {}, {"winners": [{"part": 0, "attempt": 0, "rows": 2}] * 1_200})
    slices = 0

    def check() -> None:
        assert slices > 1
        raise NotLeadingError("this node leads no more")

    stub.check = check  # type: ignore[method-assign]

    async def others() -> None:
        nonlocal slices
        while True:
            slices += 1
            await asyncio.sleep(0)

    async def call() -> None:
        counting = asyncio.create_task(others())
        ctx: Any = stub
        with pytest.raises(NotLeadingError):
            await transactions.commit_transaction(ctx)
        counting.cancel()

    asyncio.run(call())
    assert engine.state.position == before
