"""What nodes say to each other. Every message but HELLO names the epoch it belongs to.

The bytes of each are declared in wire.py. Who sent a message is known from its connection, so no
message says it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from delaylog.replication.epochs import EpochEntries
from delaylog.replication.watermark import EpochTick
from delaylog.storage.messages.batch import Block


class Hello(NamedTuple):
    """First on a connection: who speaks. Proving it is the transport's affair."""

    cluster_id: bytes
    node: int
    voter: bool
    promised: int
    end: int


class FolderIdentity(NamedTuple):
    """Second on a connection: which data folder speaks, and what it knows of the other one.

    Nodes of feature level 1 neither send nor take it. 0 and zero bytes stand for "unknown".
    """

    cluster: bytes
    """The random id of the cluster, 16 bytes."""
    incarnation: int
    """Of the process that runs on the folder now."""
    version: int
    """Of the configuration that the folder's log holds."""
    history: bytes
    """16 bytes that only logs of the same origin and end share, the last epoch left out."""
    remembered: int
    """The receiver's newest incarnation that the sender has met as a voter."""
    learner: int
    """The same as a learner, if it came as one since."""
    leads: int
    """The epoch in which the sender leads at the moment."""
    acknowledged: int
    """What the receiver has acknowledged as durable in that epoch."""
    incarnations: tuple[int, ...]
    """Of the folder, oldest first, the present one included."""


class NodeStatus(NamedTuple):
    """How a node is, sent to everybody at regular intervals: a msgpack map, see the host."""

    members: Block


class Prepare(NamedTuple):
    """A candidate asks for the promise to follow nobody of a lower epoch any more."""

    epoch: int


class Promise(NamedTuple):
    """Given, durably; and what the log of who gave it holds, which is frozen from now on."""

    epoch: int
    end: int
    tick: EpochTick
    table: EpochEntries

    @property
    def last_epoch(self) -> int:
        """The epoch of the log's last frame."""
        return self.table[-1][0] if self.table else 0


class Nack(NamedTuple):
    """Refused: something at least as new has been promised."""

    epoch: int
    promised: int


class Fetch(NamedTuple):
    """A candidate asks the best log among its promises for what its own lacks."""

    epoch: int
    offset: int
    table: EpochEntries


class Fetched(NamedTuple):
    """Whole frames from `offset`; `end` is where the log they come from ends."""

    epoch: int
    offset: int
    end: int
    data: Block


class Append(NamedTuple):
    """Whole frames behind `prev_offset`, or none; how far is committed; how far was dispatched.

    `seq` numbers the rounds of a leadership: an answer names the newest round whose tick it took.
    """

    epoch: int
    prev_offset: int
    prev_epoch: int
    commit: int
    seq: int
    tick: EpochTick
    data: Block


class Ack(NamedTuple):
    """The log is the leader's and durable up to `end`; the tick of round `seq` was taken."""

    epoch: int
    end: int
    seq: int
    voter: bool


class Reject(NamedTuple):
    """The frames do not fit behind this log: what it holds instead."""

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
    """A leader lets a learner that holds the log up to `end` be a voter again."""

    epoch: int
    end: int


class CopyOffer(NamedTuple):
    """A leader offers a copy of its folder to a node whose log lies behind its own beginning."""

    epoch: int
    copy: int
    """Which of the leader's copies it is."""


class CopyTaken(NamedTuple):
    """So many bytes of a copy's files were written; 0 accepts the offer."""

    epoch: int
    copy: int
    taken: int


class CopyPart(NamedTuple):
    """Bytes of one file of a copy; what no part holds is zeros."""

    epoch: int
    copy: int
    at: int
    """Bytes of all parts before."""
    offset: int
    """In the file."""
    name: str
    """Of the file, relative to the folder."""
    data: Block


class CopyEnd(NamedTuple):
    """All of a copy was sent, or one of the two gives it up."""

    epoch: int
    copy: int
    whole: bool


CopyMessage: TypeAlias = CopyOffer | CopyTaken | CopyPart | CopyEnd
HostMessage: TypeAlias = CopyMessage | FolderIdentity | NodeStatus
"""Between the hosts of two nodes: `ReplicationNode` knows none of them."""

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
