"""Splits merged sends that were refused together, so that only those at fault are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import numpy as np

from delaylog.broker.engine.errors import DiskFullRefusal, EngineError, NotLeadingError
from delaylog.broker.engine.model import SendResult
from delaylog.broker.engine.send.quotas import QuotaError

Item = TypeVar("Item")

_ALIKE: Final = ("rate", "pending")
"""Quotas that refuse every new message of a turn once they have refused one."""


def send_apart(
    items: list[Item],
    send: Callable[[list[Item]], SendResult],
    rows: Callable[[Item], int] = lambda _: 1,
) -> Iterator[tuple[list[Item], SendResult | Exception]]:
    """Send merged items; on a refusal send the halves, until the items at fault are isolated.

    `rows` returns the number of rows of an item in the batch. Yields each part that was sent with
    its result, and each refused part with its error, in order.
    """
    parts = [items]
    while parts:
        part = parts.pop()
        try:
            result = send(part)
        except Exception as error:
            alike = isinstance(error, QuotaError) and error.facts.get("quota") in _ALIKE
            if alike and (split := _apart(part, error, rows)):
                # Items without new messages need no quota: send them first and separately.
                parts += split
                continue
            if len(part) > 1 and _may_be_of_one(error):
                half = len(part) // 2
                parts += [part[half:], part[:half]]
                continue
            yield part, error
            if alike and rows(part[0]) == 1:
                for rest in parts:
                    yield rest, error
                return
            continue
        yield part, result


def _apart(items: list[Item], error: Exception, rows: Callable[[Item], int]) -> list[list[Item]]:
    """Split items into those with new messages, which a quota refused, and those without.

    Empty if the items are all of one kind.
    """
    fresh = getattr(error, "fresh", None)
    if fresh is None:
        return []
    owners = np.repeat(np.arange(len(items)), [rows(item) for item in items])
    new = set(owners[fresh].tolist())
    if not 0 < len(new) < len(items):
        return []
    return [
        [item for at, item in enumerate(items) if at in new],
        [item for at, item in enumerate(items) if at not in new],
    ]


def _may_be_of_one(error: Exception) -> bool:
    """Whether a refusal may be due to a few messages; others refuse every message."""
    of_all = (DiskFullRefusal, NotLeadingError)
    return isinstance(error, EngineError) and not isinstance(error, of_all)
