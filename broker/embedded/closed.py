"""ClosedError: the error of calls on an embedded broker that is closed or has failed."""

from __future__ import annotations

from delaylog.client.errors import ClientClosed


class ClosedError(ClientClosed):
    """The broker was closed, or has failed: open its folder again."""


def why_closed(failure: BaseException | None, *, forked: bool) -> ClosedError:
    """The error of calls on a broker that has failed by `failure`, or was closed."""
    if forked:
        return ClosedError(
            "this broker belongs to the process that opened it, and this process was forked from "
            "that one: use it there, or run `delaylog serve` on the folder and a Client in both"
        )
    if failure is None:
        return ClosedError("this broker is closed: open its folder again")
    error = ClosedError(f"this broker has failed: {failure}; check the disk")
    error.__cause__ = failure
    return error
