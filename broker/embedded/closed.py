"""Why an embedded broker takes no more calls."""

from __future__ import annotations


class ClosedError(Exception):
    """The broker was closed, or its folder failed: open it again."""


def why_closed(failure: BaseException | None, *, forked: bool) -> ClosedError:
    """The error of calls on a broker that has failed by `failure`, or was closed."""
    if forked:
        return ClosedError(
            "this broker belongs to the process that opened it, and this one was forked from "
            "it: use it there, or let `delaylog serve` have the folder and both a Client"
        )
    if failure is None:
        return ClosedError("this broker is closed: open its folder again")
    if not isinstance(failure, Exception):
        return ClosedError(
            f"a call was interrupted in its middle by {type(failure).__name__}: close this "
            "broker and open its folder again, which has everything that was answered"
        )
    error = ClosedError(f"this broker has failed: {failure}; look at the disk")
    error.__cause__ = failure
    return error
