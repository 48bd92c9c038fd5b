"""Single messages of a send, and the bulk body that several of them make together.

The maker of a `Single` has checked its fields, by `pack_fields`. The engine checks bodies and due
times of all sends.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from delaylog.contract.message_fields import put_columns
from delaylog.storage.messages.batch import BATCH_VERSION

_PACKER: Final = msgpack.Packer()


@dataclass(slots=True)
class Single:
    """One message to send."""

    body: bytes
    due_ms: int
    """Absolute time, or a delay when `relative`."""
    relative: bool
    fields: Mapping[str, Any] | None = None
    """Packed (`message_fields.pack_fields`); None if only body and time are set."""
    merge: str | None = None

    @property
    def n(self) -> int:
        """Number of rows in a batch: one."""
        return 1

    @property
    def size_bytes(self) -> int:
        """Bytes that count against the limit of a request."""
        return len(self.body)

    @property
    def id(self) -> bytes:
        """The id chosen by the client, or empty."""
        return b"" if self.fields is None else self.fields.get("id", b"")


def record_size(single: Single) -> int:
    """Bytes of the message's record."""
    size = len(single.body)
    if single.fields is not None:
        size += sum(len(each) for each in single.fields.values() if isinstance(each, bytes))
    return size


def requested_times(singles: Sequence[Single], now_ms: int) -> list[int]:
    """The due time that each message asks for."""
    return [single.due_ms + now_ms if single.relative else single.due_ms for single in singles]


def encode_singles(singles: Sequence[Single], due_ms: list[int], merge: str | None) -> bytes:
    """A bulk body of single messages with these due times."""
    packed: bytes = _PACKER.pack(columns_of(singles, due_ms, merge))
    return packed


def columns_of(
    singles: Sequence[Single], due_ms: list[int], merge: str | None
) -> dict[str, object]:
    """The members of that bulk body."""
    bodies: list[bytes] = []
    plain = True
    for single in singles:
        bodies.append(single.body)
        plain = plain and not single.fields
    columns: dict[str, object] = {
        "v": BATCH_VERSION,
        "n": len(bodies),
        "deliver_at_ms": array("q", due_ms).tobytes(),
        "body_size": array("I", map(len, bodies)).tobytes(),
        "bodies": b"".join(bodies),
    }
    if merge is not None:
        columns["merge"] = merge
    if not plain:
        put_columns(columns, [single.fields for single in singles])
    return columns
