"""Where a call is answered when this node does not lead: here, or at the leader.

Clients are redirected to the leader by 307 with the same path; a read with `?read=local` is
answered from what this node has applied. camellia's clients follow no redirect: `leader_proxy`
carries their calls.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import JSON, Context
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.storage.calls.shapes import READ


def reads_locally(query: str) -> bool:
    """Whether a read is content with what this node knows. Raises a Problem for unknown words."""
    said = parse_qs(query, keep_blank_values=True).get(READ.name)
    return said is not None and READ.take({READ.name: said[-1]}) == "local"


def redirect(leader_url: str, raw_path: str) -> Answer:
    """307: the same call, at the leader."""
    return Answer(b"", JSON, 307, {"Location": leader_url + raw_path})


def elsewhere(ctx: Context, raw_path: str) -> Answer | None:
    """What is answered instead of carrying the call out here; None where this node may."""
    standing = ctx.node.standing
    local = ctx.reads and bool(ctx.query_text) and reads_locally(ctx.query_text)
    if standing.leading:
        if ctx.changes:
            standing.check()
        return None
    if local:
        if ctx.node.suspended:
            raise NotLeadingError("this node is reloading its data; try again")
        if ctx.node.engine.state.retired:
            # What it led may never be committed; in a moment it follows the new leader.
            raise NotLeadingError("this node has just ceased to lead; try again")
        return None
    url = standing.leader_url()
    if url is None:
        raise NotLeadingError("there is no leader at the moment; try again")
    return redirect(url, raw_path)
