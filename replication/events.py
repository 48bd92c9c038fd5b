"""The role of a node, and the events that its host has to act on."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from delaylog.replication.watermark import EpochTick


class Role(IntEnum):
    """The roles of a node."""

    FOLLOWER = 0
    PREPARING = 1
    ADOPTING = 2
    BEGINNING = 3
    SERVING = 4


class Serving(NamedTuple):
    """This node leads: start the engine's dispatch at the tick and serve clients."""

    epoch: int
    tick: EpochTick


class SteppedDown(NamedTuple):
    """This node no longer leads: fail the calls in flight and redirect clients."""

    epoch: int
    commit: int
    """End of the committed log: frames that this leadership appended after it may be lost."""


class Truncated(NamedTuple):
    """The log was cut: frames from `position` on that were applied must be undone."""

    position: int


class Resigned(NamedTuple):
    """This node did not serve in time: have another node elected until `until_ms`."""

    until_ms: int


class TakeoverAsked(NamedTuple):
    """The leader hands over to this node, which is a candidate now: the oracle has to follow."""

    epoch: int


class HandoverFailed(NamedTuple):
    """No node took over. If `resumed`, this node goes on in its epoch; else it begins a new one."""

    target: int
    resumed: bool


class NeedsCopy(NamedTuple):
    """A node needs frames from before the first position of the other log: only a copy helps."""

    node: int


class Readmitted(NamedTuple):
    """This node was a learner and is a voter again."""

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
