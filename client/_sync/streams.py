"""Subscriptions of clients with threads: by long polls; written by hand.

A thread that waits in a subscription could not also read the answers and pings of a WebSocket, so a
stream would take a second thread for each subscription.
"""

from __future__ import annotations

from collections.abc import Sequence

from delaylog.client._sync.deliveries import Polls
from delaylog.client._sync.link import Link
from delaylog.client.keywords import ReceiveKeywords


def deliveries(polls: Polls, links: Sequence[Link], topic: str, members: ReceiveKeywords) -> Polls:  # noqa: ARG001
    """Where a subscription gets its messages from."""
    return polls
