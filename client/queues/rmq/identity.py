"""The slot, id and key of a body.

Two bodies never share an id. The id of a short body contains the body, the id of a long one its
SHA-256, so no send has to compare stored bodies. A separator after the slot distinguishes the two
kinds of id.
"""

from __future__ import annotations

from hashlib import sha256
from zlib import crc32

from delaylog.client.queues.rmq.messages import RmqMessage

ID_BYTES_MAX = 255
KEY_BYTES_MAX = 255
SLOTS_MAX = 1 << 14
_PLAIN = "="
_HASHED = "#"


def check_slots(slots: int) -> int:
    """Check the number of slots. Raises ValueError."""
    if not 1 <= slots <= SLOTS_MAX or slots & (slots - 1):
        raise ValueError(f"the number of slots is a power of two up to {SLOTS_MAX}, not {slots}")
    return slots


def slot_of(message: RmqMessage, slots: int) -> int:
    """The slot of a message: the CRC32 (zlib) of its slot basis, or of its body."""
    basis = message.body if message.slot_basis is None else message.slot_basis
    return crc32(basis.encode()) & (slots - 1)


def id_of(body: str, slot: int) -> str:
    """The id of a body in a slot: at most 255 bytes without control characters."""
    plain = f"{slot}{_PLAIN}{body}"
    raw = body.encode()
    if body.isprintable() and len(str(slot)) + 1 + len(raw) <= ID_BYTES_MAX:
        return plain
    return f"{slot}{_HASHED}{sha256(raw).hexdigest()}"


def slot_in(message_id: str) -> int:
    """The slot of an id of `id_of`. ValueError for any other id."""
    digits = message_id[: len(message_id) - len(message_id.lstrip("0123456789"))]
    if not digits or message_id[len(digits) : len(digits) + 1] not in (_PLAIN, _HASHED):
        raise ValueError(f"{message_id!r} is no id of an RMQ message")
    return int(digits)


def key_of(message: RmqMessage) -> str | None:
    """The ordering key, so that messages with one slot basis are handled one at a time.

    None without a slot basis: a body is one message at a time anyway.
    """
    basis = message.slot_basis
    if basis and len(basis.encode()) > KEY_BYTES_MAX:
        return sha256(basis.encode()).hexdigest()
    return basis or None
