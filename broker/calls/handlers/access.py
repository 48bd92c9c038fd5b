"""Handlers of access: principals and their tokens, and sessions of browsers.

A token is in the answer that creates it and nowhere else: the broker stores only its digest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.access.sessions import COOKIE, Session, session_secret
from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.shapes import named_group
from delaylog.broker.engine.access import commands
from delaylog.broker.engine.access.grants import parse_grant
from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, digest_of, make_token
from delaylog.storage.layout import NEVER_MS

# ----------------------------------------------------------------------------------- principals

GRACE_MS: Final = 24 * 3_600_000
"""How long the previous token stays valid after a rotation, if the call does not say."""


def _describe(ctx: Context, principal: Principal) -> dict[str, Any]:
    """The members of a principal in an answer; none of them is secret."""
    recorded_ms = ctx.node.engine.state.access.used_ms.get(principal.name, 0)
    used_ms = max(recorded_ms, ctx.node.used_ms.get(principal.name, 0))
    return {
        "principal": principal.name,
        "grants": [str(grant) for grant in principal.grants],
        "certificates": list(principal.certificates),
        "messages_per_s": principal.messages_per_s,
        "calls_per_s": principal.calls_per_s,
        "created_ms": principal.created_ms,
        "used_ms": used_ms or None,
        "tokens": [
            {
                "created_ms": secret.created_ms,
                "expires_at_ms": None if secret.expires_ms == NEVER_MS else secret.expires_ms,
            }
            for secret in principal.secrets
        ],
    }


def _new_token(ctx: Context, expires_ms: int | None) -> tuple[str, Secret]:
    """A token, and what is stored of it."""
    now_ms = ctx.node.clock.now_ms()
    if expires_ms is not None and expires_ms <= now_ms:
        raise Problem("bad_request", "expires_at_ms lies in the past", field="expires_at_ms")
    token = make_token(ctx.node.machine.random_bytes(RANDOM_BYTES))
    return token, Secret(digest_of(token), now_ms, expires_ms or NEVER_MS)


async def list_principals(ctx: Context) -> Answer:
    """GET /v1/principals."""
    table = ctx.node.engine.state.access.principals
    principals = [_describe(ctx, table[name]) for name in sorted(table)]
    return await ctx.durable_answer({"principals": principals})


async def get_principal(ctx: Context) -> Answer:
    """GET /v1/principals/{principal}."""
    principal = commands.the_principal(ctx.node.engine.state, ctx.params["principal"])
    return await ctx.durable_answer(_describe(ctx, principal))


async def put_principal(ctx: Context) -> Answer:
    """PUT /v1/principals/{principal}: create one with a token, or change an existing one."""
    values = await ctx.values()
    node, name = ctx.node, ctx.params["principal"]
    state, now_ms = node.engine.state, node.clock.now_ms()
    old = state.access.principals.get(name)
    principal = Principal(
        name,
        tuple(map(parse_grant, values["grants"] or ())),
        secrets=old.secrets if old else (),
        certificates=tuple(values["certificates"] or ()),
        messages_per_s=values["messages_per_s"] or 0,
        calls_per_s=values["calls_per_s"] or 0,
        created_ms=old.created_ms if old else now_ms,
    )
    token, status = None, 200
    if old is None:
        if not state.access.principals and not principal.is_admin:
            raise Problem(
                "conflict",
                "the first principal must have the grant admin: from then on every call needs a "
                "token",
                field="grants",
            )
        token, secret = _new_token(ctx, values["expires_at_ms"])
        principal, status = replace(principal, secrets=(secret,)), 201
    elif values["expires_at_ms"] is not None:
        raise Problem(
            "conflict",
            f"there is a principal {name!r}; rotate it to get a token that expires",
            field="expires_at_ms",
        )
    commands.put_principal(state, principal, now_ms)
    return await ctx.durable_answer({**_describe(ctx, principal), "token": token}, status)


async def rotate_principal(ctx: Context) -> Answer:
    """POST …/rotate: make a new token; the previous one stays valid for a time."""
    values = await ctx.values()
    state, now_ms = ctx.node.engine.state, ctx.node.clock.now_ms()
    name = ctx.params["principal"]
    if values["finish"]:
        for member in ("grace_ms", "expires_at_ms"):
            if values[member] is not None:
                detail = f"finish makes no token: leave out {member}"
                raise Problem("bad_request", detail, field=member)
        principal, token = commands.end_previous(state, name, now_ms), None
    else:
        grace_ms = GRACE_MS if values["grace_ms"] is None else values["grace_ms"]
        old = commands.the_principal(state, name)
        token, secret = _new_token(ctx, values["expires_at_ms"] or _inherited_expiry(old, now_ms))
        until_ms = now_ms + grace_ms
        principal = commands.rotate(state, name, secret, now_ms, previous_until_ms=until_ms)
    return await ctx.durable_answer({**_describe(ctx, principal), "token": token})


def _inherited_expiry(principal: Principal, now_ms: int) -> int | None:
    """When a new token expires if the call does not say: after the lifetime of the newest one."""
    if not principal.secrets or principal.secrets[-1].expires_ms == NEVER_MS:
        return None
    newest = principal.secrets[-1]
    return now_ms + newest.expires_ms - newest.created_ms


async def revoke_principal(ctx: Context) -> Answer:
    """DELETE /v1/principals/{principal}: revoke it with all its tokens."""
    commands.revoke(ctx.node.engine.state, ctx.params["principal"], ctx.node.clock.now_ms())
    return await ctx.durable_answer({"result": "done"})


# ------------------------------------------------------------------------------------- sessions


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
    proof = caller if found is None or "Authorization" in ctx.headers else found
    return ctx.answer(
        {
            "principal": None if caller is ANYONE else caller.name,
            "grants": [str(grant) for grant in caller.permissions.grants],
            "expires_at_ms": None if proof.expires_ms == NEVER_MS else proof.expires_ms,
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
