"""The exact check of tags in the client, after the broker's approximate one.

A message that does not match is returned to the broker immediately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from delaylog.client.keywords import TagsMode
from delaylog.client.message import LeasedMessage

M = TypeVar("M", bound=LeasedMessage)


def split_by_tags(
    messages: Iterable[M], tags: Sequence[str], tags_mode: TagsMode
) -> tuple[list[M], list[M]]:
    """(messages that have any or all of the tags, depending on `tags_mode`; the others)."""
    wanted = frozenset(tags)
    kept: list[M] = []
    others: list[M] = []
    for message in messages:
        found = wanted.intersection(message.tags)
        matches = found == wanted if tags_mode == "all" else bool(found)
        (kept if matches else others).append(message)
    return kept, others
