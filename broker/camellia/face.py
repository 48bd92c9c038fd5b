"""Routes and handlers of camellia's API.

A well-formed call is answered with HTTP 200 and its outcome in `code`; clients handle no other
status. Only malformed calls (an unknown path or method, a parameter that is missing or does not
parse) get another HTTP status. `Health` is camellia's health switch: a deployment takes a node out
of service and polls until it is idle.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.answers import Answer, Problem, broken, problem_of
from delaylog.broker.calls.context import JSON
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.camellia.leader_proxy import LeaderProxy
from delaylog.broker.camellia.monitor import Monitor, metrics_text, no_info, topic_infos
from delaylog.broker.camellia.params import Param, read_params
from delaylog.broker.camellia.queue_calls import QueueCalls, Values
from delaylog.broker.engine.errors import EngineError, NotLeadingError
from delaylog.broker.engine.model import DEFAULT_NAMESPACE
from delaylog.broker.engine.topics.groups import DEFAULT_NAME
from delaylog.broker.host.tls.contexts import ClientTls
from delaylog.broker.web.http_context import HttpContext
from delaylog.broker.web.openapi import Described
from delaylog.contract.calls.call import Right
from delaylog.contract.message_fields import BACKOFF
from delaylog.storage.errors import DISTRUSTED

IDLE_SECONDS: Final = 20.0


class Health:
    """Whether this node reports that it is in service, and the time of the last queue call."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_call = monotonic()
        self.online = True

    def called(self) -> None:
        """Note that a queue call has arrived."""
        self._last_call = self._monotonic()

    @property
    def idle(self) -> bool:
        """Whether no queue call has arrived for `IDLE_SECONDS`."""
        return self._monotonic() - self._last_call >= IDLE_SECONDS


BASE: Final = "/camellia/delayQueue/"
CallHandler: TypeAlias = Callable[[HttpContext, Values], Awaitable[Values]]
PlainHandler: TypeAlias = Callable[["CamelliaFace", HttpContext], Awaitable[Answer]]

TEXT: Final = "text/plain; charset=utf-8"

log = logging.getLogger("delaylog.camellia")

_TOPIC: Final = Param("topic", "text", "Name of the topic.", required=True)
_ID: Final = Param("msgId", "text", "Id of the message.", required=True)
_ACK_TIMEOUT: Final = Param(
    "ackTimeoutMillis", "long", "How long the message is yours; 0 or less: 30,000.", -1
)
_BATCH: Final = Param("batch", "int", "How many messages at most; 0 or less: 1.", -1)


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its method, parameters and handler."""

    method: str
    right: Right
    params: tuple[Param, ...]
    handler: Callable[[CamelliaFace], CallHandler]
    doc: str
    answer: str
    """Name of the member that a successful answer carries, empty for none."""
    null_members: bool = True
    """Whether members without a value are sent as null, rather than left out."""


class CamelliaFace:
    """camellia's API over one node."""

    name, prefix = "camellia", "/camellia/"
    local: tuple[str, ...] = ("/camellia/metrics", "/camellia/health/")
    switches: tuple[str, ...] = ("/camellia/health/",)
    """camellia takes a node out of service by GET too."""

    def __init__(
        self,
        node: ServingNode,
        described: Callable[[], Described],
        *,
        nodes_tls: ClientTls | None = None,
    ) -> None:
        """`described` is its part of the OpenAPI document. `nodes_tls`: which certificates of the
        leader are trusted; None = those of the system.
        """
        self._node = node
        self.described = described
        self.monitor = Monitor(node)
        self.queue = QueueCalls(node, self.monitor)
        self.health = Health(node.machine.steady_s)
        self._proxy = LeaderProxy(nodes_tls)
        self.public, self.leaderless = PUBLIC, LEADERLESS

    def start(self) -> None:
        """Start counting calls."""
        self.monitor.start()

    async def stop(self) -> None:
        """Stop counting, close connections."""
        self.monitor.stop()
        await self._proxy.stop()

    def route(
        self, path: str, method: str, caller: Caller
    ) -> Callable[[HttpContext], Awaitable[Any]]:
        """The handler of a path below /camellia/. Raises a Problem if there is none, or the caller
        may not call it.
        """
        call = CALLS.get(path.removeprefix(BASE)) if path.startswith(BASE) else None
        if call is not None:
            _check_method(method, (call.method,))
            return lambda ctx: self._answer(ctx, call)
        plain = PLAIN.get(path)
        if plain is None:
            raise Problem("unknown", f"there is nothing at {path[:200]}")
        methods, right, handler = plain
        _check_method(method, methods)
        if right == "read":
            # About all topics.
            caller.check_everywhere(right)
        elif right is not None:
            caller.check_somewhere(right)
        return lambda ctx: handler(self, ctx)

    def right_of(self, path: str) -> Right | None:
        """The right that a call needs; None if every caller, or nobody, may make it."""
        call = CALLS.get(path.removeprefix(BASE))
        return PLAIN[path][1] if call is None else call.right

    async def _answer(self, ctx: HttpContext, call: Call) -> Answer:
        values = await read_params(ctx, call.params)
        if _TOPIC in call.params:
            ctx.topic_key = DEFAULT_NAMESPACE, values["topic"]
            ctx.params = {"id": values["msgId"]} if _ID in call.params else {}
            group = DEFAULT_NAME if call.right == "receive" else None
            ctx.caller.check(call.right, (DEFAULT_NAMESPACE, values["topic"]), group)
        else:
            ctx.caller.check_everywhere(call.right)
        self.health.called()
        answer: dict[str, Any] = {"code": 200}
        if call.null_members:
            answer["msg"] = None
        if call.answer:
            answer[call.answer] = None
        try:
            if call.method == "POST":
                self._node.role.check()
            answer.update(await call.handler(self)(ctx, values))
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                if isinstance(error, DISTRUSTED):
                    # This error ends the node, whichever interface found it.
                    raise
                facts = {"path": ctx.request.path, "request_id": ctx.request_id}
                log.exception("unexpected error", extra=facts)
                problem = broken(ctx.request_id)
            _refuse(answer, problem)
            ctx.refused = problem.code
        return _answered(answer, call)

    async def carry(self, ctx: HttpContext, path: str) -> Answer:
        """Forward a call to the leader, because camellia's clients follow no redirect."""
        try:
            url = self._node.role.leader_url()
            if url is None:
                raise NotLeadingError("there is no leader at the moment; try again")
            response = await self._proxy.carry(ctx, url)
        except NotLeadingError as error:
            call = CALLS.get(path.removeprefix(BASE))
            if call is None:
                raise
            self.health.called()
            ctx.refused = error.code
            answer: dict[str, Any] = {"code": 500, "msg": error.detail}
            if call.null_members and call.answer:
                answer[call.answer] = None
            return _answered(answer, call)
        self.health.called()
        return response

    # ------------------------------------------------------------------ monitor

    async def get_topic_info(self, _ctx: HttpContext, values: Values) -> Values:
        """getTopicInfo: sizes of a topic's queues, and its waiting messages by remaining delay."""
        topic = self.queue.topic(values["topic"])
        if topic is None:
            return {"data": no_info(values["topic"])}
        return {"data": (await topic_infos(self._node, topic))[0]}

    async def get_topic_info_list(self, _ctx: HttpContext, _values: Values) -> Values:
        """getTopicInfoList: the info of every topic."""
        return {"data": await topic_infos(self._node)}

    async def get_monitor_data(self, _ctx: HttpContext, _values: Values) -> Values:
        """getMonitorData: calls and time gaps of the last full period."""
        last = self.monitor.last
        return {
            "data": {
                "requestStatsList": last.requests,
                "pullMsgTimeGapStatsList": last.pull_gaps,
                "readyQueueTimeGapStatsList": last.ready_gaps,
            }
        }

    async def get_monitor_string(self, _ctx: HttpContext) -> Answer:
        """getMonitorString: monitor data and queue sizes as one text."""
        last = self.monitor.last
        infos = await topic_infos(self._node)
        sizes = ("topic", "waitingQueueSize", "ackQueueSize", "readyQueueSize")
        text = orjson.dumps(
            {
                "requestStats": last.requests,
                "pullMsgTimeGapStats": last.pull_gaps,
                "readyQueueTimeGapStats": last.ready_gaps,
                "topicInfoStats": [{name: info[name] for name in sizes} for info in infos],
                "waitingQueueStats": [
                    {**info["waitingQueueInfo"], "topic": info["topic"]} for info in infos
                ],
            }
        )
        return Answer(text, TEXT)

    async def metrics(self, _ctx: HttpContext) -> Answer:
        """The gauges of /camellia/metrics."""
        text = await metrics_text(self._node, self.monitor)
        return Answer(text.encode(), TEXT)

    # ------------------------------------------------------------------ health

    async def status(self, _ctx: HttpContext) -> Answer:
        """/camellia/health/status: whether the node is in service."""
        return _health(self.health.online and not self._node.stopping)

    async def check(self, _ctx: HttpContext) -> Answer:
        """/camellia/health/check: the process answers."""
        return _health(True)

    async def go_online(self, _ctx: HttpContext) -> Answer:
        """/camellia/health/online: take the node into service."""
        self.health.online = True
        return _health(True)

    async def go_offline(self, _ctx: HttpContext) -> Answer:
        """/camellia/health/offline: take the node out of service; 200 after 20 s without calls."""
        self.health.online = False
        return _health(self.health.idle)


def _refuse(answer: dict[str, Any], problem: EngineError) -> None:
    refused = problem.code in ("bad_request", "too_large")
    answer["code"] = 400 if refused else 500
    answer["msg"] = problem.detail


def _answered(answer: dict[str, Any], call: Call) -> Answer:
    if not call.null_members:
        answer = {name: value for name, value in answer.items() if value is not None}
    return Answer(orjson.dumps(answer), JSON)


def _health(good: bool) -> Answer:
    code = 200 if good else 500
    return Answer(orjson.dumps({"code": code}), JSON, code)


def _check_method(method: str, methods: tuple[str, ...]) -> None:
    if method not in methods and not (method == "HEAD" and "GET" in methods):
        allow = ", ".join(methods)
        raise Problem("method", f"{method} is not offered here; use {allow}", allow=allow)


CALLS: Final[dict[str, Call]] = {
    "sendMsg": Call(
        "POST",
        "send",
        (
            _TOPIC,
            Param("msg", "text", "The message.", required=True),
            Param("delayMillis", "long", "Delay until it is due; 0 or less: now.", required=True),
            Param("msgId", "text", "Your own id; absent or empty: the server makes one."),
            Param("ttlMillis", "long", "Time to live after it is due; 0 or less: 1 h.", -1),
            Param("maxRetry", "int", "Deliveries beyond the first; negative: 10.", -1),
            Param(
                BACKOFF.name,
                "text",
                "Not in the original: the wait in ms before the first retry, or a JSON object with "
                "first_ms, max_ms, factor, jitter; absent: at once.",
            ),
        ),
        lambda face: face.queue.send_msg,
        "Send a message. A living message with the same id wins and is answered.",
        "delayMsg",
    ),
    "pullMsg": Call(
        "POST",
        "receive",
        (_TOPIC, _ACK_TIMEOUT, _BATCH),
        lambda face: face.queue.pull_msg,
        "Take ready messages without waiting.",
        "delayMsgList",
    ),
    "longPollingMsg": Call(
        "POST",
        "receive",
        (
            _TOPIC,
            _ACK_TIMEOUT,
            _BATCH,
            Param("longPollingTimeoutMillis", "long", "Longest wait; 0 or less: 10,000.", -1),
        ),
        lambda face: face.queue.long_polling_msg,
        "Take ready messages, waiting if there are none.",
        "delayMsgList",
        null_members=False,
    ),
    "ackMsg": Call(
        "POST",
        "receive",
        (
            _TOPIC,
            _ID,
            Param("ack", "flag", "true: end it as done; false: return it.", required=True),
        ),
        lambda face: face.queue.ack_msg,
        "Settle a message.",
        "",
    ),
    "getMsg": Call(
        "POST",
        "bodies",
        (_TOPIC, _ID),
        lambda face: face.queue.get_msg,
        "Look at a message.",
        "delayMsg",
    ),
    "deleteMsg": Call(
        "POST",
        "change",
        (_TOPIC, _ID, Param("release", "flag", "Forget it at once.", False)),
        lambda face: face.queue.delete_msg,
        "Delete a living message.",
        "",
    ),
    "getTopicInfo": Call(
        "GET",
        "read",
        (_TOPIC,),
        lambda face: face.get_topic_info,
        "Sizes of a topic's queues.",
        "data",
        null_members=False,
    ),
    "getTopicInfoList": Call(
        "GET",
        "read",
        (),
        lambda face: face.get_topic_info_list,
        "Sizes of the queues of all topics.",
        "data",
        null_members=False,
    ),
    "getMonitorData": Call(
        "GET",
        "read",
        (),
        lambda face: face.get_monitor_data,
        "Calls and gaps of the last full period.",
        "data",
        null_members=False,
    ),
}
_ANY: Final = ("GET", "POST", "PUT", "DELETE", "PATCH")
PLAIN: Final[dict[str, tuple[tuple[str, ...], Right | None, PlainHandler]]] = {
    f"{BASE}getMonitorString": (("GET",), "read", CamelliaFace.get_monitor_string),
    "/camellia/metrics": (("GET",), "metrics", CamelliaFace.metrics),
    "/camellia/health/status": (_ANY, None, CamelliaFace.status),
    "/camellia/health/check": (_ANY, None, CamelliaFace.check),
    "/camellia/health/online": (_ANY, "operate", CamelliaFace.go_online),
    "/camellia/health/offline": (_ANY, "operate", CamelliaFace.go_offline),
}
"""Paths whose answers have no `code` member: methods, right (None: none is needed), handler."""
PUBLIC: Final = frozenset(path for path, (_, right, _) in PLAIN.items() if right is None)
LEADERLESS: Final = frozenset(path for path, (_, right, _) in PLAIN.items() if right == "metrics")
