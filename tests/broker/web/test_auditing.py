"""A call and its lines: what happens between the line that it begins and the call itself."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import BufferedContext
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.audit.lines import AuditLine
from delaylog.broker.host.audit.settings import AuditSettings
from delaylog.broker.web.auditing import CallAudit
from delaylog.contract.calls.table import BY_NAME


class Stub:
    """A node and its audit log. The node loses its leadership while a line is written."""

    settings = AuditSettings()

    def __init__(self) -> None:
        self.role = self
        self.leads = True
        self.recorded: list[str] = []

    async def begin(self, _line: AuditLine) -> None:
        self.leads = False

    def record(self, line: AuditLine) -> None:
        self.recorded.append(line.outcome)

    def check(self) -> None:
        if not self.leads:
            raise NotLeadingError("another node leads")


async def test_a_call_whose_node_has_ceased_to_lead_changes_nothing() -> None:
    """Frames that a former leader appends are lost, or differ from those of its successor."""
    stub: Any = Stub()
    ctx = BufferedContext(stub, {}, "", b"")
    ctx.about(BY_NAME["deleteTopic"], ("default", "t"), {})
    ctx.changes = True

    async def delete(_ctx: Any) -> Answer:
        raise AssertionError("carried out")

    with pytest.raises(NotLeadingError):
        await CallAudit(stub).carry(ctx, "admin", delete)
    assert stub.recorded == [NotLeadingError("").code]
