"""Errors on the wire: RFC 9457 problem documents, from one table."""

from __future__ import annotations

from typing import Any, Final

import orjson

from delaylog.broker.calls.answer import Answer
from delaylog.broker.engine.errors import EngineError
from delaylog.storage.errors import BatchError, DiskFullError, NoDescriptorError

PROBLEM: Final = "application/problem+json"
_TABLE: Final[dict[str, tuple[int, str]]] = {
    "bad_request": (400, "The request is malformed"),
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The caller may not do this"),
    "unknown": (404, "There is no such thing"),
    "method": (405, "The method is not allowed here"),
    "timeout": (408, "The request did not arrive in time"),
    "conflict": (409, "The request contradicts what is there"),
    "too_late": (409, "Too late for that"),
    "gone": (410, "It is gone"),
    "too_large": (413, "Too large"),
    "unsupported": (415, "The content type or encoding is not supported"),
    "misdirected": (421, "The request is not for this host"),
    "quota": (429, "A quota is used up"),
    "not_ready": (503, "Not ready"),
    "disk_full": (507, "The disk is full"),
}


class Problem(Exception):
    """An error answer; `code` is stable, `detail` says what to do."""

    def __init__(self, code: str, detail: str, **members: Any) -> None:
        self.code = code
        self.detail = detail
        self.members = {name: value for name, value in members.items() if value is not None}
        super().__init__(detail)


def problem_of(error: Exception) -> Problem | None:
    """The problem behind an exception of the layers below, None if it is ours."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, EngineError):
        return Problem(error.code, error.detail, field=error.field, item=error.item, **error.facts)
    if isinstance(error, BatchError):
        return Problem("bad_request", str(error), field=error.field, item=error.item)
    if isinstance(error, NoDescriptorError):
        return Problem("not_ready", "no file descriptor is free at the moment; try again")
    if isinstance(error, DiskFullError):
        return Problem("disk_full", "the disk has no room; deliveries go on")
    return None


def document_of(problem: Problem) -> dict[str, Any]:
    """The problem document."""
    status, title = _TABLE[problem.code]
    return {
        "type": f"urn:delaylog:problem:{problem.code}",
        "title": title,
        "status": status,
        "code": problem.code,
        "detail": problem.detail,
        **problem.members,
    }


def problem_answer(problem: Problem) -> Answer:
    """The answer to send."""
    document = document_of(problem)
    headers = {}
    if problem.code in ("not_ready", "quota", "disk_full"):
        headers["Retry-After"] = str(problem.members.get("retry_after_s", 1))
    if problem.code == "method" and "allow" in problem.members:
        headers["Allow"] = str(problem.members["allow"])
    return Answer(orjson.dumps(document), PROBLEM, document["status"], headers)


def no_memory() -> Problem:
    """The refusal of a body that the system gives no memory for. Nothing is wrong with the body."""
    return Problem("not_ready", "the broker has no memory for this body; try again, or send less")
