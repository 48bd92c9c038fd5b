"""The result of `send_many`: all outcomes, or an error that says what is missing."""

from __future__ import annotations

from collections.abc import Iterable

from delaylog.client.errors import IdInUse, SendFailed
from delaylog.client.models import Sent


def all_sent(outcomes: Iterable[Sent | BaseException]) -> list[Sent]:
    """The Sents, or SendFailed with the distinct failures and the outcome of each message."""
    # For many messages an id in use is a normal result: the caller chose `reject`.
    ended = [each.sent if isinstance(each, IdInUse) else each for each in outcomes]
    sent = [each for each in ended if isinstance(each, Sent)]
    if len(sent) < len(ended):
        failures = dict.fromkeys(each for each in ended if not isinstance(each, Sent))
        raise SendFailed(list(failures), len(ended) - len(sent), ended)
    return sent
