"""Transactions in a cluster: a follower knows what is staged, and publishes on as the leader."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from delaylog.broker.engine.errors import NotLeadingError
from tests.broker.engine.host import HOUR
from tests.broker.engine.member import Member, contents
from tests.broker.engine.staging import Transactions

ROWS = 12


def staged(host: Any, name: str, parts: int = 3) -> None:
    txn = Transactions(host.engine)
    txn.begin(name, host.now_ms)
    for part in range(parts):
        bodies = [b"%d %d" % (part, row) for row in range(ROWS)]
        ids = [f"{name}{part}.{row}" for row in range(ROWS)]
        txn.stage(name, bodies, host.now_ms, part=part, ids=ids, delay_ms=HOUR)


@pytest.mark.parametrize(
    ("slices", "frame_s"), [*((count, 1.0) for count in range(9)), (1, 0.0008), (2, 0.0008)]
)
def test_a_follower_publishes_on(
    host: Any, member: Member, monkeypatch: Any, slices: int, frame_s: float
) -> None:
    """However far the old leader had got: every row once, and the same bytes on both."""
    staged(host, "x")
    Transactions(host.engine).commit("x", host.now_ms, *((part, 0, ROWS) for part in range(3)))
    host.sync()
    Transactions(host.engine).slices(host.now_ms, slices, frame_s)
    member.catch_up(host)
    if slices % 3 == 1:
        work = member.engine.upkeep.checkpoint(lambda: host.now_ms)
        member.engine.run_inline(work)
        member.close()
        member.open()
        member.follow(host.engine.state.log.end_position)
    theirs, ours = contents(host.engine), contents(member.engine)
    assert theirs == ours
    member.lead(host.now_ms)
    txn = Transactions(member.engine)
    txn.publish(host.now_ms)
    assert txn.look("x").counts == (3 * ROWS, 0, 0, 0, 0)
    old = host.engine
    monkeypatch.setattr(host, "engine", member.engine)
    host.turn()
    host.advance(HOUR)
    found = Counter(host.bodies())
    assert found == {b"%d %d" % (part, row): 1 for part in range(3) for row in range(ROWS)}
    host.check_counts()
    monkeypatch.setattr(host, "engine", old)


def test_an_open_one_goes_on(host: Any, member: Member) -> None:
    """Parts staged under two leaders are committed together; a repeat is known to the second."""
    staged(host, "x", parts=2)
    member.catch_up(host)
    txn, now = Transactions(member.engine), host.now_ms
    with pytest.raises(NotLeadingError):
        txn.stage("x", [b"early"], now, part=9)
    assert txn.look("x").rows == 2 * ROWS
    member.lead(now)
    bodies = [b"1 %d" % row for row in range(ROWS)]
    ids = [f"x1.{row}" for row in range(ROWS)]
    assert not txn.stage("x", bodies, now, part=1, ids=ids, delay_ms=HOUR)
    assert txn.stage("x", [b"more"], now, part=2)
    assert txn.commit("x", now, (0, 0, ROWS), (1, 0, ROWS), (2, 0, 1))
    member.log.write_pending()
    member.log.sync()
    txn.publish(now)
    assert txn.look("x").rows == 2 * ROWS + 1


def test_what_is_not_committed_is_not_decided(host: Any, member: Member) -> None:
    """A leader that falls takes its decision with it: the next one knows the parts only."""
    staged(host, "x")
    member.catch_up(host)
    member.lead(host.now_ms)
    txn, commit = Transactions(member.engine), member.log.end_position
    txn.commit("x", host.now_ms, *((part, 0, ROWS) for part in range(3)))
    assert member.log.end_position > commit
    member.engine.close()
    member.log.cut(commit)
    member.make_engine()
    member.follow(commit)
    known = Transactions(member.engine).look("x")
    assert (known.rows, len(known.parts)) == (3 * ROWS, 3)
