"""What a host has to know of: a node's standing, and the events that change it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from delaylog.replication.watermark import EpochTick


class Role(IntEnum):
    """What a node does at the moment."""

    FOLLOWER = 0
    PREPARING = 1
    ADOPTING = 2
    BEGINNING = 3
    SERVING = 4


class Serving(NamedTuple):
    """This node leads: start the engine's dispatch at the tick and let clients in."""

    epoch: int
    tick: EpochTick


class SteppedDown(NamedTuple):
    """It does not any more. Drop what was in flight and send clients elsewhere."""

    epoch: int
    commit: int
    """Up to where this leadership had committed: what it had appended behind may be lost."""


class Truncated(NamedTuple):
    """The log was cut: what was applied from there on has to be forgotten."""

    position: int


class Resigned(NamedTuple):
    """It could not come to serve in time: let another node be chosen until then."""

    until_ms: int


class TakeoverAsked(NamedTuple):
    """The leader hands over to this node, which is a candidate now: tell the oracle to agree."""

    epoch: int


class HandoverFailed(NamedTuple):
    """Nobody took over. If `resumed`, this node goes on as before; else it tries a new epoch."""

    target: int
    resumed: bool


class NeedsCopy(NamedTuple):
    """A node's log lies behind the first position of the one it needs: only a copy helps."""

    node: int


class Readmitted(NamedTuple):
    """This node, a learner until now, is a voter again."""

    epoch: int


Event: TypeAlias = (
    Serving
    | SteppedDown
    | Truncated
    | Resigned
    | TakeoverAsked
    | HandoverFailed
    | NeedsCopy
    | Readmitted
)
