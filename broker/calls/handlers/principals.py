"""Handlers of principals: list, read, create or change, give a new token, revoke.

A token is in the answer that creates it and nowhere else: the broker stores only its digest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.engine.access import commands
from delaylog.broker.engine.access.grants import parse_grant
from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, digest_of, make_token
from delaylog.storage.layout import NEVER_MS

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
