"""The server as a whole: its clock, and which node accepts writes."""

from __future__ import annotations

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run


@command("time", 1, "server", "loading stale fast")
def time(run: Run, argv: Args) -> Reply:
    """Return the time: seconds, and microseconds in steps of whole milliseconds."""
    seconds, rest_ms = divmod(run.now_ms, 1000)
    return [b"%d" % seconds, b"%d" % (rest_ms * 1000)]


@command("role", 1, "server", "noscript loading stale fast")
def role(run: Run, argv: Args) -> Reply:
    """Return whether this node accepts writes, and otherwise which node does."""
    server = run.shared.server
    if server.role() == b"master":
        return [b"master", 0, []]
    leader = server.leader()
    if leader is None:
        return [b"slave", b"", 0, b"connect", -1]
    return [b"slave", leader[0], leader[1], b"connected", 0]
