"""`delaylog dump` shows what is staged, decided, published and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from delaylog.broker.engine.engine import Engine, Setup
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.cli.conftest import dump
from tests.broker.engine.staging import Transactions

NOW_MS = 1_700_000_000_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(OsFileSystem(), str(tmp_path / "data"), Setup(random=Random(1)), now_ms=NOW_MS)
    yield made
    made.close()


def test_dump(engine: Engine, tmp_path: Path) -> None:
    txn = Transactions(engine)
    for name in ("open", "going", "done", "dropped"):
        txn.begin(name, NOW_MS)
        txn.stage(name, [b"a", b"b"], NOW_MS, part=3)
    txn.abort("dropped", NOW_MS)
    txn.commit("done", NOW_MS, (3, 0, 2))
    engine.run_inline(engine.state.until_committed())
    txn.publish(NOW_MS)
    txn.commit("going", NOW_MS, (3, 0, 2))
    engine.run_inline(engine.upkeep.checkpoint(lambda: NOW_MS))
    engine.state.log.write_pending()
    (log,) = (tmp_path / "data/log").iterdir()
    frames = dump(log)
    assert not any("error" in line for line in frames)
    ops = [line["op"] for line in frames if line["kind"] == "TXN"]
    assert ops == ["begin", "part"] * 4 + ["abort", "commit", "commit"]
    (published,) = [line for line in frames if line["kind"] == "PUBLISH"]
    assert (published["txn"], published["first"], published["stop"]) == (3, 0, 2)
    assert published["results"]["created"] == 2
    (checkpoint,) = dump(max((tmp_path / "data").glob("checkpoint-*")))
    saved = checkpoint["transactions"]
    assert [(one["id"], one["parts"], one["rows"]) for one in saved["open"]] == [("open", 1, 2)]
    assert [(one["id"], one["published"]) for one in saved["unpublished"]] == [("going", 0)]
    ended = {one["id"]: one["state"] for one in saved["ended"]}
    assert ended == {"done": "committed", "dropped": "aborted"}
