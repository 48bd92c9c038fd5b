"""Settling messages: the calls that it takes, and the result of each message.

After a retry of a lost answer, `gone` may mean that the first try succeeded, so the result is
`unknown`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from delaylog.client.errors import ClientError, SettleFailed
from delaylog.client.message import LeasedMessage, MessageBatch
from delaylog.client.models import Settled
from delaylog.client.wire.bulk import IntArray

Verb = Literal["ack", "nack", "reject", "extend", "begin"]
ToSettle: TypeAlias = LeasedMessage | Iterable[LeasedMessage] | MessageBatch
"""A message, messages of any receives, or the batch of one receive."""


@dataclass(slots=True)
class Share:
    """The messages of one lease among those to settle."""

    batch: MessageBatch
    places: Sequence[int]
    """Their indexes among all messages."""
    rows: Sequence[int]
    """Their rows in the batch; a range for the whole batch."""
    by_message: bool = True
    """Whether messages were given, whose `with` blocks ask if they are settled, and not a batch."""

    @property
    def refs(self) -> array[int]:
        """Their refs."""
        refs = self.batch.columns.refs
        if isinstance(self.rows, range):
            return refs
        return array(refs.typecode, map(refs.__getitem__, self.rows))

    def ended(self, results: Sequence[Settled]) -> None:
        """Record that a call ended the leases, so that no `with` block settles the messages."""
        if not self.by_message:
            return
        rows: Iterable[int] = self.rows
        if Settled.GONE in results:
            rows = [
                row
                for row, result in zip(self.rows, results, strict=True)
                if result is not Settled.GONE
            ]
        self.batch.settled.update(rows)

    def results(self, *refused: IntArray, doubtful: bool = False) -> list[Settled]:
        """A result per row. `refused`: the refs whose lease had ended, and those unknown.

        `doubtful`: an earlier answer was lost.
        """
        gone = {ref for refs in refused for ref in refs.tolist()}
        if not gone:
            return [Settled.DONE] * len(self.rows)
        known = self.batch.refs
        lost = Settled.UNKNOWN if doubtful else Settled.GONE
        return [lost if known[row] in gone else Settled.DONE for row in self.rows]


def results_of(texts: Iterable[str], *, doubtful: bool) -> list[Settled]:
    """The results of receipts. `doubtful`: an earlier answer was lost."""
    results = [Settled(each) for each in texts]
    if doubtful:
        return [Settled.UNKNOWN if each is Settled.GONE else each for each in results]
    return results


def listed(messages: LeasedMessage | Iterable[LeasedMessage]) -> list[LeasedMessage]:
    """The messages as a list. TypeError for anything else."""
    found = [messages] if isinstance(messages, LeasedMessage) else list(messages)
    for message in found:
        if not isinstance(message, LeasedMessage):
            raise TypeError(
                f"messages are settled, not {type(message).__name__}; settle_ids takes ids"
            )
    return found


def shares_of(messages: ToSettle) -> list[Share]:
    """Group messages by lease, as `shares` does. TypeError for anything else."""
    if not isinstance(messages, MessageBatch):
        return shares(listed(messages))
    rows = range(messages.columns.n)
    return [Share(messages, rows, rows, by_message=False)] if rows else []


def shares(messages: Sequence[LeasedMessage]) -> list[Share]:
    """Group messages by lease. Each share takes one call."""
    if not messages:
        return []
    batch = messages[0].batch
    rows = [each.row for each in messages if each.batch is batch]
    if len(rows) == len(messages):
        whole = range(batch.columns.n)
        return [Share(batch, range(len(rows)), whole if rows == list(whole) else rows)]
    by_batch: dict[int, tuple[MessageBatch, list[int], list[int]]] = {}
    for at, message in enumerate(messages):
        batch = message.batch
        _, places, rows = by_batch.setdefault(id(batch), (batch, [], []))
        places.append(at)
        rows.append(message.row)
    return [Share(*each) for each in by_batch.values()]


def by_shard(messages: Iterable[LeasedMessage]) -> dict[str, list[LeasedMessage]]:
    """Group messages by the name of their shard."""
    found: dict[str, list[LeasedMessage]] = {}
    for message in messages:
        found.setdefault(message.shard, []).append(message)
    return found


def joined(
    count: int, answered: Iterable[tuple[Share, Sequence[Settled] | ClientError]]
) -> list[Settled]:
    """The results in the order of the messages. Raises the error if no call succeeded."""
    results: list[Settled | ClientError] = [Settled.UNKNOWN] * count
    errors: list[ClientError] = []
    calls = 0
    for share, said in answered:
        calls += 1
        if isinstance(said, ClientError):
            errors.append(said)
            for at in share.places:
                results[at] = said
        else:
            for at, result in zip(share.places, said, strict=True):
                results[at] = result
    if not errors:
        return [each for each in results if isinstance(each, Settled)]
    if calls == 1:
        raise errors[0]
    raise SettleFailed(results)
