"""Splits a settlement into few calls and merges their answers. Pure, shared by both transports.

Each lease with many messages takes one call with columns. The messages of all small leases share
one call with receipts, so that many single messages do not become many calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from delaylog.client.calls.call import Call, Places
from delaylog.client.calls.messages import settle, settle_columns
from delaylog.client.keywords import SettleTimes
from delaylog.client.models import Settled
from delaylog.client.shards.settlements import Verb, results_of
from delaylog.client.wire.bulk import SettleAnswer

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage

# Smallest number of messages of one lease for a call of its own.
COLUMNS_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class Part:
    """One call of a settlement, and the indexes of its messages in the settlement."""

    call: Call[Any]
    rows: Sequence[int]
    refs: Sequence[int] | None
    """None for a call with receipts, whose answer has their order."""

    def results(self, answer: Any, *, doubtful: bool) -> list[Settled]:
        """A result per message. `doubtful`: an earlier try may have been carried out."""
        if self.refs is None:
            return results_of(answer, doubtful=doubtful)
        assert isinstance(answer, SettleAnswer)
        if not len(answer.gone) and not len(answer.unknown):
            return [Settled.DONE] * len(self.refs)
        gone, unknown = set(answer.gone.tolist()), set(answer.unknown.tolist())
        return results_of(
            [
                "gone" if ref in gone else "unknown" if ref in unknown else "done"
                for ref in self.refs
            ],
            doubtful=doubtful,
        )


def settle_parts(
    places: Places, verb: Verb, messages: Sequence[LeasedMessage], **times: Unpack[SettleTimes]
) -> list[Part]:
    """Build the calls that ack, nack or extend these messages of one topic."""
    topic = messages[0].topic
    leases: dict[int, list[int]] = {}
    batch, rows = None, []
    for row, message in enumerate(messages):
        # Messages usually come lease by lease, and a batch has one lease.
        if message.batch is not batch:
            batch = message.batch
            rows = leases.setdefault(message.lease, [])
        rows.append(row)
    parts: list[Part] = []
    few: list[int] = []
    for lease, rows in leases.items():
        if len(leases) > 1 and len(rows) < COLUMNS_MIN:
            few += rows
            continue
        refs = [messages[row].ref for row in rows]
        call = settle_columns(places, topic, verb, lease, refs, **times)
        parts.append(Part(call.again(at_once=True), rows, refs))
    if few:
        receipts = [messages[row].receipt for row in few]
        by_receipts = settle(places, topic, verb, receipts, **times)
        parts.append(Part(by_receipts.again(at_once=True), few, None))
    return parts


def merged(count: int, answered: Sequence[tuple[Part, Sequence[Settled]]]) -> list[Settled]:
    """The results of all parts, in the order of the messages."""
    merged = [Settled.UNKNOWN] * count
    for part, results in answered:
        for row, result in zip(part.rows, results, strict=True):
            merged[row] = result
    return merged
