"""Transactions in a cluster: a follower knows what is staged, and publishes on as the leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.transactions import publishing
from tests.broker.engine.host import HOUR
from tests.broker.engine.member import Member, contents
from tests.broker.engine.staging import Transactions

ROWS = 12


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "SLICE_ROWS_MIN", 5)
    monkeypatch.setattr(publishing, "SLICE_ROWS_FIRST", 5)


@pytest.fixture
def follower(tmp_path: Path, host: Any) -> Iterator[Member]:
    made = Member(tmp_path / "follower", host.now_ms)
    yield made
    made.close()


def staged(host: Any, name: str, parts: int = 3) -> None:
    txn = Transactions(host.engine)
    txn.begin(name, host.now_ms)
    for part in range(parts):
        bodies = [b"%d %d" % (part, row) for row in range(ROWS)]
        ids = [f"{name}{part}.{row}" for row in range(ROWS)]
        txn.stage(name, bodies, host.now_ms, part=part, ids=ids, delay_ms=HOUR)


def catch_up(host: Any, follower: Member) -> None:
    follower.catch_up(host)


@pytest.mark.parametrize("slices", range(9))
def test_a_follower_publishes_on(
    host: Any, follower: Member, monkeypatch: Any, slices: int
) -> None:
    """However far the old leader had got: every row once, and the same bytes on both."""
    staged(host, "x")
    Transactions(host.engine).commit("x", host.now_ms, *((part, 0, ROWS) for part in range(3)))
    host.sync()
    Transactions(host.engine).slices(host.now_ms, slices)
    catch_up(host, follower)
    if slices % 3 == 1:
        work = follower.engine.upkeep.checkpoint(lambda: host.now_ms)
        follower.engine.run_inline(work)
        follower.close()
        follower.open()
        follower.follow(host.engine.state.log.end_position)
    theirs, ours = contents(host.engine), contents(follower.engine)
    assert theirs == ours
    follower.lead(host.now_ms)
    txn = Transactions(follower.engine)
    txn.publish(host.now_ms)
    assert txn.look("x").counts == (3 * ROWS, 0, 0, 0, 0)
    old = host.engine
    monkeypatch.setattr(host, "engine", follower.engine)
    host.turn()
    host.advance(HOUR)
    found = Counter(host.bodies())
    assert found == {b"%d %d" % (part, row): 1 for part in range(3) for row in range(ROWS)}
    host.check_counts()
    monkeypatch.setattr(host, "engine", old)


def test_an_open_one_goes_on(host: Any, follower: Member) -> None:
    """Parts staged under two leaders are committed together; a repeat is known to the second."""
    staged(host, "x", parts=2)
    catch_up(host, follower)
    txn, now = Transactions(follower.engine), host.now_ms
    with pytest.raises(NotLeadingError):
        txn.stage("x", [b"early"], now, part=9)
    assert txn.look("x").rows == 2 * ROWS
    follower.lead(now)
    bodies = [b"1 %d" % row for row in range(ROWS)]
    ids = [f"x1.{row}" for row in range(ROWS)]
    assert not txn.stage("x", bodies, now, part=1, ids=ids, delay_ms=HOUR)
    assert txn.stage("x", [b"more"], now, part=2)
    assert txn.commit("x", now, (0, 0, ROWS), (1, 0, ROWS), (2, 0, 1))
    follower.log.write_pending()
    follower.log.sync()
    txn.publish(now)
    assert txn.look("x").rows == 2 * ROWS + 1


def test_what_is_not_committed_is_not_decided(host: Any, follower: Member) -> None:
    """A leader that falls takes its decision with it: the next one knows the parts only."""
    staged(host, "x")
    catch_up(host, follower)
    follower.lead(host.now_ms)
    txn, commit = Transactions(follower.engine), follower.log.end_position
    txn.commit("x", host.now_ms, *((part, 0, ROWS) for part in range(3)))
    assert follower.log.end_position > commit
    follower.engine.close()
    follower.log.cut(commit)
    follower.make_engine()
    follower.follow(commit)
    known = Transactions(follower.engine).look("x")
    assert (known.rows, len(known.parts)) == (3 * ROWS, 3)
