"""What a CLAIM frame says, and does: one small map each, whatever the claim holds.

`op` is begin (all of the claim but its messages, which LEASE frames name), open (it takes no
more), extend, settle (decided; the messages follow in SETTLE frames), end (its `state` from then
on), and forget.
"""

from __future__ import annotations

from typing import Any

import msgpack

from delaylog.broker.engine.deliver.claim_table import OPEN, Claim
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import FrameKind


def append_claim(state: EngineState, members: dict[str, Any], now_ms: int) -> None:
    """Append a frame and do what it says."""
    _, end = state.append(FrameKind.CLAIM, [msgpack.packb(members)], now_ms)
    apply_claim(state, members, end)


def apply_claim(state: EngineState, members: dict[str, Any], end: int) -> None:
    """Do what a frame says."""
    claims = state.claims
    op, number = members["op"], members["number"]
    if op == "begin":
        claims.begin(
            Claim(
                number=number,
                topic=members["topic"],
                group=members["group"],
                name=members["name"],
                count_max=members["max"],
                lease_ms=members["lease_ms"],
                deadline_ms=members["deadline"],
                only=members["only"],
                position=end,
            )
        )
        return
    claim = claims.get(number)
    if claim is None:
        # Its group went, with all that was its.
        return
    claim.position = end
    if op == "end":
        claims.end(claim, members["state"])
    elif op == "forget":
        claims.forget(claim)
    else:
        assert op in ("open", "extend", "settle"), op
        deadline_ms = members["deadline"]
        claims.change(claim, {"open": OPEN}.get(op, members.get("state", OPEN)), deadline_ms)
        for lease in claim.leases:
            state.leases.extend(lease, deadline_ms)
