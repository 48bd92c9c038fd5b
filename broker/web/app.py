"""The HTTP server: routes, one handler, and the translation of errors.

aiohttp's low-level server is used: paths are matched by their segments in a table, which costs a
dictionary look-up where a router's regular expressions cost as much as the whole engine call.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from delaylog.broker.metrics import CONTENT_TYPE, Metrics
from delaylog.broker.node import Node
from delaylog.broker.waiters import TopicKey
from delaylog.broker.web.camellia import LOCAL as CAMELLIA_LOCAL
from delaylog.broker.web.camellia import CamelliaFace
from delaylog.broker.web.context import JSON, Context
from delaylog.broker.web.openapi import openapi_document
from delaylog.broker.web.operations import (
    ARCHIVE,
    CLAIM,
    CLOCK,
    CLUSTER,
    CLUSTER_CALLS,
    GROUP,
    JOB,
    JOBS,
    MESSAGE,
    READS,
    TAKES_QUERY,
    TOPIC,
    TOPICS,
    TRANSACTION,
    TRANSACTIONS,
    Handler,
    by_tail,
)
from delaylog.broker.web.problems import Problem, problem_of, problem_response
from delaylog.broker.web.redirects import elsewhere
from delaylog.broker.web.singles import SingleMerger
from delaylog.storage.errors import CorruptionError, DiskFailedError

SETTLE_SECONDS: Final = 1.0
"""A call waits so long for a cluster that changes its leader."""
ROUTES_KEPT: Final = 4_096
"""Resolved topic paths remembered: resolving one again costs as much as parsing a message."""
CAMELLIA: Final = "/camellia/"
"""Its clients may add parameters of their own: they were never refused."""
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
CLAIM_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")

log = logging.getLogger("delaylog.web")

_UNDER_TOPIC: Final = by_tail(TOPIC)
_MESSAGE: Final = by_tail(MESSAGE)[""]
_GROUP: Final = by_tail(GROUP)[""]
_CLAIM: Final = by_tail(CLAIM)
_TOPICS: Final = by_tail(TOPICS)[""]
_ARCHIVE: Final = by_tail(ARCHIVE)
_CLOCK: Final = by_tail(CLOCK)[""]
_CLUSTER: Final = by_tail(CLUSTER)
_JOBS: Final = by_tail(JOBS)[""]
_JOB: Final = by_tail(JOB)[""]
_TRANSACTIONS: Final = by_tail(TRANSACTIONS)[""]
_TRANSACTION: Final = by_tail(TRANSACTION)


class _Protocol(RequestHandler):
    """A connection that answers broken HTTP by a problem document and logs no traceback for it."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The last answer of this connection."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        response = problem_response(Problem("bad_request", "this is not HTTP as it should be"))
        response.force_close()
        return response

    def log_exception(self, *args: Any, **options: Any) -> None:
        """A body that cannot be unpacked was answered already."""
        if not isinstance(options.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **options)


class _Server(web.Server):
    """A caller that goes away cancels its call: a long poll must not take what nobody reads."""

    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class HttpFace:
    """Serves one node."""

    def __init__(self, node: Node, metrics: Metrics, camellia: CamelliaFace) -> None:
        self._node = node
        self._merger = SingleMerger(node)
        self._metrics = metrics
        self._camellia = camellia
        self._document: bytes | None = None
        self._ops: dict[str, Handler] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics_text,
            "/openapi.json": self._openapi,
            "/": self._root,
        }
        self._local = frozenset(
            [*self._ops.values(), *(operation.handler for operation in CLUSTER_CALLS)]
        )
        """What every node answers for itself."""
        self._routes: dict[tuple[str, str], tuple[Handler, TopicKey, str]] = {}
        self._runner: web.ServerRunner | None = None
        self._site: web.TCPSite | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        request_bytes_max = self._node.engine.limits.request_bytes_max
        loop = asyncio.get_running_loop()

        def make_request(
            message: Any, payload: Any, protocol: Any, writer: Any, task: Any
        ) -> web.BaseRequest:
            return web.BaseRequest(
                message, payload, protocol, writer, task, loop, client_max_size=request_bytes_max
            )

        server = _Server(
            self._handle,
            request_factory=make_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=75,
            tcp_keepalive=True,
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=5)
        await self._runner.setup()
        self._camellia.start()
        self._site = web.TCPSite(self._runner, host, port, backlog=4096)
        await self._site.start()
        inner = self._site._server
        assert inner is not None
        sockets = getattr(inner, "sockets", None)
        assert sockets, "a started site has a socket"
        return int(sockets[0].getsockname()[1])

    async def close_listener(self) -> None:
        """Take no new connections."""
        if self._site is not None:
            await self._site.stop()

    async def stop(self) -> None:
        """Close connections, those in use after what they are doing."""
        await self._camellia.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    # ------------------------------------------------------------------ one request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        ctx = Context(self._node, self._merger, request, query)
        try:
            known = self._routes.get((request.method, path))
            if known is None:
                handler = self._route(ctx, path, request.method)
            else:
                handler, ctx.topic_key, ctx.params["action"] = known
            standing = self._node.standing
            if not standing.settled and handler not in self._local:
                await standing.until_settled(SETTLE_SECONDS)
            if path.startswith(CAMELLIA):
                if not self._node.standing.leading and not path.startswith(CAMELLIA_LOCAL):
                    return await self._camellia.carry(ctx, path)
                return await handler(ctx)
            if handler not in self._local:
                ctx.reads = handler in READS
                ctx.changes = not ctx.reads
                away = elsewhere(ctx)
                if away is not None:
                    return away
            if query and handler not in TAKES_QUERY:
                # Who asks for what is not there is told, not given something else.
                ctx.query()
            return await handler(ctx)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                if isinstance(error, (ConnectionError, web.HTTPException)):
                    raise
                if isinstance(error, web.RequestPayloadError):
                    problem = Problem("bad_request", "the body could not be read")
                elif isinstance(error, (CorruptionError, DiskFailedError)):
                    # Whoever met it: nothing more may be answered from this disk.
                    self._node.fail(error)
                    problem = Problem("not_ready", "the node stops: its disk cannot be trusted")
                else:
                    log.exception("unexpected error", extra={"path": path})
                    raise
            self._metrics.problems.labels(problem.code).inc()
            response = problem_response(problem)
            if not request.content.is_eof():
                response.force_close()
            return response

    def _route(self, ctx: Context, path: str, method: str) -> Handler:
        if not path.isascii():
            try:
                path.encode()
            except UnicodeEncodeError:
                raise Problem("bad_request", "the path is not UTF-8") from None
        ops = self._ops.get(path)
        if ops is not None:
            return _pick({"GET": ops, "HEAD": ops}, method)
        parts = path.split("/")
        if path.startswith(CAMELLIA):
            return self._camellia.route(path, method)
        if len(parts) < 3 or parts[1] != "v1":
            raise Problem("unknown", f"there is nothing at {path[:200]}")
        if path == CLOCK:
            return _pick(_CLOCK, method)
        if parts[2] == "cluster" and len(parts) <= 4:
            table = _CLUSTER.get("/".join(parts[3:]))
            if table is not None:
                return _pick(table, method)
        if parts[2] == "archive" and len(parts) <= 4:
            table = _ARCHIVE.get("/".join(parts[3:]))
            if table is not None:
                return _pick(table, method)
        if path == JOBS:
            return _pick(_JOBS, method)
        if parts[2] == "jobs" and len(parts) == 4:
            ctx.params["job"] = _segment(parts[3])
            return _pick(_JOB, method)
        if path == TRANSACTIONS:
            return _pick(_TRANSACTIONS, method)
        if parts[2] == "transactions" and len(parts) in (4, 5):
            under_one = _TRANSACTION.get("/".join(parts[4:]))
            if under_one is not None:
                ctx.params["transaction"] = _segment(parts[3])
                return _pick(under_one, method)
        namespace = "default"
        at = 2
        if parts[2] == "ns" and len(parts) >= 5:
            namespace = _segment(parts[3])
            if not TOPIC_NAME.match(namespace):
                raise Problem("bad_request", "a namespace is [A-Za-z0-9._-]{1,200}")
            at = 4
        if parts[at] != "topics":
            raise Problem("unknown", f"there is nothing at {path[:200]}")
        rest = parts[at + 1 :]
        if not rest or rest == [""]:
            ctx.topic_key = (namespace, "")
            return _pick(_TOPICS, method)
        name = _segment(rest[0])
        if not TOPIC_NAME.match(name):
            raise Problem("bad_request", "a topic is named [A-Za-z0-9._-]{1,200}", field="topic")
        ctx.topic_key = (namespace, name)
        under = rest[1] if len(rest) > 1 else ""
        if under == "messages" and len(rest) == 3:
            ctx.params["id"] = _segment(rest[2])
            return _pick(_MESSAGE, method)
        if under == "groups" and len(rest) == 3:
            group = ctx.params["group"] = _segment(rest[2])
            if not TOPIC_NAME.match(group):
                raise Problem(
                    "bad_request", "a group is named [A-Za-z0-9._-]{1,200}", field="group"
                )
            return _pick(_GROUP, method)
        if under == "claims" and 3 <= len(rest) <= 4:
            claim = ctx.params["claim"] = _segment(rest[2])
            if not CLAIM_NAME.match(claim):
                raise Problem(
                    "bad_request", "a claim is named [A-Za-z0-9._:-]{1,200}", field="claim"
                )
            action = ctx.params["action"] = _segment("/".join(rest[3:]))
            if action in _CLAIM:
                return _pick(_CLAIM[action], method)
            raise Problem("unknown", f"there is nothing at {path[:200]}")
        table = _UNDER_TOPIC.get(_segment(under)) if len(rest) <= 2 else None
        if table is None:
            raise Problem("unknown", f"there is nothing at {path[:200]}")
        action = ctx.params["action"] = _segment(under).rpartition(":")[2]
        handler = _pick(table, method)
        if len(self._routes) >= ROUTES_KEPT:
            self._routes.clear()
        self._routes[method, path] = (handler, ctx.topic_key, action)
        return handler

    # ------------------------------------------------------------------ operations

    async def _healthz(self, ctx: Context) -> web.StreamResponse:
        return ctx.answer({"status": "ok"})

    async def _readyz(self, ctx: Context) -> web.StreamResponse:
        if self._node.stopping:
            raise Problem("not_ready", "the node is stopping")
        if self._node.suspended:
            raise Problem("not_ready", "this node loads what it holds anew")
        members: dict[str, Any] = {
            "status": "ready",
            "disk_full": self._node.refusing_sends,
            "clock_held_ms": self._node.clock.held_ms,
        }
        cluster = self._node.standing.cluster
        if cluster is not None:
            status = cluster.status()
            members["role"] = status["role"]
            members["leader"] = status["leader"] and status["leader"]["http"]
        return ctx.answer(members)

    async def _metrics_text(self, _ctx: Context) -> web.StreamResponse:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def _openapi(self, _ctx: Context) -> web.StreamResponse:
        if self._document is None:
            limits = self._node.engine.limits
            self._document = orjson.dumps(openapi_document(limits), option=orjson.OPT_INDENT_2)
        return web.Response(body=self._document, content_type=JSON)

    async def _root(self, ctx: Context) -> web.StreamResponse:
        return ctx.answer({"name": "delaylog", "topics": len(self._node.engine.state.topics)})


def _pick(table: dict[str, Handler], method: str) -> Handler:
    handler = table.get(method)
    if handler is None:
        allow = ", ".join(sorted(table))
        raise Problem("method", f"{method} is not offered here; use {allow}", allow=allow)
    return handler


def _segment(raw: str) -> str:
    """A path segment, percent-decoded; every legal id works."""
    if "%" not in raw:
        return raw
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Problem("bad_request", "the path is not UTF-8") from None
