"""How calls fail, as a short family that says what the caller can do now.

The one rule: three kinds of failure stay apart, because a caller must do something different about
each: nothing was done (NotReached), nobody knows (AnswerLost), and the broker said no (ApiError,
with a class for each code of its problem documents). No token is ever part of an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from delaylog.client.models import Sent


class ClientError(Exception):
    """Base of everything a call raises on purpose."""


class NotReached(ClientError):
    """No connection was made, so nothing was done: call again later."""


class AnswerLost(ClientError):
    """The call may or may not have been carried out: repeat it only in an idempotent form."""


class SendFailed(ClientError):
    """Sends that nobody was waiting for have failed; `failures` holds why, the first ones first.

    Of `send_many`, `outcomes` says of each message, in their order, what it came to: its Sent, or
    why it was not sent. Elsewhere it is empty.
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
        """How many messages were not sent; several may share a failure."""
        first = f"; the first: {self.failures[0]}" if self.failures else ""
        super().__init__(f"{self.rows} messages were not sent{first}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures, self.rows, self.outcomes)


class EachFailed(ClientError):
    """Some of several calls failed; `results` has what became of each message, in order.

    A ClientError in it says why nothing is known of that message, or that nothing was done.
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
    """Of settles: a `Settled` or a ClientError for each message."""

    was_to_be = "settled"


class ReplayFailed(EachFailed):
    """Of a replay: a `Changed` or a ClientError for each id."""

    was_to_be = "replayed"


class ShardsFailed(ClientError):
    """A call over several shards failed at some: `errors` and `answers` say of each what it said.

    Both are by the names of shards; an answer is what the call returns for that shard alone, and of
    a call that changes something it says that it was done there. `not_asked` are shards that were
    left alone after another had failed.
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
    """The broker refused the call with a problem document; nothing was done.

    Of a 503 `not_ready` alone this is not certain: what was sent may have come through.
    """

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        retry_after_s: float | None,
        location: str | None = None,
    ) -> None:
        self.status = status
        self.location = location
        """Of a 307: where the call is to go instead."""
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown_error"))
        self.detail = str(problem.get("detail", problem.get("title", "")))
        self.field: str | None = problem.get("field")
        self.item: int | None = problem.get("item")
        self.state: str | None = problem.get("state")
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.code}: {self.detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.problem, self.retry_after_s, self.location)


class BadRequest(ApiError):
    """The call is malformed; `field` and `item` say where."""


class Unauthorized(ApiError):
    """A token is needed, or the one given is not known."""


class Forbidden(ApiError):
    """The token does not allow this."""


class NotFound(ApiError):
    """There is no such message, topic, group, job, claim or transaction."""


class Conflict(ApiError):
    """The call contradicts what is there."""


class IdInUse(Conflict):
    """A living message has the id and `merge` is `reject`: this one was not sent.

    `sent` tells of the living one, with the result `rejected`.
    """

    def __init__(self, sent: Sent) -> None:
        detail = f"a living message has the id {sent.id}; it was not replaced"
        super().__init__(409, {"code": "conflict", "detail": detail, "field": "id"}, None)
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sent,)


class TooLate(Conflict):
    """The message is past changing; `state` is what it was found in."""


class Gone(ApiError):
    """A claim or transaction has ended; `state` says how."""


class TooLarge(ApiError):
    """A body, or a message of it (`item`), is over the broker's limit."""


class Unsupported(ApiError):
    """The broker does not read or write this media type."""


class QuotaExceeded(ApiError):
    """A quota of the topic is used up; `retry_after_s` says when to try again."""


class NotReady(ApiError):
    """The broker starts, or its cluster has no leader; `retry_after_s` says when to try again."""


class DiskFull(ApiError):
    """The broker's disk has no room for more messages; deliveries and acks go on."""


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
    "disk_full": DiskFull,
}
"""The class of each code; `method`, `timeout` and whatever comes later are plain ApiErrors."""


def api_error(
    status: int,
    problem: Mapping[str, Any],
    retry_after_s: float | None = None,
    location: str | None = None,
) -> ApiError:
    """The error of a problem document, as the class of its code."""
    kind = CLASSES.get(str(problem.get("code")), ApiError)
    return kind(status, problem, retry_after_s, location)
