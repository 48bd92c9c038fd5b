"""The bytes of messages between nodes, declared once.

    0 magic u16 "DR" | 2 version u8 | 3 kind u8 | 4 size u32: what follows

    kind  message   fixed part                                             behind it
     1    HELLO     cluster_id 16s, node u16, voter ?, promised u64, end u64
     2    PREPARE   epoch u64
     3    PROMISE   epoch u64, end u64, tick                               epoch table
     4    NACK      epoch u64, promised u64
     5    FETCH     epoch u64, offset u64                                  epoch table
     6    FETCHED   epoch u64, offset u64, end u64                         frames
     7    APPEND    epoch u64, prev_offset u64, prev_epoch u64, commit u64,
                    seq u64, tick                                          frames
     8    ACK       epoch u64, end u64, seq u64, voter ?
     9    REJECT    epoch u64, end u64, voter ?                            epoch table
    10    TAKEOVER  epoch u64, end u64, tick
    11    READMIT   epoch u64, end u64
    12    COPYOFFER epoch u64, copy u64
    13    COPYTAKEN epoch u64, copy u64, taken u64
    14    COPYPART  epoch u64, copy u64, at u64, offset u64, size of name u16  name, bytes
    15    COPYEND   epoch u64, copy u64, whole ?
    16    FOLDER    cluster 16s, incarnation u64, version u64, history 16s,
                    remembered u64, learner u64, leads u64,
                    acknowledged u64                                       numbers
    17    STATUS    nothing                                                a msgpack map
    18    CANVASS   round u64, last_epoch u64, end u64
    19    SUPPORT   round u64, granted ?

    tick         epoch u64, second u32, local_index u32, position u64, wall_ms i64
    epoch table  epoch u64, first position u64 each, both ascending
    numbers      u64 each

Little-endian; kind 0 is never valid. Integrity is checked elsewhere: frames have checksums, and the
transport authenticates the sender before it passes bytes to a decoder.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from delaylog.replication.epochs import EpochEntries, EpochTick
from delaylog.replication.errors import WireError
from delaylog.replication.messages import (
    Ack,
    Append,
    Canvass,
    CopyEnd,
    CopyOffer,
    CopyPart,
    CopyTaken,
    Fetch,
    Fetched,
    FolderIdentity,
    Hello,
    Message,
    Nack,
    NodeStatus,
    Prepare,
    Promise,
    Readmit,
    Reject,
    Support,
    Takeover,
)
from delaylog.replication.meta import INCARNATIONS_MAX
from delaylog.storage.layout import FRAME_HEADER_SIZE
from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX
from delaylog.storage.messages.batch import Block

MAGIC: Final = 0x5244  # "DR"
VERSION: Final = 1
HEADER: Final = struct.Struct("<HBBI")
HEADER_SIZE: Final = 8
assert HEADER.size == HEADER_SIZE
_TABLE_ENTRY: Final = struct.Struct("<QQ")
_NUMBER: Final = struct.Struct("<Q")
_TICK: Final = "QIIQq"

EPOCHS_MAX: Final = 1 << 16
"""Most epochs in a table: the newest ones. Logs that share none of them need a copy."""
FRAMES_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + FRAME_HEADER_SIZE
"""The largest frame must fit; several frames together are not longer."""
PIECE_BYTES_MAX: Final = 1 << 20
"""Most bytes of a file in one part of a copy: other messages wait for one part at most."""
STATUS_BYTES_MAX: Final = 4096
"""Size limit of a node's status."""
NAME_BYTES_MAX: Final = 255
"""Size limit of a path in a copy."""


class Tail(Enum):
    """The variable part of a message, with its largest size."""

    NOTHING = 0
    TABLE = EPOCHS_MAX * _TABLE_ENTRY.size
    FRAMES = FRAMES_BYTES_MAX
    PIECE = NAME_BYTES_MAX + PIECE_BYTES_MAX
    NUMBERS = INCARNATIONS_MAX * _NUMBER.size
    MAP = STATUS_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one kind of message."""

    kind: int
    type: Any
    fixed: struct.Struct
    tick_at: int | None
    """Index of the field that is a tick, if any; it is the last one of the fixed part."""
    tail: Tail

    @property
    def size_max(self) -> int:
        """The largest size of what follows the header."""
        return self.fixed.size + self.tail.value


def _layout(kind: int, type: Any, fixed: str, tail: Tail = Tail.NOTHING) -> Layout:
    fields: tuple[str, ...] = type._fields
    tick_at = fields.index("tick") if "tick" in fields else None
    return Layout(kind, type, struct.Struct("<" + fixed), tick_at, tail)


LAYOUTS: Final = (
    _layout(1, Hello, "16sH?QQ"),
    _layout(2, Prepare, "Q"),
    _layout(3, Promise, "QQ" + _TICK, Tail.TABLE),
    _layout(4, Nack, "QQ"),
    _layout(5, Fetch, "QQ", Tail.TABLE),
    _layout(6, Fetched, "QQQ", Tail.FRAMES),
    _layout(7, Append, "QQQQQ" + _TICK, Tail.FRAMES),
    _layout(8, Ack, "QQQ?"),
    _layout(9, Reject, "QQ?", Tail.TABLE),
    _layout(10, Takeover, "QQ" + _TICK),
    _layout(11, Readmit, "QQ"),
    _layout(12, CopyOffer, "QQ"),
    _layout(13, CopyTaken, "QQQ"),
    _layout(14, CopyPart, "QQQQH", Tail.PIECE),
    _layout(15, CopyEnd, "QQ?"),
    _layout(16, FolderIdentity, "16sQQ16sQQQQ", Tail.NUMBERS),
    _layout(17, NodeStatus, "", Tail.MAP),
    _layout(18, Canvass, "QQQ"),
    _layout(19, Support, "Q?"),
)
_BY_KIND: Final = {layout.kind: layout for layout in LAYOUTS}
_BY_TYPE: Final = {layout.type: layout for layout in LAYOUTS}
assert [layout.kind for layout in LAYOUTS] == list(range(1, len(LAYOUTS) + 1))


def encode(message: Message) -> list[Block]:
    """The buffers of one message: its head, then the frames, uncopied."""
    layout = _BY_TYPE[type(message)]
    fields: tuple[Any, ...] = tuple(message)
    tail: Block = b""
    if layout.tail is Tail.TABLE:
        table: EpochEntries = fields[-1]
        tail = b"".join(_TABLE_ENTRY.pack(*entry) for entry in table[-EPOCHS_MAX:])
        fields = fields[:-1]
    elif layout.tail in (Tail.FRAMES, Tail.MAP):
        tail = fields[-1]
        assert len(tail) <= layout.tail.value, "what is sent is cut to fit"
        fields = fields[:-1]
    elif layout.tail is Tail.NUMBERS:
        tail = b"".join(map(_NUMBER.pack, fields[-1]))
        assert len(tail) <= layout.tail.value, "older incarnations are forgotten before that"
        fields = fields[:-1]
    elif layout.tail is Tail.PIECE:
        name = fields[-2].encode()
        assert len(name) <= NAME_BYTES_MAX, "names of a folder's files are short"
        assert len(fields[-1]) <= PIECE_BYTES_MAX, "files are cut to fit"
        tail = name + fields[-1]
        fields = (*fields[:-2], len(name))
    if layout.tick_at is not None:
        fields = (*fields[:-1], *fields[-1])
    fixed = layout.fixed.pack(*fields)
    head = HEADER.pack(MAGIC, VERSION, layout.kind, len(fixed) + len(tail)) + fixed
    return [head, tail] if len(tail) else [head]


class Decoder:
    """Decodes the bytes of one connection to messages. Not usable after a WireError."""

    def __init__(self, kinds: Iterable[type[Message]] | None = None) -> None:
        """`kinds` = the messages that are accepted; None = all."""
        self._kinds = None if kinds is None else frozenset(kinds)
        self._buffer = bytearray()

    def feed(self, data: Block) -> list[Message]:
        """The messages that these bytes complete. Raises WireError.

        Complete messages are decoded in place: only the frames of a message are copied, once.
        """
        if self._buffer:
            self._buffer += data
            with memoryview(self._buffer) as view:
                out, at = self._read(view)
            del self._buffer[:at]
            return out
        out, at = self._read(memoryview(data))
        self._buffer += data[at:]
        return out

    def finish(self) -> None:
        """The connection ended. Raises WireError if that was inside a message."""
        if self._buffer:
            raise WireError(f"a message is incomplete: {len(self._buffer)} bytes of it came")

    def _read(self, view: memoryview) -> tuple[list[Message], int]:
        """The complete messages at the front, and their end."""
        out: list[Message] = []
        at = 0
        while len(view) - at >= HEADER_SIZE:
            layout, size = self._head(view, at)
            end = at + HEADER_SIZE + size
            if len(view) < end:
                break
            with view[at + HEADER_SIZE : end] as body:
                out.append(_decode(layout, body))
            at = end
        return out, at

    def _head(self, view: memoryview, at: int) -> tuple[Layout, int]:
        magic, version, kind, size = HEADER.unpack_from(view, at)
        if magic != MAGIC:
            raise WireError(f"not a message: it begins with {magic:#06x}")
        if version != VERSION:
            raise WireError(f"messages of version {version}; this node speaks {VERSION}")
        layout = _BY_KIND.get(kind)
        if layout is None:
            raise WireError(f"a message of unknown kind {kind}")
        if self._kinds is not None and layout.type not in self._kinds:
            raise WireError(f"{layout.type.__name__} is not accepted here")
        if not layout.fixed.size <= size <= layout.size_max:
            bounds = f"{layout.fixed.size} to {layout.size_max}"
            raise WireError(f"{layout.type.__name__} of {size} bytes; it has {bounds}")
        return layout, size


def _decode(layout: Layout, body: memoryview) -> Message:
    fields: tuple[Any, ...] = layout.fixed.unpack_from(body)
    if layout.tick_at is not None:
        fields = (*fields[: layout.tick_at], EpochTick(*fields[layout.tick_at :]))
    if layout.tail is Tail.TABLE:
        fields = (*fields, _table(bytes(body[layout.fixed.size :])))
    elif layout.tail in (Tail.FRAMES, Tail.MAP):
        fields = (*fields, bytes(body[layout.fixed.size :]))
    elif layout.tail is Tail.NUMBERS:
        fields = (*fields, _numbers(bytes(body[layout.fixed.size :])))
    elif layout.tail is Tail.PIECE:
        fields = (*fields[:-1], *_piece(bytes(body[layout.fixed.size :]), fields[-1]))
    message: Message = layout.type(*fields)
    return message


def _piece(raw: bytes, name_size: int) -> tuple[str, bytes]:
    if name_size > min(len(raw), NAME_BYTES_MAX) or len(raw) - name_size > PIECE_BYTES_MAX:
        raise WireError("the size of a part of a file is wrong")
    try:
        return raw[:name_size].decode(), raw[name_size:]
    except UnicodeDecodeError:
        raise WireError("a file's name is not UTF-8") from None


def _numbers(raw: bytes) -> tuple[int, ...]:
    if len(raw) % _NUMBER.size:
        raise WireError("a list of numbers is cut short")
    return tuple(number for (number,) in _NUMBER.iter_unpack(raw))


def _table(raw: bytes) -> EpochEntries:
    if len(raw) % _TABLE_ENTRY.size:
        raise WireError("an epoch table is cut short")
    table = tuple(_TABLE_ENTRY.iter_unpack(raw))
    for (epoch, start), (later, behind) in itertools.pairwise(table):
        if not (epoch < later and start < behind):
            raise WireError("an epoch table is out of order")
    return table
