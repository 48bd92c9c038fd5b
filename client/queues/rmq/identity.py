"""Which message a body is: its slot, its id and its key.

The one rule: two bodies never share an id. A short body stands in its id as it is, so ids are equal
where bodies are; a longer one stands as its SHA-256, of which nobody has found two texts with one
value, so no send needs to read the stored body to compare it. A letter between slot and rest
keeps the two kinds of id apart.
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
    """The number of slots, if it is one. ValueError."""
    if not 1 <= slots <= SLOTS_MAX or slots & (slots - 1):
        raise ValueError(f"the number of slots is a power of two up to {SLOTS_MAX}, not {slots}")
    return slots


def slot_of(message: RmqMessage, slots: int) -> int:
    """Where a message belongs: the CRC32 (zlib's) of its slot basis, or of its body."""
    basis = message.body if message.slot_basis is None else message.slot_basis
    return crc32(basis.encode()) & (slots - 1)


def id_of(body: str, slot: int) -> str:
    """What names a body in a slot, at most 255 bytes without control characters."""
    plain = f"{slot}{_PLAIN}{body}"
    raw = body.encode()
    if body.isprintable() and len(str(slot)) + 1 + len(raw) <= ID_BYTES_MAX:
        return plain
    return f"{slot}{_HASHED}{sha256(raw).hexdigest()}"


def slot_in(message_id: str) -> int:
    """The slot of an id that `id_of` made. ValueError for another one."""
    digits = message_id[: len(message_id) - len(message_id.lstrip("0123456789"))]
    if not digits or message_id[len(digits) : len(digits) + 1] not in (_PLAIN, _HASHED):
        raise ValueError(f"{message_id!r} is no id of an RMQ message")
    return int(digits)


def key_of(message: RmqMessage) -> str | None:
    """The ordering key: messages of one slot basis are worked on one at a time.

    Without a basis there is none, since one body is one message at a time anyway.
    """
    basis = message.slot_basis
    if basis and len(basis.encode()) > KEY_BYTES_MAX:
        return sha256(basis.encode()).hexdigest()
    return basis or None
