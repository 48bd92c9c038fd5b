"""How calls over HTTP end, for metrics and the log: their times, refusals and faults."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem, broken, problem_of
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.trace_context import trace_id_of
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.web.http_context import HttpContext
from delaylog.storage.errors import DISTRUSTED

UNNAMED: Final = "other"
"""The call of requests that name none, such as a path that does not exist."""

log = logging.getLogger("delaylog.web")


class Outcomes:
    """The outcomes of the calls of one node."""

    def __init__(self, node: ServingNode) -> None:
        self._node = node
        self._now = node.machine.steady_s

    def timed(self, ctx: Context, began: float) -> None:
        """Count the time of a request that is answered now, and the refusal that its body tells."""
        seconds = self._now() - began
        timings = self._node.timings
        if ctx.refused:
            self.count(ctx.face, ctx.refused)
        call = ctx.name or UNNAMED
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
