"""Counts what happened to a member, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MemberCounts:
    """What happened to a member since its start."""

    chosen: int = 0
    """Times the election chose this node."""
    leaderships: int = 0
    """Times it began to serve as the leader."""
    resigned: int = 0
    """Times it was chosen and did not serve in time."""
    handed_over: int = 0
    handovers_failed: int = 0
    lost_commits: int = 0
    """Times a leader lacked frames that were committed here, which quarantines this node."""
    refused_epochs: int = 0
    """Messages of an epoch below the promised one, such as those of a leader that was stopped."""
