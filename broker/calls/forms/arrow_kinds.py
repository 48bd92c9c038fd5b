"""Checks of the Arrow types of message columns."""

from __future__ import annotations

from typing import Any

from delaylog.contract.members import Int
from delaylog.contract.message_fields import BACKOFF


def is_text(types: Any, kind: Any) -> bool:
    return any(
        is_kind(kind) for is_kind in (types.is_binary, types.is_large_binary, types.is_string)
    ) or types.is_large_string(kind)


def is_utf8(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def are_tags(types: Any, kind: Any) -> bool:
    return is_list(types, kind) and is_utf8(types, kind.value_type)


def are_headers(types: Any, kind: Any) -> bool:
    if types.is_map(kind):
        return is_utf8(types, kind.key_type) and is_text(types, kind.item_type)
    if not is_list(types, kind) or not types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    named = [pair.field(at).name for at in range(pair.num_fields)] == ["key", "value"]
    return named and is_utf8(types, pair.field(0).type) and is_text(types, pair.field(1).type)


def is_integer(types: Any, kind: Any) -> bool:
    return bool(types.is_integer(kind))


def is_time(types: Any, kind: Any) -> bool:
    return bool(types.is_timestamp(kind))


def is_backoff(types: Any, kind: Any) -> bool:
    names = [kind.field(at).name for at in range(kind.num_fields)] if types.is_struct(kind) else []
    if not names or len(set(names)) < len(names):
        return False
    whole = {member.name: isinstance(member, Int) for member in BACKOFF.shape.members}
    for at in range(kind.num_fields):
        part = kind.field(at)
        fits = types.is_integer(part.type)
        if part.name not in whole or not (fits or types.is_floating(part.type)):
            return False
        if whole[part.name] and not fits:
            return False
    return True
