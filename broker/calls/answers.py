"""The answer of a call, for any carrier: bytes and their media type, or a refusal.

Refusals are problem documents (RFC 9457), whose HTTP status is that of the error's code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from delaylog.broker.engine.errors import DiskFullRefusal, EngineError
from delaylog.contract.members import BatchError
from delaylog.storage.errors import DiskFullError, NoDescriptorError

if TYPE_CHECKING:
    # The command line's verbs for folders need no event loop.
    from delaylog.broker.host.waiters import OpenStream


@dataclass(slots=True)
class Answer:
    """An HTTP status and a body."""

    body: bytes
    kind: str
    """Media type of the body."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, such as `Retry-After` of a refusal. Those of a hot call's answer are not
    sent unless it is a refusal."""


@dataclass(slots=True)
class Stream:
    """A body that is generated while it is sent. If `pieces` raises, the carrier aborts the
    connection, so that the client notices that the body is incomplete.
    """

    pieces: AsyncGenerator[bytes, None]
    kind: str
    headers: Mapping[str, str] = field(default_factory=dict)
    flow: OpenStream | None = None
    """The flow of deliveries, or the live reads, that the pieces carry."""


@dataclass(slots=True)
class Duplex:
    """The call goes on as a WebSocket, which carries this flow of deliveries."""

    flow: OpenStream
    carry: Callable[..., Awaitable[Any]]
    """Serves it until it ends: takes the request, its id, and what notes the error that ends it."""


AnyAnswer: TypeAlias = "Answer | Stream | Duplex"


# ------------------------------------------------------------------------------------- refusals

PROBLEM: Final = "application/problem+json"
UPGRADE_REQUIRED: Final = 426
"""The member `status` of a refusal for another version of WebSocket."""


class Problem(EngineError):
    """A refusal by code, for refusals that no caller catches by class."""

    def __init__(self, code: str, detail: str, **members: Any) -> None:
        self.code = code
        super().__init__(detail, **members)


def problem_of(error: Exception) -> EngineError | None:
    """The refusal that an exception of any layer means; None if the exception is a fault."""
    if isinstance(error, EngineError):
        return error
    if isinstance(error, BatchError):
        return Problem("bad_request", str(error), field=error.field, item=error.item)
    if isinstance(error, NoDescriptorError):
        return Problem("not_ready", "no file descriptor is free at the moment; try again")
    if isinstance(error, DiskFullError):
        return DiskFullRefusal("the disk is full; deliveries go on")
    return None


def document_of(refusal: EngineError) -> dict[str, Any]:
    """The problem document."""
    kind = refusal.kind
    return {
        "type": f"urn:delaylog:problem:{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "code": kind.code,
        "detail": refusal.detail,
        **refusal.members,
    }


def problem_answer(refusal: EngineError) -> Answer:
    """The answer to send."""
    document, members = document_of(refusal), refusal.members
    headers = {}
    if refusal.code == "unauthorized":
        headers["WWW-Authenticate"] = 'Bearer realm="delaylog"'
    if refusal.kind.transient:
        headers["Retry-After"] = str(members.get("retry_after_s", 1))
    if "allow" in members:
        headers["Allow"] = str(members["allow"])
    if document["status"] == UPGRADE_REQUIRED:
        # RFC 6455 4.4: the version that there is.
        headers |= {"Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    return Answer(orjson.dumps(document), PROBLEM, document["status"], headers)


def broken(request_id: str) -> Problem:
    """The answer to a call that failed by an error that is no refusal."""
    return Problem(
        "internal",
        f"the broker failed, and may have carried out the call: see its log for {request_id}",
    )


def no_memory() -> Problem:
    """The refusal of a valid body for which the system has no memory."""
    return Problem("not_ready", "the broker has no memory for this body; try again, or send less")
