"""Overlap: what a due firing does while the message of the last one is not settled."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """What happens with a due instant."""

    FIRE = "fire"
    SKIP = "skip"
    """The instant fires never; it is counted as skipped."""
    BUFFER = "buffer"
    """It fires when the last firing's message is settled."""
    REPLACE = "replace"
    """The last firing's message is cancelled, and the instant fires."""


def decide_overlap(overlap: str, *, open_last: bool, buffered: bool) -> Action:
    """The action. `open_last`: the last message is pending or leased. `buffered`: one waits."""
    if overlap == "allow" or not (open_last or buffered):
        return Action.FIRE
    if overlap == "replace":
        return Action.REPLACE
    if overlap == "buffer_one" and not buffered:
        return Action.BUFFER
    return Action.SKIP
