"""Settles: merged in one turn of the loop, and those of a caller by receipts or by a bulk body.

All acks of a group become one SETTLE frame; a nack or extend gets a frame for each lease. A wrong
receipt of one caller is reported as gone to that caller alone. Calls (`handlers/messages`) and the
frames of streams settle for their caller in the same way. A receipt that the caller may not settle
is answered as if its lease had ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from delaylog.broker.calls.access.caller import may_settle
from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.shapes import check_columns, check_count
from delaylog.broker.calls.turn.askers import Asker, Awaited, SharedResult, refuse
from delaylog.broker.calls.turn.writes import Settling, settle_each
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import Settlement, integers
from delaylog.broker.host.waiters import TopicKey
from delaylog.contract.calls.shapes import BACK_MS, EXTEND_MS, REASON
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.batch import take_int as take_batch_int

if TYPE_CHECKING:
    from delaylog.broker.calls.access.caller import Caller
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.host.node import Node


# ----------------------------------------------------------------------------- merged in a turn

SettleAsker: TypeAlias = Asker[list[Settlement]]


def outcomes(
    node: Node, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts]
) -> list[Settlement]:
    """Settle messages of several leases; all are gone if the topic does not exist."""
    state = node.engine.state
    topic = state.topics.get(key)
    if topic is not None:
        return settle_each(node, topic, wanted, receipts)
    return [Settlement(0, each.named, state.position) for each in receipts]


class SettleMerger:
    """Collects the settles of a turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[
            tuple[TopicKey, Settling], list[tuple[Sequence[Receipts], SettleAsker]]
        ] = {}

    async def settle(
        self, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts]
    ) -> list[Settlement]:
        """Settle messages of several leases; an outcome for each, once the log is durable.

        The answer to a `begin` waits until its frame is written, but not for the fsync.
        """
        asker: Awaited[list[Settlement]] = Awaited()
        self.add(key, wanted, receipts, asker)
        return await asker.future

    def add(
        self, key: TopicKey, wanted: Settling, receipts: Sequence[Receipts], asker: SettleAsker
    ) -> None:
        """As `settle`; the asker is told the outcomes."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.setdefault((key, wanted), []).append((receipts, asker))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        node, returns = self._node, False
        for (key, wanted), items in waiting.items():
            returns = returns or wanted.verb != "ack"
            every: list[Receipts] = []
            askers = []
            for receipts, asker in items:
                every += receipts
                askers.append(asker)
            try:
                node.role.check()
                settled = outcomes(node, key, wanted, every)
            except Exception as error:
                refuse(askers, error)
                continue
            parts, first = [], 0
            for receipts, _ in items:
                parts.append(settled[first : first + len(receipts)])
                first += len(receipts)
            tell = SharedResult(askers, parts)
            # As of a receive: losing a count in a power cut costs one attempt more.
            if wanted.verb == "begin" and node.write_through():
                node.role.appended(at_once=True)
                tell(None)
            else:
                node.when_durable(node.engine.state.position, tell)
        # Returned messages may be ready again, and acked ones leave room for leases: wake waiters.
        node.wake_ready()
        if returns:
            node.kick_dispatch()


# --------------------------------------------------------------------------------- for a caller

Named: TypeAlias = "tuple[int, int] | None"
"""(lease, origin) of a message to settle; None if no message has the id."""


class Settler(Protocol):
    """Who settles messages, and of which topic."""

    @property
    def node(self) -> ServingNode:
        """The node that carries it out."""

    @property
    def caller(self) -> Caller:
        """Whose rights decide."""

    @property
    def topic_key(self) -> TopicKey:
        """The topic of the messages."""


class NamedSettling:
    """Messages that are settled by their receipts: what is asked for, and what came of it."""

    __slots__ = ("_named", "receipts")

    def __init__(self, by: Settler, named: Sequence[Named]) -> None:
        self._named = named
        receipts = by_lease(named)
        if not by.caller.may("receive", by.topic_key):
            receipts = [each for each in receipts if _may_settle(by, each.lease)]
        self.receipts = receipts

    def results(self, outcomes: Sequence[Settlement]) -> list[str]:
        """The result of each message: done, gone or unknown."""
        gone: dict[int, set[int]] = {}
        for asked, settlement in zip(self.receipts, outcomes, strict=True):
            gone[asked.lease] = {0, *integers(settlement.gone)}
        results = []
        for named in self._named:
            if named is None:
                results.append("unknown")
                continue
            lease, origin = named
            results.append("gone" if lease not in gone or origin in gone[lease] else "done")
        return results


def by_lease(named: Iterable[Named]) -> list[Receipts]:
    """Pairs of lease and origin, grouped by lease."""
    origins: dict[int, list[int]] = {}
    for each in named:
        if each is not None:
            lease, origin = each
            origins.setdefault(lease, []).append(origin)
    return [Receipts(lease, mine) for lease, mine in origins.items()]


async def settle_named(by: Settler, wanted: Settling, named: Sequence[Named]) -> list[str]:
    """The result of each message (done, gone, unknown), once the log is durable."""
    asked = NamedSettling(by, named)
    outcomes = await by.node.turn.settles.settle(by.topic_key, wanted, asked.receipts)
    return asked.results(outcomes)


async def settle_bulk(by: Settler, wanted: Settling, meant: Receipts) -> Settlement:
    """Settle messages of one lease, once the log is durable."""
    asked = [permitted(by, meant)]
    (settled,) = await by.node.turn.settles.settle(by.topic_key, wanted, asked)
    return settled


def permitted(by: Settler, meant: Receipts) -> Receipts:
    """The messages; as if their lease had ended if the caller may not settle it."""
    return meant if _may_settle(by, meant.lease) else meant._replace(lease=0)


def _may_settle(by: Settler, lease: int) -> bool:
    return may_settle(by.caller, by.node.engine.state, by.topic_key, lease)


_COLUMNS: Final = frozenset(
    {"v", "n", "lease", "refs", "all", "except", "delay_ms", "lease_ms", "reason"}
)


def bulk_settling(
    fields: Mapping[str, Any], verb: str, limits: Limits
) -> tuple[Settling, Receipts]:
    """What the columns of a bulk body settle, and how. Raises a Problem or BatchError."""
    check_columns(fields, _COLUMNS)
    lease = take_batch_int(fields, "lease", 0, 2**64 - 1)
    if lease is None:
        raise Problem("bad_request", "lease is missing", field="lease")
    delay_ms, lease_ms = BACK_MS.take(fields, limits), EXTEND_MS.take(fields, limits)
    reason = (REASON.take(fields, limits) or b"").decode()
    refs, except_ = _ref_column(fields, "refs"), _ref_column(fields, "except")
    whole = fields.get("all", False)
    if not isinstance(whole, bool) or whole == (refs is not None):
        raise Problem("bad_request", "give refs, or all: true", field="refs")
    if refs is not None and len(refs) > limits.bulk_rows_max:
        raise Problem("bad_request", f"at most {limits.bulk_rows_max} refs", field="refs")
    if except_ is not None and not whole:
        raise Problem("bad_request", "except requires all: true", field="except")
    named = refs if refs is not None else except_
    check_count(fields, 0 if named is None else len(named))
    return Settling(verb, delay_ms, lease_ms, reason), Receipts(lease, refs, except_)


def _ref_column(fields: Mapping[str, Any], name: str) -> Int64Array | None:
    raw = fields.get(name)
    if raw is None:
        return None
    if not isinstance(raw, bytes) or len(raw) % 8:
        raise Problem("bad_request", f"{name} must be raw int64 values", field=name)
    return np.frombuffer(raw, "<i8")
