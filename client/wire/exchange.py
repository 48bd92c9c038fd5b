"""The exchange of one call with the nodes of a broker: redirects, failover, retries, silence.

The plan of a call is a generator that a transport drives: it sends nothing, but yields what to ask
and how long to pause, and receives the outcome. A call is retried until its time limit if it was
certainly not carried out, or if it is repeatable. It was not if no node could be reached, or a node
says that it has not begun it, since it does not lead. A redirected call goes to the leader; a call
that reached no node goes to another node. A call whose token was refused is retried once if the
token file has another one.

A node that hangs (a stopped process, a machine that vanished, a firewall that drops packets) keeps
its connections open. A slow answer, or a long poll without messages, looks the same. So after
QUIET_S without a byte the client asks another member for the leader, by `GET /v1/cluster`, which
every valid token may call. If that member names another node, the exchange is given up, as if its
connection had broken off, which counts as a lost answer; in all other cases it goes on. All
exchanges of a client share the questions. The transport waits, asks and gives up; this module
decides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from delaylog.client.calls.call import READ_FORM, Call
from delaylog.client.errors import (
    AnswerLate,
    AnswerLost,
    ApiError,
    ClientError,
    NotReached,
    NotReachedInTime,
    api_error,
    lost_after,
)
from delaylog.client.wire.credentials import Headers
from delaylog.client.wire.leader_route import LeaderRoute, same_node
from delaylog.contract.calls.table import CLUSTER

# --------------------------------------------------------------------------- the plan of a call

# How long a call may take, its repeats included, in addition to the wait that it requests.
TIMEOUT_S: Final = 10.0
RETRY_EVERY_S: Final = 0.1
# The pauses grow up to this while no node can be reached: a broker restarts in about a second.
RECONNECT_EVERY_S: Final = 0.5
SHORTEST_S: Final = 0.001
# When a member is asked again for the leader while a node is silent. A poll is silent by design,
# so its questions are fewer.
AGAIN_S: Final = 0.5
AGAIN_OF_POLL_S: Final = 1.5
HOPS_MAX: Final = 5
MOVED: Final = 307
UNAUTHORIZED: Final = 401
DETAIL_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this request to that node."""

    node: str
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    limit_s: float
    """How long this exchange may take."""
    again_s: float | None = None
    """How often another member is asked for the leader while the node is silent; None: never."""
    aside: bool = False
    """Whether it takes no connection from the calls, which may all hang."""

    @property
    def name(self) -> str:
        """The name in error messages, without the query."""
        return f"{self.method} {self.node}{self.path.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Times:
    """How long a call may take, and be repeated; None: until its time limit."""

    timeout_s: float = TIMEOUT_S
    failover_s: float | None = None
    """How long a call is repeated at all."""
    reconnect_s: float | None = None
    """How long a call is repeated while no node can be reached."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a node."""

    status: int
    body: bytes
    retry_after: str | None = None
    location: str | None = None
    request_id: str | None = None


Step: TypeAlias = Ask | Pause
Outcome: TypeAlias = Answer | NotReached | AnswerLost | None
OnRepeat: TypeAlias = Callable[[ClientError], None]
Plan: TypeAlias = Generator[Step, Outcome, bytes]


def exchange(
    call: Call[Any],
    route: LeaderRoute,
    clock: Callable[[], float],
    times: Times,
    doubts: list[Exception] | None = None,
    on_repeat: OnRepeat | None = None,
) -> Plan:
    """The plan of one call. It returns the body of a 2xx answer, or raises one of the three errors.

    `clock` is a monotonic clock in seconds. `doubts` collects the failures after which the call was
    retried although it may have been carried out; `on_repeat` is called with each failure after
    which it is retried. All exchanges together take no longer than the time limit of the call.
    """
    limit_s = times.timeout_s if call.limit_s is None else call.limit_s
    ends_s = clock() + limit_s + call.extra_s
    left_s = limit_s + call.extra_s
    headers = call.form.headers()
    if call.headers:
        headers |= call.headers
    for_s = limit_s if times.failover_s is None else min(times.failover_s, limit_s)
    until: float | None = None
    unreached_s: float | None = None
    pause_s = RETRY_EVERY_S
    lost: AnswerLost | None = None
    credentials = route.credentials
    renewed = False
    hops = untried = 0
    while True:
        node = route.node
        token = credentials.token_for(node)
        sent = _with_token(headers, token)
        if call.repeatable and route.known > 1:
            # A node that hangs must leave time for another one.
            left_s = max((left_s - call.extra_s) / 2, 0.0) + min(call.extra_s, left_s)
        again_s: float | None = None
        # A node that hands over is slow, and another one leads by then.
        if route.known > 1 and (call.repeatable or not call.local):
            again_s = AGAIN_OF_POLL_S if call.extra_s else AGAIN_S
        outcome = yield Ask(node, call.method, call.path, call.body, sent, left_s, again_s)
        if isinstance(outcome, Answer):
            if outcome.status < 300:
                return outcome.body
            if outcome.status == UNAUTHORIZED and not renewed and credentials.renewed(token):
                renewed = True
                left_s = _left_s(ends_s, clock)
                continue
            why_not: str | None = None
            if outcome.location is not None and hops < HOPS_MAX:
                hops += 1
                left_s = _left_s(ends_s, clock)
                why_not = yield from _follow(route, outcome.location, left_s)
                left_s = _left_s(ends_s, clock)
                if why_not is None:
                    continue
            refused = refusal(outcome, token, why_not)
            error: ClientError = refused
            # A node of a cluster that redirects to an unknown place does not know the leader
            # yet.
            between = outcome.location is not None and route.known > 1
            not_done = refused.problem.get("begun") is False
            may_repeat = not_done or (call.repeatable and (between or refused.code == "not_ready"))
        else:
            assert outcome is not None, "an Ask has an outcome"
            error = outcome
            not_done = isinstance(outcome, NotReached)
            if not_done:
                may_repeat = route.known > 1 or not call.at_once
            else:
                may_repeat = call.repeatable and route.known > 1
        now_s = clock()
        if until is None:
            until = min(now_s + for_s, ends_s - RETRY_EVERY_S)
            untried = route.known - 1
        if not isinstance(error, NotReached):
            unreached_s, pause_s = None, RETRY_EVERY_S
        elif unreached_s is None:
            unreached_s = now_s
        elif times.reconnect_s is not None and now_s >= unreached_s + times.reconnect_s:
            may_repeat = False
        if isinstance(error, AnswerLost):
            lost = error
        if not may_repeat or now_s >= until:
            if isinstance(error, AnswerLate):
                # The next call must not wait for the same node.
                route.next(node)
            if lost is not None and isinstance(error, NotReached):
                # This try reached no node, but an earlier one may have been carried out.
                raise lost_after(lost, error) from error
            repeats = for_s > 0 and not call.at_once
            if may_repeat and repeats and isinstance(error, NotReached):
                said = f"{error} (repeated for {for_s:g} s): nothing was done"
                raise NotReachedInTime(said) from error
            raise error
        if doubts is not None and not not_done:
            doubts.append(error)
        if on_repeat is not None:
            on_repeat(error)
        hops = 0
        route.next(node)
        if untried > 0 and isinstance(error, NotReached):
            untried -= 1
        else:
            yield Pause(min(pause_s, max(until - now_s, 0.0)))
            if unreached_s is not None:
                pause_s = min(2 * pause_s, RECONNECT_EVERY_S)
        left_s = _left_s(ends_s, clock)


def _left_s(ends_s: float, clock: Callable[[], float]) -> float:
    """How long the next exchange may take. Never 0, which would mean no limit."""
    return max(ends_s - clock(), SHORTEST_S)


def _follow(
    route: LeaderRoute, location: str, limit_s: float
) -> Generator[Step, Outcome, str | None]:
    """Switch to the leader if it is a member. A known node is asked for the members.

    Returns None, or why the redirect is not followed.
    """
    if route.follow(location):
        return None
    route.learn(answered_object((yield cluster_question(route, route.node, limit_s))))
    return None if route.follow(location) else route.why_not(location)


def cluster_question(route: LeaderRoute, node: str, limit_s: float, *, aside: bool = False) -> Ask:
    """Ask a node for the leader and the members of its cluster."""
    headers = _with_token(READ_FORM.headers(), route.credentials.token_for(node))
    return Ask(node, "GET", CLUSTER, None, headers, limit_s, aside=aside)


def answered_object(outcome: Outcome) -> dict[str, Any]:
    """The JSON object of a 2xx answer; an empty one for any other outcome."""
    answer = outcome if isinstance(outcome, Answer) else Answer(0, b"")
    try:
        found = json.loads(answer.body) if 200 <= answer.status < 300 else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _with_token(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    return headers if token is None else Headers(headers, Authorization=f"Bearer {token}")


def refusal(answer: Answer, token: str | None = None, why_not: str | None = None) -> ApiError:
    """The error for an answer whose status is not 2xx.

    It does not contain the token, even if the server echoes it. `why_not`: why the redirect was not
    followed.
    """
    try:
        problem = _without(token, json.loads(answer.body))
    except (ValueError, RecursionError):
        problem = _without(token, answer.body.decode(errors="replace"))
    if not isinstance(problem, dict):
        if answer.location is not None:
            # A redirect of the broker has no body.
            problem = {"detail": f"redirected to {_without(token, answer.location)}"}
        else:
            begin = " ".join(str(problem).split())[:DETAIL_CHARS]
            problem = {"detail": f"this is no answer of delaylog, but of another server: {begin}"}
    if why_not is not None:
        said = problem.get("detail", problem.get("title", ""))
        problem["detail"] = f"{said} (not followed: {why_not})".lstrip()
    location = _without(token, answer.location) if answer.status == MOVED else None
    after_s = _seconds(answer.retry_after)
    return api_error(answer.status, problem, after_s, location, _without(token, answer.request_id))


def _seconds(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After; None for a date, or what no program can wait for."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _without(token: str | None, value: Any) -> Any:
    """A value of JSON with the token hidden in all its texts."""
    if token is None:
        return value
    if isinstance(value, str):
        return value.replace(token, "***")
    if isinstance(value, dict):
        return {_without(token, name): _without(token, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without(token, each) for each in value]
    return value


FailureT = TypeVar("FailureT", NotReached, AnswerLost)


def because(error: FailureT, cause: BaseException) -> FailureT:
    """The error of an exchange, with what a library has raised as its cause."""
    error.__cause__ = cause
    return error


# ------------------------------------------------------------ whether a silent node still leads

QUIET_S: Final = 1.0
ASK_S: Final = 0.5
"""How long a member may take to answer. One that hangs, too, must not hold up the next question."""


class LeftNode(Exception):
    """Another node leads than the one that gives no answer, and the route goes there now."""


class Silence:
    """One exchange, or stream: since when its node has been silent, and when to look again."""

    __slots__ = ("again_s", "look_at_s", "node", "since_s")

    def __init__(self, node: str, again_s: float, now_s: float) -> None:
        self.node = node
        self.again_s = again_s
        self.since_s = now_s
        self.look_at_s = now_s + QUIET_S

    def heard(self, now_s: float) -> None:
        """Note that bytes of an answer have arrived."""
        self.since_s = now_s
        self.look_at_s = now_s + QUIET_S


class LeaderWatch:
    """What members have said, for all exchanges of one client. Threads may share it."""

    def __init__(self, route: LeaderRoute, clock: Callable[[], float]) -> None:
        self._route = route
        self._clock = clock
        self._member: str | None = None
        """The member that answered last. It is asked again, so a dead one costs one question."""
        self._asked_s = float("-inf")
        """When the newest question was asked."""
        self._named_s = float("-inf")
        """When the question was asked whose answer named `_leader`."""
        self._leader = ""

    def look(self, silence: Silence) -> Generator[Ask, Outcome, bool]:
        """Whether another node leads than the silent one; sets when to look next.

        A member is asked, unless one has been asked within `again_s`.
        """
        now_s, again_s = self._clock(), silence.again_s
        if now_s >= self._asked_s + again_s:
            self._asked_s = now_s
            leader = yield from self._ask(silence.node)
            if leader is None:
                # Another member, or this one a little later, knows more.
                self._asked_s = now_s - again_s / 2
            else:
                self._leader, self._named_s = leader, now_s
        silence.look_at_s = max(self._asked_s + again_s, self._clock() + again_s / 2)
        # What was said before the node fell silent, or before a question under way, may be wrong.
        if not silence.since_s <= self._named_s == self._asked_s:
            return False
        return not same_node(self._leader, silence.node) and self._route.follow(self._leader)

    def _ask(self, silent: str) -> Generator[Ask, Outcome, str | None]:
        """Ask one member who leads; returns the address of the leader, or None."""
        others = [url for url in self._route.nodes if not same_node(url, silent)]
        if not others:
            return None
        member = self._member if self._member in others else others[0]
        status = answered_object((yield cluster_question(self._route, member, ASK_S, aside=True)))
        leader = _http(status.get("leader"))
        if leader is None:
            self._member = others[(others.index(member) + 1) % len(others)]
            return None
        self._member = member
        self._route.learn(status)
        listed = status.get("members")
        addresses = map(_http, listed if isinstance(listed, list) else ())
        if not any(each and same_node(each, silent) for each in addresses):
            # The client has another address of this node than the cluster file, or one that leads
            # to any node. So the node itself is asked whether it leads.
            own = answered_object((yield cluster_question(self._route, silent, ASK_S, aside=True)))
            if own.get("role") == "leader":
                return silent
        return leader


def _http(node: Any) -> str | None:
    """The address of a node in a cluster status, or None."""
    found = node.get("http") if isinstance(node, dict) else None
    return found if isinstance(found, str) else None
