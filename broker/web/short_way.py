"""Hot calls of the fast lane without a task: begun as they arrive, answered by a callback.

It finds the caller and checks the right; `calls/short_calls` carries the call out. A call that it
does not begin is left to the general way, `FastLane.carry` in a task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.access.permitting import permit
from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Form
from delaylog.broker.calls.problems import problem_answer
from delaylog.broker.calls.routing import Route
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.short_calls import Begin, ShortCall, begin_of
from delaylog.broker.host.audit.request_ids import RequestIds
from delaylog.broker.host.metrics.metrics import Metrics
from delaylog.broker.web.answering import wire_of
from delaylog.broker.web.auditing import CallAudit
from delaylog.broker.web.callers import Callers
from delaylog.broker.web.outcomes import Outcomes
from delaylog.contract.calls.call import ApiCall

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
        self.node = node
        self._callers = callers
        self.ids = ids
        self.audit = audit
        self.outcomes = outcomes
        self._metrics = metrics

    def begin_of(self, call: ApiCall, form: Form) -> Begin | None:
        """What begins a call of this form; None = it takes the general way, as do calls that
        the audit log records whatever their outcome.
        """
        return None if self.audit.records(call.right) else begin_of(call, form)

    def begin(self, head: Head, body: bytes, connection: Connection) -> None:
        """Begin a request of the fast lane: without a task, or else by the general way."""
        begin, route = head.begin, head.route
        caller = None if begin is None else self._admit(head, connection)
        if begin is None or route is None or caller is None:
            connection.carry(head, body, None)
            return
        call = ShortRequest(self, head, route, body, connection, caller)
        connection.begin_call(call)
        try:
            permit(caller, route.call, route.topic_key, route.params)
            begun = begin(call)
        except Exception as error:
            call.fail(error)
            begun = True
        if begun:
            self._metrics.fast_requests += 1
        else:
            connection.end_call()
            connection.carry(head, body, caller)

    def _admit(self, head: Head, connection: Connection) -> Caller | None:
        """The caller of a request that may take the short way, admitted; None: it may not."""
        try:
            self.node.role.check()
            return self._callers.by_token(head.headers or {}, connection)
        except Exception:
            # The general way waits, or refuses.
            return None


class ShortRequest(ShortCall):
    """One request of a connection."""

    changes = True
    _on_gone: Callable[[], None] | None = None

    def __init__(
        self,
        way: ShortWay,
        head: Head,
        route: Route,
        body: bytes,
        connection: Connection,
        caller: Caller,
    ) -> None:
        # As the base classes and `about` do it, whose calls would take longer.
        self.node = way.node
        self.headers, self.query_text, self.raw = head.headers or {}, "", body
        self.call, self.topic_key, self.params = route.call, route.topic_key, route.params
        self.name = route.call.name
        self.caller = caller
        self.request_id = way.ids.new()
        self._way = way
        self._path, self._form = head.path, head.form
        self.origin = connection
        self._began_s = way.node.machine.steady_s()

    @property
    def address(self) -> str:
        """The host that the call came from."""
        return str(self.origin.address)

    def composed(self, answer: Answer) -> bytes:
        """The bytes of an answer."""
        return wire_of(answer, self.request_id)

    def reply(self, answer: Answer) -> None:
        """Answer the call, unless the client has left. Raises nothing, as `send`."""
        if self.gone:
            return
        try:
            composed = self.composed(answer)
        except Exception as error:
            self._break_off(error)
            return
        self.send(composed)

    def send(self, composed: bytes) -> None:
        """Answer the call with these bytes, unless the client has left.

        It raises nothing: the caller may be the commit of other calls too.
        """
        if self.gone:
            return
        self.gone = True
        try:
            self.origin.answer(composed)
        except Exception as error:
            self._break_off(error)
            return
        self._way.outcomes.timed(self, self._began_s)
        self.origin.go_on()

    def _break_off(self, error: Exception) -> None:
        """The call cannot be answered: the connection must end."""
        facts = {"path": self._path, "request_id": self.request_id}
        log.error("unexpected error", exc_info=error, extra=facts)
        self._end()
        self.origin.force_close()
        self.origin.end_call()

    def _end(self) -> None:
        """The call is over without an answer."""
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

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call back if the client leaves before the call is answered."""
        self._on_gone = call

    def cancel(self) -> None:
        """The client has left."""
        if not self.gone:
            self._end()
            if self._on_gone is not None:
                self._on_gone()
