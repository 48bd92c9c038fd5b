"""What a node says: messages to other nodes, and events that its host has to act on.

Every message of an epoch names it. The bytes are declared in wire.py. The connection identifies the
sender, so no message names it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from delaylog.replication.epochs import EpochEntries, EpochTick
from delaylog.storage.messages.batch import Block

# ----------------------------------------------------------------------- messages between nodes


class Hello(NamedTuple):
    """The first message on a connection: its sender, which the transport authenticates."""

    cluster_id: bytes
    node: int
    voter: bool
    promised: int
    end: int


class FolderIdentity(NamedTuple):
    """The second message on a connection: the sender's data folder, and what it knows of the
    receiver's folder. 0 and zero bytes mean "unknown".
    """

    cluster: bytes
    """The random id of the cluster, 16 bytes."""
    incarnation: int
    """The incarnation of the process that runs on the folder now."""
    version: int
    """The version of the configuration in the folder's log."""
    history: bytes
    """A hash that only logs with the same frames share, apart from the last epoch; 16 bytes."""
    remembered: int
    """The receiver's newest incarnation that the sender has met as a voter."""
    learner: int
    """The newest one that it has met as a learner since then, if any."""
    leads: int
    """The epoch in which the sender leads; 0 if it does not."""
    acknowledged: int
    """The log that the receiver has acknowledged as durable in that epoch."""
    incarnations: tuple[int, ...]
    """The incarnations of the folder, oldest first, including the present one."""


class NodeStatus(NamedTuple):
    """The status of a node, sent to all others twice a second: a msgpack map of the host."""

    members: Block


class Canvass(NamedTuple):
    """A node that hears no leader asks the receiver whether it would promise an epoch to it."""

    round: int
    """Numbers the canvasses of the sender; the answer names it."""
    last_epoch: int
    end: int
    """The sender's log: its newest epoch, and its end."""


class Support(NamedTuple):
    """The answer to a CANVASS. It binds nobody: only a promise does."""

    round: int
    granted: bool


class Prepare(NamedTuple):
    """A candidate asks the receiver to promise its epoch: to follow no lower one any more."""

    epoch: int


class Promise(NamedTuple):
    """A durable promise, with the contents of the sender's log, which is frozen from now on."""

    epoch: int
    end: int
    tick: EpochTick
    table: EpochEntries

    @property
    def last_epoch(self) -> int:
        """The epoch of the log's last frame."""
        return self.table[-1][0] if self.table else 0


class Nack(NamedTuple):
    """A refusal: the sender has promised an epoch that is at least as new."""

    epoch: int
    promised: int


class Fetch(NamedTuple):
    """A candidate requests the frames that its log lacks from the best log."""

    epoch: int
    offset: int
    table: EpochEntries


class Fetched(NamedTuple):
    """Whole frames from `offset` on; `end` = the end of the sender's log."""

    epoch: int
    offset: int
    end: int
    data: Block


class Append(NamedTuple):
    """Whole frames from `prev_offset` on, or none; the commit position; the tick.

    `seq` numbers the rounds of a leadership: an answer names the newest round whose tick was taken.
    """

    epoch: int
    prev_offset: int
    prev_epoch: int
    commit: int
    seq: int
    tick: EpochTick
    data: Block


class Ack(NamedTuple):
    """The log durably equals the leader's up to `end`; the tick of round `seq` was taken."""

    epoch: int
    end: int
    seq: int
    voter: bool


class Reject(NamedTuple):
    """The frames do not continue the sender's log, whose end and table follow."""

    epoch: int
    end: int
    voter: bool
    table: EpochEntries


class Takeover(NamedTuple):
    """A leader that will never dispatch again asks the receiver to lead."""

    epoch: int
    end: int
    tick: EpochTick


class Readmit(NamedTuple):
    """A leader readmits a learner, whose log must reach `end`, as a voter."""

    epoch: int
    end: int


class CopyOffer(NamedTuple):
    """A leader offers a copy of its folder to a node that needs frames from before its log."""

    epoch: int
    copy: int
    """The number of the copy, drawn by the leader."""


class CopyTaken(NamedTuple):
    """The receiver has written `taken` bytes of a copy; 0 accepts the offer."""

    epoch: int
    copy: int
    taken: int


class CopyPart(NamedTuple):
    """Bytes of one file of a copy; bytes that no part contains are zeros."""

    epoch: int
    copy: int
    at: int
    """The number of bytes in all previous parts."""
    offset: int
    """The offset in the file."""
    name: str
    """The path of the file, relative to the folder."""
    data: Block


class CopyEnd(NamedTuple):
    """The whole copy was sent (`whole`), or one of the two nodes gives it up."""

    epoch: int
    copy: int
    whole: bool


CopyMessage: TypeAlias = CopyOffer | CopyTaken | CopyPart | CopyEnd
OracleMessage: TypeAlias = Canvass | Support
HostMessage: TypeAlias = CopyMessage | FolderIdentity | NodeStatus | OracleMessage
"""Messages between the hosts of two nodes, which `ReplicationNode` does not take."""

Message: TypeAlias = (
    Hello
    | Prepare
    | Promise
    | Nack
    | Fetch
    | Fetched
    | Append
    | Ack
    | Reject
    | Takeover
    | Readmit
    | HostMessage
)


# -------------------------------------------------- the role of a node, and events for its host


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
