"""What is asked for in one turn of the loop is done together, whichever face it came in by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delaylog.broker.calls.turn.receives import ReceiveMerger
from delaylog.broker.calls.turn.send_merger import SendMerger
from delaylog.broker.calls.turn.settles import SettleMerger

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


class Turn:
    """The calls of a node that are merged."""

    def __init__(self, node: Node) -> None:
        self.sends = SendMerger(node)
        self.receives = ReceiveMerger(node)
        self.settles = SettleMerger(node)
