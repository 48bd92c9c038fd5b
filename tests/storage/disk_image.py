"""Images of files and folders: what programs see, what is durable, and the journal between them.

Every change goes into the written image at once and into a journal; a sync replays the journal
into the durable image and empties it. A crash decides, operation by operation and sector by
sector, how much of each journal had reached the disk all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

SECTOR_SIZE = 512
PAGE_SIZE = 4096


class Image:
    """Bytes of a file: pages that were written, and a size. What was never written is zero."""

    def __init__(self) -> None:
        self.size = 0
        self.pages: dict[int, bytearray] = {}

    def copy(self) -> Image:
        out = Image()
        out.size = self.size
        out.pages = {number: bytearray(page) for number, page in self.pages.items()}
        return out

    def read(self, size: int, offset: int) -> bytes:
        end = min(offset + size, self.size)
        parts = []
        while offset < end:
            number, at = divmod(offset, PAGE_SIZE)
            count = min(PAGE_SIZE - at, end - offset)
            page = self.pages.get(number)
            parts.append(bytes(count) if page is None else bytes(page[at : at + count]))
            offset += count
        return b"".join(parts)

    def write(self, data: bytes, offset: int) -> None:
        self.size = max(self.size, offset + len(data))
        done = 0
        while done < len(data):
            number, at = divmod(offset + done, PAGE_SIZE)
            count = min(PAGE_SIZE - at, len(data) - done)
            page = self.pages.setdefault(number, bytearray(PAGE_SIZE))
            page[at : at + count] = data[done : done + count]
            done += count

    def truncate(self, size: int) -> None:
        if size < self.size:
            last, at = divmod(size, PAGE_SIZE)
            for number in [n for n in self.pages if n > last or (n == last and at == 0)]:
                del self.pages[number]
            if at and last in self.pages:
                self.pages[last][at:] = bytes(PAGE_SIZE - at)
        self.size = size


@dataclass(frozen=True, slots=True)
class Write:
    """An unsynced write; `number` is the operation of the disk that made it."""

    number: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """An unsynced change of size."""

    number: int
    size: int


def _flipped(data: bytes, bit: int) -> bytes:
    if not 0 <= bit < len(data) * 8:
        return data
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@dataclass(slots=True)
class FileNode:
    """A file: two images and what lies between them."""

    written: Image = field(default_factory=Image)
    durable: Image = field(default_factory=Image)
    journal: list[Write | Truncate] = field(default_factory=list)

    def write(self, number: int, data: bytes, offset: int) -> None:
        self.written.write(data, offset)
        self.journal.append(Write(number, offset, data))

    def truncate(self, number: int, size: int) -> None:
        self.written.truncate(size)
        self.journal.append(Truncate(number, size))

    def sync(self) -> None:
        """Bring everything since the last sync to the disk."""
        for change in self.journal:
            if isinstance(change, Write):
                self.durable.write(change.data, change.offset)
            else:
                self.durable.truncate(change.size)
        self.journal.clear()

    def lose(self) -> None:
        """A failed sync: pages are clean now, so that no later sync will write them."""
        self.journal.clear()

    def flip(self, bit: int) -> None:
        """Rot of one bit, wherever it is kept."""
        changes = [
            Write(c.number, c.offset, _flipped(c.data, bit - c.offset * 8))
            if isinstance(c, Write)
            else c
            for c in self.journal
        ]
        self.journal[:] = changes
        for image in (self.written, self.durable):
            byte = image.read(1, bit // 8)
            if byte:
                image.write(_flipped(byte, bit % 8), bit // 8)

    def settle(self, keep: Callable[[int], int | None], keep_sector: Callable[[int], bool]) -> None:
        """After a crash: the durable image plus what survived is all there is.

        `keep(number)` says how much of an operation is kept: None = each sector on its own
        (asked by `keep_sector`), else that many bytes of it.
        """
        image = self.durable
        for change in self.journal:
            bound = keep(change.number)
            if isinstance(change, Truncate):
                if bound is None:
                    bound = int(keep_sector(change.number))
                if bound:
                    image.truncate(change.size)
                continue
            if bound is not None:
                if bound:
                    image.write(change.data[:bound], change.offset)
                continue
            at = 0
            while at < len(change.data):
                count = SECTOR_SIZE - (change.offset + at) % SECTOR_SIZE
                if keep_sector(change.number):
                    image.write(change.data[at : at + count], change.offset + at)
                at += count
        self.journal.clear()
        self.written = image.copy()


@dataclass(slots=True, eq=False)
class Move:
    """A rename from one folder to another: both sides are durable, or neither is."""

    sides: tuple[FolderNode, FolderNode]
    kept: int | None = None

    def land(self, synced: FolderNode) -> None:
        """One side was synced, so the other is durable too."""
        (other,) = (side for side in self.sides if side is not synced)
        for link in [link for link in other.journal if link.move is self]:
            link.apply(other.durable)
            other.journal.remove(link)


@dataclass(frozen=True, slots=True)
class Link:
    """An unsynced change of a folder: names that go, and one that comes."""

    number: int
    gone: tuple[str, ...]
    name: str | None = None
    node: FileNode | FolderNode | None = None
    move: Move | None = None

    def apply(self, entries: dict[str, FileNode | FolderNode]) -> None:
        for name in self.gone:
            entries.pop(name, None)
        if self.name is not None and self.node is not None:
            entries[self.name] = self.node


@dataclass(slots=True)
class FolderNode:
    """A folder: its entries as seen, as durable, and the changes between."""

    written: dict[str, FileNode | FolderNode] = field(default_factory=dict)
    durable: dict[str, FileNode | FolderNode] = field(default_factory=dict)
    journal: list[Link] = field(default_factory=list)

    def change(self, link: Link) -> None:
        link.apply(self.written)
        self.journal.append(link)

    def sync(self) -> None:
        for link in self.journal:
            link.apply(self.durable)
            if link.move is not None:
                link.move.land(self)
        self.journal.clear()

    def settle(self, keep: Callable[[int], int | None], keep_sector: Callable[[int], bool]) -> None:
        """After a crash, for this folder and all that is left in it."""
        for link in self.journal:
            bound = keep(link.number) if link.move is None else link.move.kept
            if bound is None:
                bound = keep(link.number)
            if bound is None:
                bound = int(keep_sector(link.number))
            if link.move is not None:
                link.move.kept = int(bool(bound))
            if bound:
                link.apply(self.durable)
        self.journal.clear()
        self.written = dict(self.durable)
        for node in self.written.values():
            node.settle(keep, keep_sector)
