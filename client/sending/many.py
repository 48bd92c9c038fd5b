"""What a send of many comes to: all of it, or an error that says how many are missing."""

from __future__ import annotations

from collections.abc import Iterable

from delaylog.client.errors import IdInUse, SendFailed
from delaylog.client.models import Sent


def all_sent(outcomes: Iterable[Sent | BaseException]) -> list[Sent]:
    """The Sents, or SendFailed with each different failure once."""
    sent: list[Sent] = []
    failures: dict[BaseException, None] = {}
    rows = 0
    for outcome in outcomes:
        if isinstance(outcome, IdInUse):
            # Of many it is a result like others: the call said what is to happen then.
            sent.append(outcome.sent)
        elif isinstance(outcome, BaseException):
            failures[outcome] = None
            rows += 1
        else:
            sent.append(outcome)
    if rows:
        raise SendFailed(list(failures), rows)
    return sent
