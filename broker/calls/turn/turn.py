"""Merges the calls of one turn of the loop, from all carriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.receives import ReceiveMerger
from delaylog.broker.calls.turn.send_merger import SendMerger
from delaylog.broker.calls.turn.settles import SettleMerger

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


class Turn:
    """The mergers of a node's sends, receives and settles, and what they have parsed."""

    def __init__(self, node: Node) -> None:
        self.sends = SendMerger(node)
        self.receives = ReceiveMerger(node)
        self.settles = SettleMerger(node)
        self.known_receives: dict[tuple[str, bytes, str], ReceiveCall] = {}
        """What receives ask for that came before, by media type, body and address."""
