"""Claims: made once however often it is asked for, read alike, settled whole, gone when expired.

Slices are three messages, so that every claim has several; the hosts are synchronous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.deliver import claims as claims_module
from delaylog.broker.engine.deliver.claim_table import ENDED_KEPT, Claim, ClaimTable
from delaylog.broker.engine.deliver.claims import (
    check_open,
    claim_rows,
    extend_claim,
    find_claim,
    make_work,
)
from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    GoneError,
    QuotaRefusal,
)
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.storage.layout import FrameKind
from tests.broker.engine.claim_calls import LEASE, begin, bodies, find, make, numbered, settle


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "SLICE_ROWS", 3)


# --------------------------------------------------------------------------- making and reading


def test_the_same_messages_again(host: Any) -> None:
    """Made twice: the same claim, the same order, though more is ready now."""
    host.send(10)
    claim = make(host, count=8)
    assert (claim.state, claim.count) == ("open", 8)
    assert [len(refs) for refs in claim.refs] == [3, 3, 2]
    host.send([b"more"])
    again = make(host, count=100)
    assert again is claim
    assert bodies(host, claim) == bodies(host, claim) == numbered(0, 8)
    assert bodies(host, claim, 2, 5) == numbered(2, 5)
    assert bodies(host, claim, 3, 4) == numbered(3, 4)
    assert bodies(host, claim, 7) == numbered(7, 8)
    assert bodies(host, claim, 8) == bodies(host, claim, 5, 5) == []
    assert host.bodies() == [b"8", b"9", b"more"]
    host.check_counts()


def test_names_are_of_a_group(host: Any) -> None:
    """The same name in another group is another claim."""
    host.put_group("g")
    host.send(4)
    assert make(host).count == make(host, group="g").count == 4
    assert make(host, "other").count == 0


def test_two_make_it_at_the_same_time(host: Any) -> None:
    """Both drive the same claim; neither takes more than it may have."""
    host.send(20)
    claim = begin(host, count=8)
    works = [make_work(host.engine.state, claim, lambda: host.now_ms) for _ in range(2)]
    while works:
        works = [work for work in works if next(work, "end") != "end"]
    assert (claim.state, claim.count) == ("open", 8)
    assert bodies(host, claim) == numbered(0, 8)


def test_half_made_and_forgotten(host: Any) -> None:
    """No caller has seen it, so it leaves no trace: its messages come back, its name is free."""
    host.send(5)
    claim = begin(host, lease=1_000)
    next(make_work(host.engine.state, claim, lambda: host.now_ms))
    host.advance(claims_module.HOLD_MS + 100)
    assert find_claim(host.engine.state, host.topic, host.topic.default, "c") is None
    host.advance(60_000)
    again = make(host)
    assert sorted(bodies(host, again)) == numbered(0, 5)


def test_forgotten_while_it_was_made(host: Any) -> None:
    """The work that makes it stops there: it takes no message without a claim."""
    host.send(20)
    claim = begin(host, lease=1_000)
    work = make_work(host.engine.state, claim, lambda: host.now_ms)
    next(work)
    host.advance(claims_module.HOLD_MS + 100)
    host.engine.run_inline(work)
    host.turn()
    assert (host.topic.default.counts.leased, host.topic.default.counts.delivered) == (0, 3)
    assert not claim.living
    assert find_claim(host.engine.state, host.topic, host.topic.default, "c") is None


def test_rules_of_receive(host: Any) -> None:
    """One of a key at a time, tags as asked for, nothing while it is paused."""
    host.send(4, keys="kkqq")
    host.send(3, tags="aba")
    assert bodies(host, make(host, "tags", only=TagFilter.parse(["a"]))) == [b"0", b"2"]
    keyed = make(host, "keys")
    assert sorted(bodies(host, keyed)) == [b"0", b"1", b"2"]
    assert make(host, "later").count == 0
    settle(host, keyed, "acking")
    assert sorted(bodies(host, make(host, "after"))) == [b"1", b"3"]
    host.pause(paused=True)
    host.send(1)
    assert make(host, "paused").count == 0
    host.check_counts()


def test_bounds(open_host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a claim, of claims, and of what a group may have under lease."""
    monkeypatch.setattr("delaylog.broker.engine.deliver.claims.CLAIM_ROWS_MAX", 6)
    monkeypatch.setattr("delaylog.broker.engine.deliver.claims.CLAIMS_MAX", 2)
    host = open_host(limits=Limits(leased_max=5))
    host.send(10)
    for count in (0, 7):
        with pytest.raises(BadRequestError):
            begin(host, count=count)
    assert make(host, count=6).count == 5
    assert host.receive() == []
    assert make(host, "b", 6).count == 0
    with pytest.raises(QuotaRefusal):
        begin(host, "d", 1)
    settle(host, find(host), "acking")
    assert host.bodies() == numbered(5, 10)


def test_a_rate_limit(host: Any) -> None:
    """What it lets through at once."""
    host.configure(rate_limit={"per_second": 10, "burst": 4})
    host.send(10)
    assert make(host).count == 4


# --------------------------------------------------------------------------- settling


@pytest.mark.parametrize("restart", [False, True])
def test_acked(host: Any, restart: bool) -> None:
    """All of it, once; then it is gone for readers and `already` for who acks again."""
    host.send(10)
    claim = make(host)
    assert settle(host, claim, "acking")
    if restart:
        host.restart()
        claim = find(host)
    assert claim.state == "acked"
    assert not settle(host, claim, "acking")
    with pytest.raises(ConflictError) as conflict:
        settle(host, claim, "releasing")
    assert conflict.value.facts == {"state": "acked"}
    for call in (lambda: bodies(host, claim), lambda: begin(host)):
        with pytest.raises(GoneError) as gone:
            call()
        assert gone.value.facts == {"state": "acked"}
    with pytest.raises(GoneError):
        extend_claim(host.engine.state, claim, LEASE, host.now_ms)
    assert host.topic.default.counts.acked == 10
    host.check_counts()


def test_expired(host: Any) -> None:
    """Its messages come back, and it never does."""
    host.configure(backoff=Backoff(first_ms=0))
    host.send(10)
    claim = make(host)
    host.advance(LEASE - 1)
    assert len(bodies(host, claim)) == 10
    host.advance(1)
    for call in (
        lambda: bodies(host, claim),
        lambda: begin(host),
        lambda: settle(host, claim, "acking"),
        lambda: extend_claim(host.engine.state, claim, LEASE, host.now_ms),
    ):
        with pytest.raises(GoneError) as gone:
            call()
        assert gone.value.facts == {"state": "expired"}
    host.advance(100)
    assert host.bodies() == numbered(0, 10), "in their order"
    host.restart()
    assert find(host).state == "expired"
    host.check_counts()


def test_late_by_the_clock_alone(host: Any) -> None:
    """Past its time it is gone, also before anything has looked at the leases."""
    host.send(4)
    claim = make(host)
    host.now_ms += LEASE
    with pytest.raises(GoneError):
        settle(host, claim, "acking")


def test_extended(host: Any) -> None:
    """All of it, by one small frame, in memory and after a restart."""
    host.send(10)
    claim = make(host)
    host.advance(LEASE - 10)
    end = host.engine.state.log.end_position
    extend_claim(host.engine.state, claim, LEASE, host.now_ms)
    assert host.engine.state.log.end_position - end < 300
    host.advance(LEASE - 10)
    host.restart()
    assert len(bodies(host, find(host))) == 10
    host.advance(20)
    with pytest.raises(GoneError):
        bodies(host, find(host))


def test_single_messages_of_it(host: Any) -> None:
    """Acked by their own receipts they are done; the others stay with the claim."""
    host.send(6)
    claim = make(host)
    lease = claim.leases[0]
    origins = claim_rows(host.engine.state, claim, 0, 1).origins
    receipts = claims_module.Receipts(lease, origins)
    assert claims_module.ack(host.engine.state, host.topic, receipts, host.now_ms).done == 1
    assert len(bodies(host, claim)) == 6
    settle(host, claim, "releasing")
    assert host.bodies() == numbered(1, 6)


def test_purged_and_dropped(host: Any) -> None:
    """By force: gone. With its topic: never heard of."""
    host.send(4)
    claim = make(host)
    host.purge("default", force=False)
    assert len(bodies(host, claim)) == 4
    host.purge("default", force=True)
    with pytest.raises(GoneError) as gone:
        bodies(host, claim)
    assert gone.value.facts == {"state": "purged"}
    host.restart()
    assert find(host).state == "purged"
    host.send(4)
    read = make(host, "d")
    host.drop_topic()
    assert find_claim(host.engine.state, host.topic, host.topic.default, "c") is None
    with pytest.raises(GoneError):
        check_open(read, host.now_ms)


def test_lease_frames_without_a_claim_are_as_before(host: Any) -> None:
    """A receive writes what it wrote."""
    host.send(1)
    start = host.engine.state.log.end_position
    host.receive()
    state = host.engine.state
    raw = bytes(state.log.read(start, state.log.end_position - start))
    assert raw[5] == FrameKind.LEASE
    assert b"claim" not in raw


def test_ended_ones_are_bounded() -> None:
    """The oldest are forgotten."""
    table = ClaimTable()
    for number in range(1, ENDED_KEPT + 11):
        claim = Claim(number, 1, 1, f"c{number}", 1, 1, 1)
        table.begin(claim)
        table.end(claim, "acked")
    assert table.find(1, 1, "c10") is None
    assert table.find(1, 1, "c11") is not None
    assert len(table) == 0
    assert table.next_expiry_ms() is None


def test_columns_are_lent_to_checkpoints(host: Any) -> None:
    """A checkpoint is written later: nothing may change what it was given."""
    host.send(6)
    claim = make(host, count=3)
    saved = host.engine.state.claims.snapshot()
    (item,) = saved["living"]
    make(host, "other")
    assert np.frombuffer(item["refs"][0], np.int64).tolist() == claim.refs[0].tolist()
    assert not any(refs.flags.writeable and refs.base is not None for refs in claim.refs)
