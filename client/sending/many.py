"""What a send of many comes to: all of it, or an error that says which are missing."""

from __future__ import annotations

from collections.abc import Iterable

from delaylog.client.errors import IdInUse, SendFailed
from delaylog.client.models import Sent


def all_sent(outcomes: Iterable[Sent | BaseException]) -> list[Sent]:
    """The Sents, or SendFailed with each different failure once, and what became of each."""
    # Of many an id in use is a result like others: the call said what is to happen then.
    ended = [each.sent if isinstance(each, IdInUse) else each for each in outcomes]
    sent = [each for each in ended if isinstance(each, Sent)]
    if len(sent) < len(ended):
        failures = dict.fromkeys(each for each in ended if not isinstance(each, Sent))
        raise SendFailed(list(failures), len(ended) - len(sent), ended)
    return sent
