"""Calls of claims as a client makes them, each with all of its slices at once."""

from __future__ import annotations

from typing import Any

from delaylog.broker.engine.deliver.claim_table import Claim
from delaylog.broker.engine.deliver.claims import (
    begin_claim,
    check_open,
    claim_rows,
    decide,
    find_claim,
    make_work,
    settle_work,
)
from delaylog.broker.engine.deliver.receives import ReceiveRequest
from delaylog.broker.engine.ready.tag_filter import TagFilter

LEASE = 30_000


def make(host: Any, name: str = "c", count: int = 1_000, **how: Any) -> Claim:
    """Make a claim, as the edge does; `how` as of `begin`."""
    claim = begin(host, name, count, **how)
    host.engine.run_inline(make_work(host.engine.state, claim, lambda: host.now_ms))
    host.sync()
    return claim


def begin(
    host: Any,
    name: str = "c",
    count: int = 1_000,
    *,
    lease: int = LEASE,
    group: str = "default",
    only: TagFilter | None = None,
) -> Claim:
    """Only its beginning."""
    whose = host.topic.group(group)
    return begin_claim(
        host.engine.state,
        host.topic,
        whose,
        name,
        ReceiveRequest(count_max=count, now_ms=host.now_ms, only=only),
        lease_ms=lease,
    )


def find(host: Any, name: str = "c") -> Claim:
    """The claim as it is known now."""
    claim = find_claim(host.engine.state, host.topic, host.topic.default, name)
    assert claim is not None
    return claim


def bodies(host: Any, claim: Claim, start: int = 0, stop: int = 10**9) -> list[bytes]:
    """The bodies of a range."""
    check_open(claim, host.now_ms)
    got = claim_rows(host.engine.state, claim, start, stop)
    out, at = [], 0
    for row in got.rows:
        head = sum(int(row[f"{name}_size"]) for name in ("id", "key", "tags", "headers"))
        out.append(got.records[at + head : at + int(row["size"])])
        at += int(row["size"])
    assert sum(n for _, n in got.leases) == len(out) == len(got.attempts) == len(got.origins)
    return out


def settle(host: Any, claim: Claim, how: str) -> bool:
    """Ack or release, as the edge does."""
    state = host.engine.state
    first = decide(state, claim, how, host.now_ms)
    host.engine.run_inline(settle_work(state, claim, lambda: host.now_ms))
    host.turn()
    return first


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % k for k in range(start, stop)]
