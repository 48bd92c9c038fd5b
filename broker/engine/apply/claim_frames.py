"""CLAIM frames: a small map each, however many messages the claim has.

`op` is one of: begin (everything but the messages, which LEASE frames name), open (the claim takes
no more messages), extend, settle (decided; SETTLE frames follow for the messages), end (with the
claim's final `state`), and forget.
"""

from __future__ import annotations

from typing import Any

import msgpack

from delaylog.broker.engine.apply.whole_frames import whole
from delaylog.broker.engine.deliver.claim_table import OPEN, Claim
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import FrameKind


def append_claim(state: EngineState, members: dict[str, Any], now_ms: int) -> None:
    """Append a CLAIM frame and apply it."""
    _, end = state.append(FrameKind.CLAIM, [msgpack.packb(members)], now_ms)
    apply_claim(state, members, end)


@whole
def apply_claim(state: EngineState, members: dict[str, Any], end: int) -> None:
    """Apply a CLAIM frame."""
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
        # Its group was dropped, and its claims with it.
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
