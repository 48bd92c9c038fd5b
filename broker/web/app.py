"""The HTTP server: routes, one handler, redirects to the leader, and the translation of errors.

It uses aiohttp's low-level server. `broker/calls/routes` finds the handler of a path. A node that
does not lead redirects clients to the leader with status 307 and the same path. It answers a read
with `?read=local` from its applied state. camellia's clients follow no redirect:
`broker/camellia/leader_proxy` forwards their calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from functools import partial
from typing import Any, Final, TypeAlias, cast
from urllib.parse import parse_qs

from aiohttp import HttpVersion10, HttpVersion11, web

from delaylog.broker.calls.access.caller import Caller, permit
from delaylog.broker.calls.answers import (
    Answer,
    AnyAnswer,
    Duplex,
    Problem,
    Stream,
    problem_answer,
    problem_of,
)
from delaylog.broker.calls.context import JSON, BufferedContext, Context
from delaylog.broker.calls.request_ids import HEADER, RequestIds
from delaylog.broker.calls.routes import Route, no_head, pick, resolve
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.system import descriptors
from delaylog.broker.host.tls.contexts import ServerTls
from delaylog.broker.host.tls.listener import TlsListener
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.host.watch.audit_log import AuditLog
from delaylog.broker.host.watch.metrics import Metrics
from delaylog.broker.host.watch.quiet_log import QuietLog
from delaylog.broker.web.callers import Callers, check_opener
from delaylog.broker.web.connection import CONNECTIONS_OWN, Connection, Server
from delaylog.broker.web.fast_lane import FastLane, Head, ShortWay
from delaylog.broker.web.http_context import BodyBudget, HttpContext
from delaylog.broker.web.mounts import MountedApi, Mounts, ReadsPage
from delaylog.broker.web.openapi import PAGES
from delaylog.broker.web.outcomes import CallAudit, Outcomes
from delaylog.broker.web.pages import pages
from delaylog.broker.web.request_heads import (
    LIMITS,
    METHODS,
    RequestChecks,
    check_line,
    origin_form,
)
from delaylog.broker.web.responses import LeanResponse, response_of, response_to, send_pieces
from delaylog.contract.calls.shapes import READ
from delaylog.contract.calls.table import ALL

# ------------------------------------------------------------------------------------ redirects


def reads_locally(query: str) -> bool:
    """Whether the query has `read=local`. Raises a Problem for an unknown value of `read`."""
    said = parse_qs(query, keep_blank_values=True).get(READ.name)
    return said is not None and READ.take({READ.name: said[-1]}) == "local"


def redirect(leader_url: str, raw_path: str) -> Answer:
    """A 307 redirect to the same call at the leader."""
    return Answer(b"", JSON, 307, {"Location": leader_url + raw_path})


def elsewhere(ctx: Context, raw_path: str) -> Answer | None:
    """The redirect to answer with; None if this node may carry out the call."""
    role = ctx.node.role
    local = ctx.reads and bool(ctx.query_text) and reads_locally(ctx.query_text)
    if role.leading:
        if ctx.changes:
            role.check()
        return None
    if local:
        if ctx.node.suspended:
            raise NotLeadingError("this node is reloading its data; try again")
        if ctx.node.engine.state.retired:
            # The frames that it appended last may never be committed. It follows the new leader
            # in a moment.
            raise NotLeadingError("this node has just ceased to lead; try again")
        return None
    url = role.leader_url()
    if url is None:
        raise NotLeadingError("there is no leader at the moment; try again")
    return redirect(url, raw_path)


# ----------------------------------------------------------------------------------- the server

SETTLE_SECONDS: Final = 1.0
"""How long a call waits while a cluster changes its leader."""
BACKLOG: Final = 4_096
IDLE_SECONDS: Final = 75
"""A connection is closed when no complete request head has arrived for this time."""
ROUTES_KEPT: Final = 4_096
"""Number of resolved topic paths to cache: resolving one costs as much as parsing a message."""
PUBLIC: Final = frozenset(path for path, (_, right, *_) in PAGES.items() if right is None)
"""Paths that need no caller: they say whether the node is up, and nothing else."""
LEADERLESS: Final = frozenset(
    [path for path, (_, right, *_) in PAGES.items() if right == "metrics"]
    + [call.path for call in ALL if call.leaderless]
)
"""Paths whose reads are answered without a leader."""

HttpHandler: TypeAlias = Callable[[Any], Awaitable[AnyAnswer]]
"""Takes an `HttpContext`, or any `Context` where the call is native."""

log = logging.getLogger("delaylog.web")


class _Named:
    """The topics that some grant of a caller names; to the caller all others do not exist."""

    def __init__(self, topics: Container[TopicKey], caller: Caller) -> None:
        self._topics = topics
        self._caller = caller

    def __contains__(self, key: object) -> bool:
        return key in self._topics and self._caller.permissions.name(cast("TopicKey", key))


class HttpFace:
    """Serves one node."""

    def __init__(
        self,
        node: ServingNode,
        metrics: Metrics,
        mounts: Mounts,
        checks: RequestChecks,
        audit: AuditLog,
    ) -> None:
        self._node = node
        self._audit = CallAudit(audit)
        self._ids = RequestIds(node.machine.random())
        self._now = node.machine.steady_s
        self._callers = Callers(node)
        node.access.rechecks.append(self.recheck_callers)
        self._checks = checks
        limits = node.engine.limits
        self._budget = BodyBudget(max(limits.bodies_bytes_max, limits.request_bytes_max))
        self._metrics = metrics
        self._outcomes = Outcomes(node)
        self._mounts, self._prefixes = mounts, mounts.prefixes
        self._public = PUBLIC.union(*(api.public for api in mounts.apis))
        self._leaderless = LEADERLESS.union(mounts.pages, *(api.leaderless for api in mounts.apis))
        self._switches = tuple(path for api in mounts.apis for path in api.switches)
        """Prefixes of paths that change something by GET too."""
        self._server: Server | None = None
        self.other_connections: Callable[[], int] = lambda: 0
        """Counts connections of Redis clients, which share the file descriptors."""
        self._connections_max = min(limits.connections_max, descriptors.served().clients)
        metrics.connections["http"] = lambda: self.connections
        metrics.body_bytes = lambda: self._budget.bytes_held
        self._pages: dict[str, HttpHandler] = {
            **pages(node, metrics, mounts),
            **{path: partial(self._open_page, page) for path, page in mounts.pages.items()},
        }
        self._routes: dict[tuple[str, str], Route] = {}
        self._runner: web.ServerRunner | None = None
        self._site: web.TCPSite | None = None
        self._listener: TlsListener | None = None
        """Listens instead of `_site` if clients must use TLS."""

    async def start(self, host: str, port: int, tls: ServerTls | None = None) -> int:
        """Listen, with `tls` if it is given; returns the port. Raises OSError."""
        request_bytes_max = self._node.engine.limits.request_bytes_max
        loop = asyncio.get_running_loop()

        def make_request(
            message: Any, payload: Any, protocol: Any, writer: Any, task: Any
        ) -> web.BaseRequest:
            if not message.path.startswith("/"):
                message = origin_form(message)
            return web.BaseRequest(
                message, payload, protocol, writer, task, loop, client_max_size=request_bytes_max
            )

        server = self._server = Server(
            self._handle,
            request_factory=make_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=IDLE_SECONDS,
            tcp_keepalive=True,
            auto_decompress=False,
            **LIMITS,
        )
        server.has_room = self._has_room
        short = ShortWay(
            self._node, self._callers, self._audit, self._outcomes, self._metrics, self._ids
        )
        server.lane = FastLane(self._checks, self._common_route, short, self._carry_fast, self._ids)
        server.quiet = QuietLog(log)
        server.count_problem = lambda code: self._outcomes.count("http", code)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=5)
        await self._runner.setup()
        for api in self._mounts.apis:
            api.start()
        if tls is not None:
            self._listener = TlsListener(
                tls,
                client="an HTTP client",
                make=server,
                is_full=lambda: not self._has_room(accepting=True),
                transports=lambda: [each.transport for each in server.connections],
            )
            # After the listener has closed the connections, which could begin new sessions.
            tls.on_exchange.append(self._callers.end_certified)
            return await self._listener.start(host, port, BACKLOG)
        self._site = web.TCPSite(self._runner, host, port, backlog=BACKLOG)
        await self._site.start()
        inner = self._site._server
        assert inner is not None
        sockets = getattr(inner, "sockets", None)
        assert sockets, "a started site has a socket"
        return int(sockets[0].getsockname()[1])

    def recheck_callers(self) -> None:
        """Close connections whose callers have lost their rights, after principals have changed."""
        if self._server is not None:
            self._callers.recheck(cast("list[Connection]", self._server.connections))

    @property
    def connections(self) -> int:
        """Count of connected clients and of connections that are in their TLS handshake."""
        waiting = 0 if self._listener is None else self._listener.handshakes
        return self._connected + waiting

    @property
    def _connected(self) -> int:
        return 0 if self._server is None else len(self._server.connections)

    def _has_room(self, *, accepting: bool = False) -> bool:
        """Whether a client may connect; if not, a refusal is counted.

        `accepting`: the client has not begun its TLS handshake, so connections in their handshake
        count too.
        """
        own = self.connections if accepting else self._connected
        others = self.other_connections() if own >= CONNECTIONS_OWN else 0
        if own + others < self._connections_max:
            return True
        self._outcomes.count("http", "not_ready")
        return False

    async def close_listener(self) -> None:
        """Take no new connections."""
        if self._site is not None:
            await self._site.stop()
        if self._listener is not None:
            self._listener.close()

    async def stop(self) -> None:
        """Close all connections; those in use finish their request first."""
        for api in self._mounts.apis:
            await api.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._server is not None:
            self._server.lane.resets.close()

    # ------------------------------------------------------------------ one request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        began = self._now()
        path, _, query = request.raw_path.partition("?")
        ctx = HttpContext(self._node, request, query)
        request_id = ctx.request_id = self._ids.of(request.headers.get(HEADER))
        api = self._mounts.api_of(path) if path.startswith(self._prefixes) else None
        if api is not None:
            ctx.face = api.name
        try:
            check_line(request.method, request.version)
            self._checks.check(request.headers)
        except Problem as refusal:
            self._outcomes.count(ctx.face, refusal.code)
            # The end of the request's body may be ambiguous, and the sender is probably no client.
            if request.version not in (HttpVersion10, HttpVersion11):
                return LeanResponse(problem_answer(refusal), request_id, close=True)
            response = response_of(problem_answer(refusal), request_id)
            response.force_close()
            return response
        for files in self._mounts.files:
            page = files.answer_of(request.method, path, request.headers)
            if page is not None:
                response = response_of(page, request_id)
                if not request.content.is_eof():
                    response.force_close()
                return response
        ctx.budget = self._budget
        ctx.origin = connection = cast("Connection", request.protocol)
        try:
            if path not in self._public:
                reads = self._reads(request.method, path)
                try:
                    ctx.caller = await self._callers.find(
                        request.headers,
                        connection,
                        query,
                        reads=reads,
                        leaderless=reads and path in self._leaderless,
                    )
                except Problem:
                    self._name_call(ctx, request.method, path)
                    raise
            route = self._routes.get((request.method, path))
            handler: HttpHandler
            if route is not None:
                handler = route.handler
                ctx.about(route.call, route.topic_key, route.params)
            else:
                handler = self._route(ctx, path, request.method)
            if ctx.call is not None and ctx.call.streams:
                check_opener(connection.session, request.headers, query)
            if api is not None:
                answer = await self._carry_by(api, ctx, handler, path)
            else:
                answer = await self._carry(ctx, handler, request.raw_path)
            if isinstance(answer, (Stream, Duplex)):
                connection.flow = answer.flow
                # The caller may have lost its rights since the call began.
                self._callers.recheck([connection])
                note = partial(self._outcomes.problem, ctx=ctx, path=path)
                if answer.flow is not None:
                    # Of a stream that has no end, the request is that it is opened.
                    self._outcomes.timed(ctx, began)
                if isinstance(answer, Duplex):
                    socket: web.StreamResponse = await answer.carry(request, request_id, note)
                    return socket
                sent = await send_pieces(request, answer, request_id, note)
                if answer.flow is None:
                    self._outcomes.timed(ctx, began)
                return sent
            self._outcomes.timed(ctx, began)
            return response_to(request, answer, request_id)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            response = response_of(self._refusal(error, ctx, path), request_id)
            if connection.flow is None:
                self._outcomes.timed(ctx, began)
            if not request.content.is_eof():
                response.force_close()
            return response
        finally:
            connection.flow = None
            if ctx.bytes_held:
                self._budget.give_back(ctx.bytes_held)

    async def _carry_fast(
        self,
        head: Head,
        body: bytes,
        connection: Connection,
        request_id: str,
        caller: Caller | None,
    ) -> Answer:
        """Carry out a request of the fast lane, which aiohttp does not parse."""
        route = head.route
        assert route is not None, "the fast lane only carries requests with a route"
        self._metrics.fast_requests += 1
        began = self._now()
        ctx = BufferedContext(self._node, head.headers or {}, "", body)
        ctx.request_id = request_id
        ctx.about(route.call, route.topic_key, route.params)
        ctx.origin = connection
        try:
            ctx.caller = caller or await self._callers.find(
                ctx.headers, connection, "", reads=self._reads(route.call.method, head.path)
            )
            answer = await self._carry(ctx, route.handler, head.path)
            assert isinstance(answer, Answer), "no hot call answers by a stream"
        except Exception as error:
            answer = self._refusal(error, ctx, head.path)
        self._outcomes.timed(ctx, began)
        return answer

    def _reads(self, method: str, path: str) -> bool:
        """Whether a request changes nothing."""
        return method in ("GET", "HEAD") and not path.startswith(self._switches)

    async def _carry(self, ctx: Context, handler: HttpHandler, raw_path: str) -> AnyAnswer:
        """Carry out a call on this node, or redirect it to the leader."""
        call, role = ctx.call, self._node.role
        if call is not None and not call.local:
            ctx.reads = call.reads
            ctx.changes = not ctx.reads
            alone = call.leaderless and not role.settled
            if not role.settled and not alone:
                await role.until_settled(SETTLE_SECONDS)
            try:
                away = None if alone else elsewhere(ctx, raw_path)
            except NotLeadingError as error:
                error.facts["begun"] = False
                raise
            if away is not None:
                return away
        if call is not None:
            permit(ctx.caller, call, ctx.topic_key, ctx.params)
        if ctx.query_text and (call is None or not call.query):
            # Refuses unknown parameters: a filter with a typo must not be ignored.
            if raw_path.partition("?")[0] not in self._mounts.pages:
                ctx.query_values()
        if call is not None:
            return await self._audit.carry(ctx, call.right, handler)
        return await handler(ctx)

    async def _open_page(self, page: ReadsPage, ctx: Context) -> AnyAnswer:
        async def read(path_qs: str) -> AnyAnswer:
            path, _, query = path_qs.partition("?")
            inner = BufferedContext(self._node, {}, query, b"")
            inner.caller, inner.origin, inner.request_id = ctx.caller, ctx.origin, ctx.request_id
            try:
                topics = _Named(self._node.engine.state.topics, ctx.caller)
                route = self._mounts.carried(resolve(path, "GET", topics))
                inner.about(route.call, route.topic_key, route.params)
                if route.call.streams:
                    raise Problem("bad_request", "a stream is no read", field="read")
                authenticator = self._node.access.authenticator
                authenticator.admit(inner.caller, leaderless=route.call.leaderless)
                return await self._carry(inner, route.handler, path_qs)
            except Exception as error:
                problem = problem_of(error)
                if problem is not None and problem.code == "unknown":
                    # It is read again and again, until it exists: that is no fault to be counted.
                    return problem_answer(problem)
                return self._refusal(error, inner, path)

        return page.answer_of(ctx.query_text, read, self._node.waiters.streams)

    async def _carry_by(
        self, api: MountedApi, ctx: HttpContext, handler: HttpHandler, path: str
    ) -> AnyAnswer:
        role = self._node.role
        if not role.settled:
            await role.until_settled(SETTLE_SECONDS)
        if not role.leading and not path.startswith(api.local):
            return await api.carry(ctx, path)
        right = api.right_of(path)
        if right is None:
            return await handler(ctx)
        ctx.name = path.rpartition("/")[2]
        return await self._audit.carry(ctx, right, handler)

    def _refusal(self, error: Exception, ctx: Context, path: str) -> Answer:
        """The answer to a failed call. Re-raises lost connections."""
        problem = self._outcomes.problem(error, ctx, path)
        self._audit.note_refusal(ctx, problem.code, path)
        return problem_answer(problem)

    def _common_route(self, method: str, path: str) -> Route | None:
        """The route of a native call with an ASCII path, or None. Raises Problem."""
        if path.startswith(self._prefixes) or path in self._pages or not path.isascii():
            return None
        return self._mounts.carried(resolve(path, method, self._node.engine.state.topics))

    def _name_call(self, ctx: HttpContext, method: str, path: str) -> None:
        """Set the call of a request whose caller is refused, for its line in the audit log."""
        try:
            route = resolve(path, method)
        except Problem:
            return
        ctx.about(route.call, route.topic_key, route.params)

    def _route(self, ctx: HttpContext, path: str, method: str) -> HttpHandler:
        if not path.isascii():
            try:
                path.encode()
            except UnicodeEncodeError:
                raise Problem("bad_request", "the path is not UTF-8") from None
        if path == "*":
            raise Problem(
                "method", "* names no resource", allow=", ".join(sorted(METHODS - {"OPTIONS"}))
            )
        page = self._pages.get(path)
        if page is not None:
            has_end = path in PAGES
            right = PAGES[path][1] if has_end else "any"
            if right is not None:
                ctx.caller.check_somewhere(right)
            if method == "HEAD" and not has_end:
                raise no_head()
            return pick({"GET": page}, method)
        api = self._mounts.api_of(path)
        if api is not None:
            return api.route(path, method, ctx.caller)
        named = _Named(self._node.engine.state.topics, ctx.caller)
        found = self._mounts.carried(resolve(path, method, named))
        ctx.about(found.call, found.topic_key, found.params)
        if found.common:
            if len(self._routes) >= ROUTES_KEPT:
                self._routes.clear()
            self._routes[method, path] = found
        return found.handler
