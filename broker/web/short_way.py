"""Hot calls of the fast lane without a task: begun as they arrive, answered by a callback.

It finds the caller and checks the right; `calls/short_calls` carries the call out. A call that it
does not begin is left to the general way, `FastLane.carry` in a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.access.permitting import permit
from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.problems import problem_answer
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.short_calls import Begin, ShortCall, begin_of
from delaylog.broker.host.audit.request_ids import RequestIds
from delaylog.broker.host.metrics.metrics import Metrics
from delaylog.broker.web.auditing import CallAudit
from delaylog.broker.web.callers import Callers
from delaylog.broker.web.outcomes import Outcomes
from delaylog.storage.calls.call import ApiCall

if TYPE_CHECKING:
    from delaylog.broker.web.connection import Connection
    from delaylog.broker.web.fast_lane import Head

log = logging.getLogger("delaylog.web")


class ShortWay:
    """Begins calls of one HTTP face without a task."""

    def __init__(
        self,
        node: ServingNode,
        callers: Callers,
        audit: CallAudit,
        outcomes: Outcomes,
        metrics: Metrics,
        ids: RequestIds,
    ) -> None:
        self._node = node
        self._callers = callers
        self._ids = ids
        self.audit = audit
        self.outcomes = outcomes
        self._metrics = metrics

    def begin_of(self, call: ApiCall, headers: Mapping[str, str]) -> Begin | None:
        """What begins a call with these headers; None = it takes the general way, as do calls that
        the audit log records whatever their outcome.
        """
        return None if self.audit.records(call.right) else begin_of(call, headers)

    def begin(self, head: Head, body: bytes, connection: Connection) -> Caller | bool:
        """Begin a request. True = it is answered, or will be by a callback.

        Otherwise it takes the general way: for the caller that is returned, who is admitted already
        and must not be counted again, or after False for one still to be found.
        """
        role, route, begin = self._node.role, head.route, head.begin
        if begin is None or route is None or not (role.leading and role.settled):
            return False
        headers = head.headers or {}
        try:
            role.check()
            caller = self._callers.by_token(headers, connection)
        except Exception:
            # The general way waits, or refuses.
            return False
        if caller is None:
            return False
        call = ShortRequest(self._node, self, head, body, connection)
        call.about(route.call, route.topic_key, route.params)
        call.request_id = self._ids.new()
        call.caller, call.changes = caller, True
        connection.begin_call(call)
        try:
            permit(caller, route.call, route.topic_key, route.params)
            if not begin(call):
                connection.end_call()
                return caller
        except Exception as error:
            call.fail(error)
        self._metrics.fast_requests += 1
        return True


class ShortRequest(ShortCall):
    """One request of a connection."""

    __slots__ = ("_began_s", "_on_gone", "_path", "_task", "_way")

    def __init__(
        self, node: ServingNode, way: ShortWay, head: Head, body: bytes, connection: Connection
    ) -> None:
        super().__init__(node, head.headers or {}, "", body)
        self._way = way
        self._path = head.path
        self.origin = connection
        self.gone = False
        self._task: asyncio.Task[None] | None = None
        self._on_gone: Callable[[], None] | None = None
        self._began_s = node.machine.steady_s()

    @property
    def address(self) -> str:
        """The host that the call came from."""
        return str(self.origin.address)

    def reply(self, answer: Answer) -> None:
        """Answer the call, unless the client has left.

        It raises nothing: the caller may be the commit of other calls too.
        """
        if self.gone:
            return
        self._end()
        try:
            self.origin.answer(answer, self.request_id)
        except Exception as error:
            facts = {"path": self._path, "request_id": self.request_id}
            log.error("unexpected error", exc_info=error, extra=facts)
            self.origin.force_close()

    def _end(self) -> None:
        """The call is answered, or the client has left."""
        self.gone = True
        self._way.outcomes.timed(self, self._began_s)

    def fail(self, error: BaseException) -> None:
        """Answer the call with a refusal, or with a fault of the broker."""
        try:
            assert isinstance(error, Exception), "a call that was cancelled has no error"
            problem = self._way.outcomes.problem(error, self, self._path)
            self._way.audit.note_refusal(self, problem.code, self._path)
            answer = problem_answer(problem)
        except Exception:
            # The refusal could not be made: without an answer the connection must end.
            if not self.gone:
                self._end()
            self.origin.force_close()
            self.origin.end_call()
            return
        self.reply(answer)

    def wait(
        self, rest: Callable[[], Coroutine[Any, Any, Answer]], end: Callable[[], None]
    ) -> None:
        """The call goes on as a task; `end` is called when it has ended, however it does."""
        self._task = task = asyncio.get_running_loop().create_task(self._wait(rest))
        task.add_done_callback(lambda _: end())

    async def _wait(self, rest: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        try:
            answer = await rest()
        except Exception as error:
            self.fail(error)
        else:
            self.reply(answer)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call back if the client leaves before the call is answered."""
        self._on_gone = call

    def cancel(self) -> None:
        """The client has left."""
        if not self.gone:
            self._end()
            if self._task is not None:
                self._task.cancel()
            if self._on_gone is not None:
                self._on_gone()
