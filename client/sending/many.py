"""What all sends share: their time limit, and the result of `send_many`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from delaylog.client.errors import IdInUse, SendFailed
from delaylog.client.models import Sent
from delaylog.client.sending.lane import RETRY_FOR_S_MAX
from delaylog.client.wire.durations import split_limit


def split_send_limit(given: Mapping[str, Any], usual_s: float) -> tuple[float, Any]:
    """The time limit among the keywords of a send, in seconds; and the other keywords."""
    limit_s, rest = split_limit(given)
    if limit_s is None:
        return usual_s, rest
    if limit_s > RETRY_FOR_S_MAX:
        raise ValueError(
            f"the time limit of a send is at most {RETRY_FOR_S_MAX:.0f} s, since brokers forget "
            f"after ten minutes what was sent: {limit_s:g} s"
        )
    return limit_s, rest


def all_sent(outcomes: Iterable[Sent | BaseException]) -> list[Sent]:
    """The Sents, or SendFailed with the distinct failures and the outcome of each message."""
    # For many messages an id in use is a normal result: the caller chose `reject`.
    ended = [each.sent if isinstance(each, IdInUse) else each for each in outcomes]
    sent = [each for each in ended if isinstance(each, Sent)]
    if len(sent) < len(ended):
        failures = dict.fromkeys(each for each in ended if not isinstance(each, Sent))
        raise SendFailed(list(failures), len(ended) - len(sent), ended)
    return sent
