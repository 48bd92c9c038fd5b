"""Handlers of sessions: who the caller is, log in and out with a browser, get a ticket."""

from __future__ import annotations

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.access.sessions import COOKIE, Session, session_secret
from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.calls.shapes import named_group
from delaylog.storage.layout import NEVER_MS


async def get_session(ctx: Context) -> Answer:
    """GET /v1/session: the caller and its grants, and the CSRF token if it has a session; and
    whether the node is one of a cluster.
    """
    caller, values = ctx.caller, ctx.query_values()
    right, topic = values["may"], values["topic"]
    if right is None and any(values[name] is not None for name in ("topic", "ns", "group")):
        raise Problem("bad_request", "give may too, the right in question", field="may")
    if right is not None and topic is None:
        caller.check_somewhere(right)
    elif right is not None:
        key = ((values["ns"] or b"default").decode(), topic.decode())
        caller.check(right, key, named_group(values["group"]))
    found = _session(ctx)
    return ctx.answer(
        {
            "principal": None if caller is ANYONE else caller.name,
            "grants": [str(grant) for grant in caller.permissions.grants],
            "expires_at_ms": None if caller.expires_ms == NEVER_MS else caller.expires_ms,
            "csrf": None if found is None else found.csrf,
            "cluster": ctx.node.role.cluster is not None,
        }
    )


def _session(ctx: Context) -> Session | None:
    secret = session_secret(ctx.headers)
    sessions = ctx.node.access.sessions
    return None if secret is None else sessions.find(secret, ctx.node.clock.now_ms())


async def open_session(ctx: Context) -> Answer:
    """POST /v1/session: exchange the token of this call for a session's cookie."""
    await ctx.values()
    if ctx.caller is ANYONE:
        raise Problem("conflict", "this broker requires no authentication: no session is needed")
    if "Authorization" not in ctx.headers and _session(ctx) is not None:
        # Otherwise a session could be renewed for ever.
        raise Problem("conflict", "this call has a session already: log in with a token")
    secret, session = ctx.node.access.sessions.open(ctx.caller, ctx.node.clock.now_ms())
    answer = ctx.answer({"csrf": session.csrf, "expires_at_ms": session.expires_ms}, status=201)
    answer.headers = {"Set-Cookie": _cookie(ctx, secret), "Cache-Control": "no-store"}
    return answer


async def close_session(ctx: Context) -> Answer:
    """DELETE /v1/session: log out."""
    secret = session_secret(ctx.headers)
    if secret is not None:
        ctx.node.access.sessions.close(secret)
    answer = ctx.answer({"result": "done"})
    answer.headers = {"Set-Cookie": _cookie(ctx, "") + "; Max-Age=0"}
    return answer


async def make_ticket(ctx: Context) -> Answer:
    """POST /v1/session/ticket: a ticket for one request that cannot send headers."""
    await ctx.values()
    maker = None if "Authorization" in ctx.headers else _session(ctx)
    sessions, now_ms = ctx.node.access.sessions, ctx.node.clock.now_ms()
    ticket, expires_ms = sessions.make_ticket(ctx.caller, maker, now_ms)
    return ctx.answer({"ticket": ticket, "expires_at_ms": expires_ms})


def _cookie(ctx: Context, secret: str) -> str:
    secure = "; Secure" if ctx.encrypted else ""
    return f"{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}"
