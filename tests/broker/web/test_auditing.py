"""A call and its lines: what happens between the line that it begins and the call itself."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.calls.answers import Answer
from delaylog.broker.calls.context import BufferedContext
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.watch.audit_files import AuditLine, AuditSettings
from delaylog.broker.host.watch.audit_log import AuditLog
from delaylog.broker.web.outcomes import CallAudit
from delaylog.contract.calls.table import BY_NAME
from tests.storage.fake_disk import FakeDisk


class Node:
    """A node that loses its leadership while a line is written."""

    def __init__(self) -> None:
        self.role = self
        self.leads = True

    def check(self) -> None:
        if not self.leads:
            raise NotLeadingError("another node leads")


class Log(AuditLog):
    """An audit log without files."""

    def __init__(self, node: Node) -> None:
        super().__init__(FakeDisk(), "audit", 0, AuditSettings(), REAL, lambda: False)
        self.node = node
        self.recorded: list[str] = []

    async def _durable(self, line: AuditLine) -> None:
        assert line.outcome == "begun"
        self.node.leads = False

    def record(self, line: AuditLine) -> None:
        self.recorded.append(line.outcome)


async def test_a_call_whose_node_has_ceased_to_lead_changes_nothing() -> None:
    """Frames that a former leader appends are lost, or differ from those of its successor."""
    node: Any = Node()
    log = Log(node)
    ctx = BufferedContext(node, {}, "", b"")
    ctx.about(BY_NAME["deleteTopic"], ("default", "t"), {})
    ctx.changes = True

    async def delete(_ctx: Any) -> Answer:
        raise AssertionError("carried out")

    with pytest.raises(NotLeadingError):
        await CallAudit(log).carry(ctx, "admin", delete)
    assert log.recorded == [NotLeadingError("").code]
