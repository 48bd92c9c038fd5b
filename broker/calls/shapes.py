"""Parses the members of the native API's requests.

Every parse function takes untrusted members and returns plain values, or raises a Problem or
MemberError that names the member. A message becomes a `Single`: one row, which is merged with the
others of its turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Any, Final

import numpy as np

from delaylog.broker.calls.answers import Problem
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.send.due_times import too_far
from delaylog.broker.engine.topics.groups import DEFAULT_NAME
from delaylog.contract.calls.shapes import MESSAGE, RECEIVE
from delaylog.contract.members import INT64_MAX, limit_note
from delaylog.contract.message_fields import (
    BODY,
    BODY_BASE64,
    DELAY_MS,
    DELIVER_AT_MS,
    pack_fields,
)
from delaylog.contract.times import TIME_MS_MAX
from delaylog.storage.messages.batch import BATCH_VERSION, Single

_BODY, _DUE = BODY.name, DELIVER_AT_MS.name
_APART: Final = frozenset({BODY.name, BODY_BASE64.name, DELIVER_AT_MS.name, DELAY_MS.name})
"""Members of a message that are not in the table of fields."""


def take_body(members: Mapping[str, Any], item: int | None = None) -> bytes:
    """The body, which must be given in one of its forms. Raises a Problem or MemberError."""
    body, found = members.get("body"), None
    if body is not None:
        if members.get("body_base64") is not None:
            raise Problem(
                "bad_request", "give body or body_base64, not both", field="body", item=item
            )
        found = body if isinstance(body, bytes) else BODY.check(body, None, item)
    else:
        found = BODY_BASE64.take(members, None, item)
    if found is None:
        raise Problem("bad_request", "body or body_base64 is missing", field="body", item=item)
    return found


def parse_message(members: Any, *, limits: Limits, now_ms: int, item: int | None = None) -> Single:
    """One message of a send. Raises a Problem or MemberError that names what is wrong."""
    plain = _plain_message(members, limits, now_ms)
    if plain is not None:
        return plain
    values = MESSAGE.check(members, item)
    body = take_body(values, item)
    if len(body) > limits.body_bytes_max:
        raise Problem(
            "too_large",
            f"a body has at most {limits.body_bytes_max} bytes{limit_note('body_bytes_max')}",
            field="body",
            item=item,
        )
    due = DELIVER_AT_MS.take(values, limits, item)
    delay = DELAY_MS.take(values, limits, item)
    if due is not None and delay is not None:
        raise Problem(
            "bad_request", "give deliver_at_ms or delay_ms, not both", field="delay_ms", item=item
        )
    horizon_ms = limits.horizon_ms
    if due is not None and due > now_ms + horizon_ms:
        raise DELIVER_AT_MS.wrong(too_far(due, now_ms, horizon_ms), item)
    single = Single(body, due if due is not None else (delay or 0), due is None)
    if not values.keys() <= _APART:
        fields = {name: value for name, value in values.items() if name not in _APART}
        single.fields = packed = pack_fields(fields, item)
        single.merge = packed.pop("merge", None)
    return single


def _plain_message(members: Any, limits: Limits, now_ms: int) -> Single | None:
    """A legal message of a text and a time, as most are; None: the general checks decide.

    These few comparisons take a fifth of the time of the general checks.
    """
    if type(members) is not dict or len(members) != 2:
        return None
    text, due_ms = members.get(_BODY), members.get(_DUE)
    if type(text) is not str or type(due_ms) is not int:
        return None
    if not DELIVER_AT_MS.first_ms <= due_ms <= min(now_ms + limits.horizon_ms, TIME_MS_MAX):
        return None
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return None
    return Single(body, due_ms, False) if len(body) <= limits.body_bytes_max else None


@dataclass(frozen=True, slots=True)
class ReceiveCall:
    """Parameters of receive and peek."""

    count_max: int
    wait_ms: int = 0
    lease_ms: int | None = None
    columns: frozenset[str] = frozenset()
    group: str = DEFAULT_NAME
    only: TagFilter | None = None
    ids: tuple[str, ...] | None = None
    begin: int | None = None
    """At how many messages an attempt begins at once if it is their first; None: at all."""
    consumer: str = ""
    """The name of the consumer; "" = it says none."""
    address: str = ""
    """Where it calls from; "" = not known. The carrier knows it, not the request."""
    bytes_max: int | None = None
    """Bytes of the messages, after the first one; None: as many as a receive may have."""


_RECEIPT: Final = re.compile(r"[0-9a-f]{32}\Z")
_DIGITS: Final = re.compile("[0-9a-f]*")


def parse_receive(members: Any, limits: Limits, address: str = "") -> ReceiveCall:
    """Parameters of a receive from `address`; all members are optional."""
    return receive_call(RECEIVE.take(members, limits), address)


def receive_call(values: Mapping[str, Any], address: str = "") -> ReceiveCall:
    """Parameters of a receive from members that are checked already."""
    count, ids = values["max"], values["ids"]
    if count is None:
        count = 1 if ids is None else len(ids)
    return ReceiveCall(
        count,
        values["wait_ms"] or 0,
        values["lease_ms"],
        frozenset(values["columns"] or ()),
        named_group(values["group"]),
        TagFilter.parse(values["tags"], values["tags_mode"] or "any"),
        None if ids is None else tuple(ids),
        values["begin"],
        (values["consumer"] or b"").decode(),
        address,
    )


def named_group(name: bytes | None) -> str:
    """The group's name as text; the default group for None."""
    return DEFAULT_NAME if name is None else name.decode()


def check_columns(fields: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse a bulk body of another version or with unknown columns."""
    for name in fields:
        if name not in known:
            raise Problem("bad_request", f"unknown column {name!r}", field=name[:64])
    if fields.get("v") != BATCH_VERSION or isinstance(fields["v"], bool):
        raise Problem("bad_request", f"v must be {BATCH_VERSION}", field="v")


def check_count(fields: Mapping[str, Any], count: int) -> None:
    """Refuse a bulk body whose `n` is not the number of its refs."""
    n = fields.get("n")
    if n is not None and (n != count or isinstance(n, bool)):
        raise Problem("bad_request", f"n does not match the {count} refs", field="n")


def parse_receipt(text: Any, item: int) -> tuple[int, int]:
    """(lease, origin ref) of a receipt."""
    if isinstance(text, str) and _RECEIPT.match(text):
        ref = int(text[16:], 16)
        if ref <= INT64_MAX:
            return int(text[:16], 16), ref
    raise Problem(
        "bad_request",
        "a receipt is 32 hex digits, as receive gave it; with force, give ids",
        field="receipts",
        item=item,
    )


def parse_receipts(texts: list[Any]) -> list[tuple[int, int]]:
    """(lease, origin ref) of each receipt. Raises a Problem that names the first wrong one."""
    if len(texts) > 1 and all(type(text) is str and len(text) == 32 for text in texts):
        whole = "".join(texts)
        if _DIGITS.fullmatch(whole):
            # Together they are read four times as fast as one by one.
            numbers = np.frombuffer(bytes.fromhex(whole), ">u8").reshape(-1, 2)
            if numbers[:, 1].max() <= INT64_MAX:
                return [(lease, ref) for lease, ref in numbers.tolist()]
    return [parse_receipt(text, item) for item, text in enumerate(texts)]


def receipt_texts(lease: int, origins: Sequence[int]) -> list[str]:
    """The printable receipt of each message of a delivery: 16 digits of its lease, 16 of its ref.

    The digits of all refs are made at once: one by one they cost as much as packing the messages.
    """
    if len(origins) == 1:
        return [f"{lease:016x}{origins[0]:016x}"]
    head, digits = f"{lease:016x}", pack(f">{len(origins)}q", *origins).hex()
    return [head + digits[at : at + 16] for at in range(0, len(digits), 16)]
