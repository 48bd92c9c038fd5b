"""Commands that change principals: create, change, rotate, revoke. Each appends an ACCESS frame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgpack

from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.errors import (
    ConflictError,
    QuotaRefusal,
    UnknownError,
)
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import FrameKind

PRINCIPALS_MAX: Final = 10_000
"""A limit, because each checkpoint contains all principals."""


def the_principal(state: EngineState, name: str) -> Principal:
    """The principal of this name. Raises UnknownError."""
    found = state.access.principals.get(name)
    if found is None:
        raise UnknownError(f"there is no principal {name[:100]!a}", field="principal")
    return found


def put_principal(state: EngineState, principal: Principal, now_ms: int) -> None:
    """Create a principal, or replace the one with its name."""
    table = state.access
    if principal.name not in table.principals and len(table.principals) >= PRINCIPALS_MAX:
        raise QuotaRefusal(f"there are {PRINCIPALS_MAX} principals, which is the limit")
    for identity in principal.certificates:
        owner = table.by_certificate.get(identity)
        if owner is not None and owner.name != principal.name:
            raise ConflictError(
                f"the certificate {identity!a} belongs to principal {owner.name!r}",
                field="certificates",
            )
    for secret in principal.secrets:
        owner = table.by_digest.get(secret.digest)
        if owner is not None and owner.name != principal.name:
            raise ConflictError("another principal has this secret: choose another one")
    old = table.principals.get(principal.name)
    if old is not None and not (principal.is_admin and principal.may_log_in(now_ms)):
        _check_admin_left(state, old, now_ms)
    _append(state, {"put": principal.pack()}, now_ms)


def rotate(
    state: EngineState, name: str, secret: Secret, now_ms: int, *, previous_until_ms: int
) -> Principal:
    """Give a principal a new secret; its newest previous one stays valid until a time."""
    principal = the_principal(state, name)
    changed = principal.with_secret(secret, now_ms, previous_until_ms=previous_until_ms)
    _append(state, {"put": changed.pack()}, now_ms)
    return changed


def end_previous(state: EngineState, name: str, now_ms: int) -> Principal:
    """Revoke all secrets of a principal but the newest that has not expired."""
    principal = the_principal(state, name)
    changed = replace(principal, secrets=principal.newest(now_ms))
    if not changed.may_log_in(now_ms):
        _check_admin_left(state, principal, now_ms)
    _append(state, {"put": changed.pack()}, now_ms)
    return changed


def revoke(state: EngineState, name: str, now_ms: int) -> None:
    """Remove a principal with all its secrets."""
    _check_admin_left(state, the_principal(state, name), now_ms)
    _append(state, {"drop": name}, now_ms)


def _check_admin_left(state: EngineState, removed: Principal, now_ms: int) -> None:
    """Raise ConflictError if this is the last administrator.

    An administrator whose tokens have all expired does not count: nobody could log in as it.
    """
    if removed.is_admin and not any(
        each.is_admin and each.may_log_in(now_ms)
        for each in state.access.principals.values()
        if each is not removed
    ):
        raise ConflictError(f"{removed.name!r} is the last administrator: create another one first")


def note_used(state: EngineState, used_ms: dict[str, int], now_ms: int) -> None:
    """Record when principals were last used."""
    known = {name: ms for name, ms in used_ms.items() if name in state.access.principals}
    if known:
        _append(state, {"used": known}, now_ms)


def _append(state: EngineState, members: dict[str, Any], now_ms: int) -> None:
    state.append(FrameKind.ACCESS, [msgpack.packb(members)], now_ms)
    state.access.apply(members)
