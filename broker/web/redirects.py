"""Decides whether this node answers a call or redirects it to the leader.

A node that does not lead redirects clients to the leader with status 307 and the same path. It
answers a read with `?read=local` from its applied state. camellia's clients follow no redirect:
`broker/camellia/leader_proxy` forwards their calls.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import JSON, Context
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.contract.calls.shapes import READ


def reads_locally(query: str) -> bool:
    """Whether the query has `read=local`. Raises a Problem for an unknown value of `read`."""
    said = parse_qs(query, keep_blank_values=True).get(READ.name)
    return said is not None and READ.take({READ.name: said[-1]}) == "local"


def redirect(leader_url: str, raw_path: str) -> Answer:
    """A 307 redirect to the same call at the leader."""
    return Answer(b"", JSON, 307, {"Location": leader_url + raw_path})


def elsewhere(ctx: Context, raw_path: str) -> Answer | None:
    """The redirect to answer with; None if this node may carry out the call."""
    role = ctx.node.role
    local = ctx.reads and bool(ctx.query_text) and reads_locally(ctx.query_text)
    if role.leading:
        if ctx.changes:
            role.check()
        return None
    if local:
        if ctx.node.suspended:
            raise NotLeadingError("this node is reloading its data; try again")
        if ctx.node.engine.state.retired:
            # The frames that it appended last may never be committed. It follows the new leader
            # in a moment.
            raise NotLeadingError("this node has just ceased to lead; try again")
        return None
    url = role.leader_url()
    if url is None:
        raise NotLeadingError("there is no leader at the moment; try again")
    return redirect(url, raw_path)
