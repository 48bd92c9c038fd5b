"""What is done with the answer or failure of one exchange: a plan that any transport carries out.

The one rule: what is done again here is what cannot have been done, or what may be done twice. A
call that a node sends on goes to the leader; one that reached nobody goes to another node; while
there is no leader, a repeatable one is tried again for a while. Nothing is sent here: the plan
says what to ask and how long to pause, and is told what came of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from delaylog.client.calls.call import READ_FORM, Call
from delaylog.client.errors import AnswerLost, ApiError, ClientError, NotReached, api_error
from delaylog.client.wire.leader_route import LeaderRoute
from delaylog.storage.calls.of_broker import CLUSTER

# Time a call may take beyond what it asked the broker to wait.
CALL_TIMEOUT_S: Final = 30.0
# How long what may be repeated is tried while a cluster has no leader; one comes within a second.
FAILOVER_S: Final = 10.0
RETRY_EVERY_S: Final = 0.1
HOPS_MAX: Final = 5
MOVED: Final = 307
DETAIL_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this request to that node."""

    node: str
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    extra_s: float

    @property
    def name(self) -> str:
        """What errors call it; the query stays out."""
        return f"{self.method} {self.node}{self.path.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered."""

    status: int
    body: bytes
    retry_after: str | None = None
    location: str | None = None


Step: TypeAlias = Ask | Pause
Outcome: TypeAlias = Answer | NotReached | AnswerLost | None
OnRepeat: TypeAlias = Callable[[ClientError], None]
Plan: TypeAlias = Generator[Step, Outcome, bytes]


def exchange(
    call: Call[Any],
    route: LeaderRoute,
    clock: Callable[[], float],
    failover_s: float,
    doubts: list[Exception] | None = None,
    on_repeat: OnRepeat | None = None,
) -> Plan:
    """The plan of one call: ends with the body of a 2xx answer, or one of the three errors.

    `clock` gives seconds that only go forward; it is not asked while all goes well. `doubts` gets
    the failures after which the call was asked again although it may have been carried out;
    `on_repeat` hears of each failure after which it is asked again.
    """
    headers = call.form.headers()
    if call.headers:
        headers |= call.headers
    until: float | None = None
    lost: AnswerLost | None = None
    hops = untried = 0
    while True:
        node = route.node
        outcome = yield Ask(node, call.method, call.path, call.body, headers, call.extra_s)
        if isinstance(outcome, Answer):
            if outcome.status < 300:
                return outcome.body
            refused = refusal(outcome)
            error: ClientError = refused
            if outcome.location is not None and hops < HOPS_MAX:
                hops += 1
                if (yield from _follow(route, outcome.location)):
                    continue
            # One of several nodes that sends us away and to nobody there is, does not know yet who
            # leads.
            between = outcome.location is not None and route.known > 1
            may_repeat = call.repeatable and (between or refused.code == "not_ready")
        else:
            assert outcome is not None, "an Ask has an outcome"
            error = outcome
            may_repeat = call.repeatable or isinstance(outcome, NotReached)
            may_repeat = may_repeat and route.known > 1
        if until is None:
            until, untried = clock() + failover_s, route.known - 1
        if isinstance(error, AnswerLost):
            lost = error
        if not may_repeat or clock() >= until:
            if lost is not None and isinstance(error, NotReached):
                # Nobody was reached this time; an earlier try may have been carried out.
                raise AnswerLost(f"{lost}; then {error}") from error
            raise error
        if doubts is not None and not isinstance(error, NotReached):
            doubts.append(error)
        if on_repeat is not None:
            on_repeat(error)
        hops = 0
        route.next(node)
        if untried > 0 and isinstance(error, NotReached):
            untried -= 1
        else:
            yield Pause(RETRY_EVERY_S)


def _follow(route: LeaderRoute, location: str) -> Generator[Step, Outcome, bool]:
    """Go to the leader, if it is a member; who the members are, a node that we know says."""
    if route.follow(location):
        return True
    outcome = yield Ask(route.node, "GET", CLUSTER, None, READ_FORM.headers(), 0.0)
    if not isinstance(outcome, Answer) or outcome.status >= 300:
        return False
    try:
        status = json.loads(outcome.body)
    except ValueError:
        return False
    if isinstance(status, dict):
        route.learn(status)
    return route.follow(location)


def refusal(answer: Answer) -> ApiError:
    """The error of an answer that is none of 2xx."""
    try:
        problem = json.loads(answer.body)
    except ValueError:
        problem = {"detail": answer.body[:DETAIL_CHARS].decode(errors="replace")}
    if not isinstance(problem, dict):
        problem = {"detail": str(problem)[:DETAIL_CHARS]}
    try:
        retry_after_s = None if answer.retry_after is None else float(answer.retry_after)
    except ValueError:
        retry_after_s = None
    location = answer.location if answer.status == MOVED else None
    return api_error(answer.status, problem, retry_after_s, location)
