"""The exact check of tags in the client, after the broker's approximate one.

A message that does not match is returned to the broker immediately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delaylog.client.message import Message


def split_by_tags(
    messages: Iterable[Message], tags: Sequence[str], tags_mode: str
) -> tuple[list[Message], list[Message]]:
    """(messages that have any or all of the tags, depending on `tags_mode`; the others)."""
    wanted = frozenset(tags)
    kept: list[Message] = []
    others: list[Message] = []
    for message in messages:
        found = wanted.intersection(message.tags)
        matches = found == wanted if tags_mode == "all" else bool(found)
        (kept if matches else others).append(message)
    return kept, others
