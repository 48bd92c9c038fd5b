"""How calls over HTTP end, for metrics, the log and the audit log: times, refusals and faults.

The audit log has the calls that its settings choose, and all refusals, with the request id that the
answer has.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.answers import AnyAnswer, Problem, broken, problem_of
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.request_ids import trace_id_of
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.host.watch.audit_files import ADMINISTRATIVE, DONE, AuditLine
from delaylog.broker.host.watch.audit_log import REFUSALS, AuditError, AuditLog
from delaylog.broker.host.watch.timings import OTHER
from delaylog.broker.web.http_context import HttpContext
from delaylog.contract.calls.call import Right
from delaylog.storage.errors import DISTRUSTED

# -------------------------------------------------------------------------- metrics and the log

log = logging.getLogger("delaylog.web")


class Outcomes:
    """The outcomes of the calls of one node."""

    def __init__(self, node: ServingNode) -> None:
        self._node = node
        self._now = node.machine.steady_s

    def timed(self, ctx: Context, began: float) -> None:
        """Count the time of a request that is answered now, and the refusal that its body tells.

        Requests that get no answer, as when the client leaves, are not counted by any way.
        """
        seconds = self._now() - began
        timings = self._node.timings
        if ctx.refused:
            self.count(ctx.face, ctx.refused)
        call = ctx.name or OTHER
        counted = timings.note_request(ctx.face, call, seconds, ctx.wait_ms, ctx.request_id)
        # The fast lane carries no requests that belong to traces.
        trace_id = trace_id_of(ctx.headers) if type(ctx) is HttpContext else None
        if trace_id is not None:
            timings.note_trace(counted, trace_id, seconds, self._node.clock.now_ms())

    def count(self, face: str, code: str) -> None:
        """Count a refusal."""
        self._node.timings.problems[face, code] += 1

    def problem(self, error: Exception, ctx: Context, path: str) -> EngineError:
        """Count what an error means to the client, and log it if it is a fault of the broker.

        Re-raises errors of lost connections.
        """
        problem = problem_of(error)
        if problem is None:
            if isinstance(error, web.HTTPRequestEntityTooLarge):
                problem = Problem("too_large", "the request is over the limit")
            elif isinstance(error, web.RequestPayloadError):
                problem = Problem("bad_request", "the body could not be read")
            elif isinstance(error, DISTRUSTED):
                # Whichever call found the error, nothing more may be answered from this disk.
                self._node.fail(error)
                problem = Problem("not_ready", "the node stops: its disk cannot be trusted")
            elif isinstance(error, (ConnectionError, web.HTTPException)):
                raise error
            else:
                facts = {"path": path, "request_id": ctx.request_id}
                log.error("unexpected error", exc_info=error, extra=facts)
                problem = broken(ctx.request_id)
        self.count(ctx.face, problem.code)
        return problem


# -------------------------------------------------------------------------------- the audit log


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
                right, lambda outcome: _line(ctx, right, outcome, ctx.name), work, _code_of
            )
        except AuditError as error:
            raise Problem("disk_full" if error.full else "not_ready", str(error)) from None

    def note_refusal(self, ctx: Context, code: str, path: str) -> None:
        """Record a caller that was not recognised, or lacked the right."""
        if code in REFUSALS:
            right = None if ctx.call is None else ctx.call.right
            # The path is no name: names are labels of metrics, too, and a stranger chooses paths.
            self._log.refused(_line(ctx, right, code, ctx.name or path))


def _code_of(error: Exception) -> str | None:
    problem = problem_of(error)
    return None if problem is None else problem.code


def _line(ctx: Context, right: Right | None, outcome: str, call: str) -> AuditLine:
    namespace, topic = ctx.topic_key
    params = {name: value for name, value in ctx.params.items() if name not in ("group", "action")}
    return AuditLine(
        principal=None if ctx.caller is ANYONE else ctx.caller.name,
        address=ctx.address or None,
        face=ctx.face,
        call=call,
        right=right,
        namespace=namespace if topic else None,
        topic=topic or None,
        group=ctx.params.get("group"),
        count=ctx.count,
        outcome=(ctx.refused or DONE) if outcome == DONE else outcome,
        request_id=ctx.request_id or None,
        facts={**params, **ctx.facts},
    )
