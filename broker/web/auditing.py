"""Writes calls over HTTP to the audit log: those that its settings choose, and all refusals.

Lines have the request id that the answer has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.answer import AnyAnswer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem, problem_of
from delaylog.broker.host.audit.audit_log import REFUSALS, AuditError, AuditLog
from delaylog.broker.host.audit.lines import ADMINISTRATIVE, DONE, AuditLine
from delaylog.contract.calls.call import Right


class CallAudit:
    """The audit of one HTTP face."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self.records = log.records

    async def carry(
        self,
        ctx: Context,
        right: Right,
        handler: Callable[[Context], Awaitable[AnyAnswer]],
    ) -> AnyAnswer:
        """Carry out a call and record it. Raises a Problem if its line cannot be written."""
        if not self.records(right):
            return await handler(ctx)

        async def work() -> AnyAnswer:
            if ctx.changes and right in ADMINISTRATIVE:
                # The node may have lost its leadership while the line was written.
                ctx.node.role.check()
            return await handler(ctx)

        try:
            return await self._log.carry(
                right, lambda outcome: _line(ctx, right, outcome), work, _code_of
            )
        except AuditError as error:
            raise Problem("disk_full" if error.full else "not_ready", str(error)) from None

    def note_refusal(self, ctx: Context, code: str, path: str) -> None:
        """Record a caller that was not recognised, or lacked the right."""
        if code in REFUSALS:
            ctx.name = ctx.name or path
            right = None if ctx.call is None else ctx.call.right
            self._log.refused(_line(ctx, right, code))


def _code_of(error: Exception) -> str | None:
    problem = problem_of(error)
    return None if problem is None else problem.code


def _line(ctx: Context, right: Right | None, outcome: str) -> AuditLine:
    namespace, topic = ctx.topic_key
    params = {name: value for name, value in ctx.params.items() if name not in ("group", "action")}
    return AuditLine(
        principal=None if ctx.caller is ANYONE else ctx.caller.name,
        address=ctx.address or None,
        face=ctx.face,
        call=ctx.name,
        right=right,
        namespace=namespace if topic else None,
        topic=topic or None,
        group=ctx.params.get("group"),
        count=ctx.count,
        outcome=(ctx.refused or DONE) if outcome == DONE else outcome,
        request_id=ctx.request_id or None,
        facts={**params, **ctx.facts},
    )
