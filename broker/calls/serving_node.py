"""A node that serves calls: a `Node` that merges the calls of a turn and makes periodic checks.

`Turn` has the mergers of one turn of the loop, which all carriers share.
"""

from __future__ import annotations

from collections.abc import Callable

from delaylog.broker.calls.access.access import Access
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.receives import ReceiveMerger
from delaylog.broker.calls.turn.sends import SendMerger
from delaylog.broker.calls.turn.settles import SettleMerger
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.push.targets import GroupKey, Health
from delaylog.broker.host.chores import PeriodicChecks
from delaylog.broker.host.clock import Clock
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.node import Node
from delaylog.broker.host.watch.reloader import Reloader
from delaylog.broker.rules.push_addresses import AddressRules


class Turn:
    """The mergers of a node's sends, receives and settles, and what they have parsed."""

    def __init__(self, node: Node) -> None:
        self.sends = SendMerger(node)
        self.receives = ReceiveMerger(node)
        self.settles = SettleMerger(node)
        self.known_receives: dict[tuple[str, bytes, str], ReceiveCall] = {}
        """What receives ask for that came before, by media type, body and address."""


class ServingNode(Node):
    """The node of a broker that serves, alone or in a cluster."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
        *,
        fsync: str = "always",
        machine: Machine,
    ) -> None:
        super().__init__(engine, clock, on_fatal, fsync=fsync, machine=machine)
        self.turn = Turn(self)
        self.access = Access(self)
        self.reloader = Reloader(machine)
        """Reads configured files again; `serve` sets the one with this process's files."""
        self.push_rules: AddressRules | None = AddressRules()
        """What a push may reach; `serve` sets the rules of the configuration. None: no push is made
        here.
        """
        self.push_health: Callable[[GroupKey], Health | None] = lambda _: None
        """What pushes have learned of a target, if this node makes them."""
        self._checks = PeriodicChecks(self, on_fatal)

    def start(self) -> None:
        """Start serving: allocate the reserve, and start the timers and the background work."""
        self.start_work()
        self.access.start()

    def start_work(self) -> None:
        """Start all but the care for principals."""
        super().start()
        self._checks.start()
