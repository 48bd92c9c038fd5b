"""The exceptions of calls.

There are three kinds of failure, because the caller must react differently to each: the call was
not carried out (NotReached), its outcome is unknown (AnswerLost), or the broker refused it
(ApiError, with one subclass per code of the problem documents). Those for which Python has a
built-in exception derive from it too, so that a program may catch that one. No exception contains a
token.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delaylog.client.models import Sent


class ClientError(Exception):
    """Base class of the exceptions that calls raise."""


class ClientClosed(ClientError):
    """The client is closed, and makes no calls any more. Create another one."""

    def __init__(self, said: str = "the client is closed") -> None:
        super().__init__(said)


class NotReached(ClientError, ConnectionError):
    """No connection could be made, so the call was not carried out. It is safe to call again."""


class NotReachedInTime(NotReached, TimeoutError):
    """The time limit passed before the call could be carried out. It was certainly not done."""


class AnswerLost(ClientError, ConnectionError):
    """The call may have been carried out or not. Repeat it only if it is idempotent."""


class AnswerLate(AnswerLost, TimeoutError):
    """The time limit passed without an answer. The call may have been carried out or not."""


def in_time(error: BaseException, limit_s: float) -> BaseException:
    """The error of a call whose time limit has passed: it says whether the effect may exist."""
    late: ClientError
    if isinstance(error, AnswerLost):
        late = AnswerLate(f"{error} (time limit {limit_s:g} s): the message may exist")
    elif isinstance(error, NotReached):
        late = NotReachedInTime(f"{error} (time limit {limit_s:g} s): nothing was sent")
    else:
        return error
    late.__cause__ = error
    return late


def lost_after(lost: AnswerLost, error: ClientError) -> AnswerLost:
    """The error of a call whose last try failed by `error`, and an earlier one by `lost`."""
    kind = AnswerLate if isinstance(error, AnswerLate) else AnswerLost
    return kind(f"{lost}; then {error}")


class SendFailed(ClientError):
    """Messages were not sent. `failures` has the distinct errors, oldest first.

    `flush` and `close` raise it for queued messages whose result the program never read.
    `send_many` raises it with `outcomes`: for each message, in order, its Sent or its error.
    Elsewhere `outcomes` is empty.
    """

    def __init__(
        self,
        failures: Sequence[BaseException],
        rows: int | None = None,
        outcomes: Sequence[Any] = (),
    ) -> None:
        self.failures = tuple(failures)
        self.outcomes = tuple(outcomes)
        self.rows = len(self.failures) if rows is None else rows
        """How many messages were not sent. Several messages may share one error."""
        first = f"; the first: {self.failures[0]}" if self.failures else ""
        super().__init__(f"{self.rows} messages were not sent{first}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures, self.rows, self.outcomes)


class EachFailed(ClientError):
    """Part of a call on many messages failed. `results` has one entry per message, in order.

    An entry that is a ClientError means that the outcome for this message is unknown, or that
    nothing was done, depending on its class.
    """

    was_to_be = "changed"

    def __init__(self, results: Sequence[Any]) -> None:
        self.results = list(results)
        failed = [each for each in results if isinstance(each, ClientError)]
        super().__init__(
            f"{len(failed)} of {len(results)} were not {self.was_to_be}; the first: {failed[0]}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.results,)


class SettleFailed(EachFailed):
    """An ack, nack or extend failed in part: `results` has Settled or ClientError per message."""

    was_to_be = "settled"


class ReplayFailed(EachFailed):
    """A replay failed in part: `results` has a Changed or a ClientError per id."""

    was_to_be = "replayed"


class ShardsFailed(ClientError):
    """A call over several shards failed on some of them.

    `errors` and `answers` map the names of shards to the error or the answer of each. An answer is
    what the call returns for this shard alone; if the call changes something, the change was made
    there. `not_asked` names the shards that were not called because another one had failed.
    """

    def __init__(
        self,
        what: str,
        errors: Mapping[str, ClientError],
        answers: Mapping[str, Any],
        not_asked: Sequence[str] = (),
    ) -> None:
        self.what = what
        self.errors = dict(errors)
        self.answers = dict(answers)
        self.not_asked = tuple(not_asked)
        told = [f"{what}: " + "; ".join(f"{name} failed: {why}" for name, why in errors.items())]
        if answers:
            done = (
                f"{name} ({value})" if isinstance(value, int) else name
                for name, value in answers.items()
            )
            told.append(f"answered by {', '.join(done)}")
        if not_asked:
            told.append(f"not asked: {', '.join(not_asked)}")
        super().__init__("; ".join(told))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.errors, self.answers, self.not_asked)


class ApiError(ClientError):
    """The broker refused the call with a problem document, and nothing was done.

    There are two exceptions: after a 503 `not_ready` answer to a send, the message may have been
    accepted; after a 500 `internal` answer, the broker has failed and may have done the call.
    """

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        retry_after_s: float | None,
        location: str | None = None,
        request_id: str | None = None,
    ) -> None:
        self.status = status
        self.request_id = request_id
        """The `X-Request-Id` of the answer, by which the broker's logs name the request."""
        self.location = location
        """The target of a 307 redirect."""
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown_error"))
        self.detail = str(problem.get("detail", problem.get("title", "")))
        self.field: str | None = problem.get("field")
        self.item: int | None = problem.get("item")
        self.state: str | None = problem.get("state")
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.code}: {self.detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.status, self.problem, self.retry_after_s, self.location, self.request_id
        return type(self), given


class BadRequest(ApiError, ValueError):
    """The call is malformed; `field` and `item` name the part that is wrong."""


class Unauthorized(ApiError, PermissionError):
    """A token is required, or the given token is unknown."""


class Forbidden(ApiError, PermissionError):
    """The token does not grant the right to make this call."""


class NotFound(ApiError, LookupError):
    """The message, topic, group, job, claim or transaction does not exist."""


class Conflict(ApiError):
    """The call conflicts with the current state."""


class IdInUse(Conflict):
    """The message was not sent: a live message has its id, and `merge` is `reject`.

    `sent` describes the live message; its `result` is `rejected`.
    """

    def __init__(self, sent: Sent) -> None:
        detail = f"a living message has the id {sent.id}; it was not replaced"
        super().__init__(409, {"code": "conflict", "detail": detail, "field": "id"}, None)
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sent,)


class TooLate(Conflict):
    """The message can no longer be changed; `state` is its state."""


class Gone(ApiError):
    """The claim or transaction has ended; `state` says how."""


class TooLarge(ApiError, ValueError):
    """The request, or the message at index `item`, exceeds a limit of the broker."""


class Unsupported(ApiError):
    """The broker does not support this media type."""


class QuotaExceeded(ApiError):
    """A quota of the topic is exhausted; `retry_after_s` says when to try again."""


class NotReady(ApiError, ConnectionError):
    """The broker is starting, or its cluster has no leader; retry after `retry_after_s`."""


class Held(NotReady):
    """The broker is held and delivers nothing, until an operator releases it. Nothing was done."""


AWAY: Final = (NotReached, AnswerLost, NotReady)
"""Failures of a broker that does not answer, or not yet: it may be back soon."""


class DiskFull(ApiError, OSError):
    """The broker's disk is full: sends are refused, deliveries and acks still work.

    `errno` is ENOSPC, as when the disk of this machine is full.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.errno = errno.ENOSPC


CLASSES: Final[Mapping[str, type[ApiError]]] = {
    "bad_request": BadRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "unknown": NotFound,
    "conflict": Conflict,
    "too_late": TooLate,
    "gone": Gone,
    "too_large": TooLarge,
    "unsupported": Unsupported,
    "quota": QuotaExceeded,
    "not_ready": NotReady,
    "held": Held,
    "disk_full": DiskFull,
}
"""The exception class of each code. All other codes become a plain ApiError."""


def api_error(
    status: int,
    problem: Mapping[str, Any],
    retry_after_s: float | None = None,
    location: str | None = None,
    request_id: str | None = None,
) -> ApiError:
    """The exception for a problem document, of the class that belongs to its code."""
    kind = CLASSES.get(str(problem.get("code")), ApiError)
    return kind(status, problem, retry_after_s, location, request_id)
