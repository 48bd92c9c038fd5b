"""Writes calls over HTTP to the audit log: those that its settings choose, and all refusals.

An administrative call is carried out only after its line is durable. Lines have the request id that
the answer has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.answer import AnyAnswer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem, problem_of
from delaylog.broker.host.audit.audit_log import AuditError, AuditLog
from delaylog.broker.host.audit.lines import DONE, FAILED, LEFT, AuditLine
from delaylog.broker.host.audit.settings import ADMINISTRATIVE
from delaylog.contract.calls.call import Right

REFUSED = frozenset({"unauthorized", "forbidden"})


class CallAudit:
    """The audit of one HTTP face."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def records(self, right: Right) -> bool:
        """Whether calls that need this right are recorded, whatever their outcome."""
        return self._log.settings.records(right)

    async def carry(
        self,
        ctx: Context,
        right: Right,
        handler: Callable[[Context], Awaitable[AnyAnswer]],
    ) -> AnyAnswer:
        """Carry out a call and record it. Raises a Problem if its line cannot be written."""
        if not self.records(right):
            return await handler(ctx)
        administrative = right in ADMINISTRATIVE
        if administrative:
            try:
                await self._log.begin(_line(ctx, right))
            except AuditError as error:
                raise Problem("disk_full" if error.full else "not_ready", str(error)) from None
        outcome = FAILED
        try:
            if administrative and ctx.changes:
                # The node may have lost its leadership while the line was written.
                ctx.node.role.check()
            answer = await handler(ctx)
            outcome = ctx.refused or DONE
        except asyncio.CancelledError:
            outcome = LEFT
            raise
        except Exception as error:
            problem = problem_of(error)
            outcome = FAILED if problem is None else problem.code
            raise
        finally:
            if outcome not in REFUSED:
                self._log.record(_line(ctx, right, outcome))
        return answer

    def note_refusal(self, ctx: Context, code: str, path: str) -> None:
        """Record a caller that was not recognised, or lacked the right."""
        if code in REFUSED:
            ctx.name = ctx.name or path
            right = None if ctx.call is None else ctx.call.right
            self._log.refused(_line(ctx, right, code))


def _line(ctx: Context, right: Right | None, outcome: str = "") -> AuditLine:
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
        outcome=outcome,
        request_id=ctx.request_id or None,
        facts=params | ctx.facts,
    )
