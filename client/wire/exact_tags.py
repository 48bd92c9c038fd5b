"""The second look at tags: by the tags that a message carries, on the client's side.

The one rule: what does not match was never the consumer's, so it is given back at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delaylog.client.message import Message


def split_by_tags(
    messages: Iterable[Message], tags: Sequence[str], tags_mode: str
) -> tuple[list[Message], list[Message]]:
    """(those that have any of the tags, or all by `tags_mode`; the others)."""
    wanted = frozenset(tags)
    kept: list[Message] = []
    others: list[Message] = []
    for message in messages:
        found = wanted.intersection(message.tags)
        matches = found == wanted if tags_mode == "all" else bool(found)
        (kept if matches else others).append(message)
    return kept, others
