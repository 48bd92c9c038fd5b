"""Verify the id index: LMDB's file page by page, without LMDB, which trusts its bytes.

The newer of the two meta pages names two trees: the ids, and the pages that are free. Every page
below the last one must be in exactly one of ids, free tree and free list; counts must be the
meta page's; keys must ascend, inside a page and between the separators above it; every value
must carry its checksum. The layout is that of LMDB 0.9 on little-endian machines of 64 bits:

    page    0 number u64 | 8 pad u16 | 10 flags u16 | 12 lower u16 | 14 upper u16 | node offsets u16
    node    0 low u16 | 2 high u16 | 4 flags u16 | 6 key size u16 | key | data of a leaf's node
    meta    16 magic u32 | 20 version u32 | 24 address u64 | 32 map size u64 | 40 free tree
            88 ids' tree | 136 last page u64 | 144 transaction u64
    tree    0 pad u32 | 4 flags u16 | 6 depth u16 | 8 branches u64 | 16 leaves u64
            24 overflows u64 | 32 entries u64 | 40 root u64

What is not looked at says nothing: free pages, gaps inside pages, the older meta page's trees.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final

from delaylog.storage.file_system import File
from delaylog.storage.id_index import MAP_SIZE, POSITION_KEY, decode_ref

PAGE_SIZE: Final = 4096
_PAGE: Final = struct.Struct("<QHHHH")
_NODE: Final = struct.Struct("<HHHH")
_META: Final = struct.Struct("<IIQQ")
_TREE: Final = struct.Struct("<IHHQQQQQ")
_ENDS: Final = struct.Struct("<QQ")
assert _PAGE.size == 16
assert _NODE.size == 8
assert _TREE.size == 48
_MAGIC: Final = 0xBEEFC0DE
_BRANCH, _LEAF, _OVERFLOW, _META_FLAG = 1, 2, 4, 8
_BIG_DATA: Final = 1
_NO_PAGE: Final = 2**64 - 1
_INTEGER_KEY: Final = 8
_KEY_SIZE: Final = 12
_DEPTH_MAX: Final = 32


class BadPageError(Exception):
    """A page is not what LMDB writes. Facts: the page's number, and what is wrong."""

    def __init__(self, page: int, what: str) -> None:
        self.page = page
        self.what = what
        super().__init__(what)


@dataclass(frozen=True, slots=True)
class _Tree:
    pad: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int


@dataclass(frozen=True, slots=True)
class _Meta:
    page: int
    free: _Tree
    ids: _Tree
    last_page: int
    transaction: int


def verify_ids(file: File, wanted_position: int) -> Generator[None, None, int]:
    """Check the whole file, yielding now and then; returns how many ids it holds.

    `wanted_position` is the newest checkpoint's: ids of frames below it must be there. Raises
    BadPageError for the first thing that is wrong.
    """
    metas = [_meta(file, number) for number in range(2)]
    newest = max(metas, key=lambda meta: meta.transaction)
    older = metas[1 - newest.page]
    if newest.transaction - older.transaction != min(newest.transaction, 1):
        raise BadPageError(older.page, "its transaction is not the one before the other's")
    if newest.page != newest.transaction % 2:
        raise BadPageError(newest.page, "a transaction that belongs to the other meta page")
    if (newest.last_page + 1) * PAGE_SIZE > file.size():
        raise BadPageError(newest.page, "its last page lies behind the end of the file")
    walks = []
    for tree in (newest.free, newest.ids):
        walk = _Walk(file, newest, tree)
        yield from walk.run(position=wanted_position if tree is newest.ids else None)
        walks.append(walk)
    used = sorted([0, 1, *walks[0].pages, *walks[1].pages, *walks[0].freed])
    for number, page in enumerate(used):
        if page != number:
            where = min(page, number)
            raise BadPageError(where, "a page that is used twice, or not at all")
    if len(used) != newest.last_page + 1:
        raise BadPageError(newest.page, f"{len(used)} pages of {newest.last_page + 1} are used")
    return max(newest.ids.entries - 1, 0)


def read_ids(file: File) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of every entry, by key. Raises BadPageError where a page cannot be read."""
    newest = max((_meta(file, number) for number in range(2)), key=lambda meta: meta.transaction)
    found: list[tuple[bytes, bytes]] = []
    walk = _Walk(file, newest, newest.ids, lambda key, data: found.append((key, data)))
    for _ in walk.run(position=None):
        yield from found
        found.clear()


def _meta(file: File, number: int) -> _Meta:
    raw = file.pread(PAGE_SIZE, number * PAGE_SIZE)
    if len(raw) < PAGE_SIZE:
        raise BadPageError(number, "the file is too short")
    page, _, flags, _, _ = _PAGE.unpack_from(raw)
    magic, version, address, map_size = _META.unpack_from(raw, 16)
    free, ids = (_Tree(*_TREE.unpack_from(raw, at)) for at in (40, 88))
    last_page, transaction = _ENDS.unpack_from(raw, 136)
    # Page size and flags of the environment stand in the free tree's pad and flags.
    sound = (
        (page, flags, magic, version, address) == (number, _META_FLAG, _MAGIC, 1, 0)
        and map_size >= MAP_SIZE
        and map_size.bit_count() == 1
        and (free.pad, free.flags, ids.pad, ids.flags) == (PAGE_SIZE, _INTEGER_KEY, 0, 0)
    )
    if not sound:
        raise BadPageError(number, "not a meta page of this index")
    return _Meta(number, free, ids, last_page, transaction)


class _Walk:
    """One pass over one tree."""

    def __init__(
        self,
        file: File,
        meta: _Meta,
        tree: _Tree,
        take: Callable[[bytes, bytes], None] | None = None,
    ) -> None:
        self._file = file
        self._meta = meta
        self._tree = tree
        self._is_free = tree is meta.free
        self._take = take
        """Who wants the entries, instead of having them checked."""
        self.pages: list[int] = []
        self.freed: list[int] = []
        self._counts = {_BRANCH: 0, _LEAF: 0, _OVERFLOW: 0}
        self._entries = 0
        self._last_key: bytes | None = None
        self._position: int | None = None

    def run(self, *, position: int | None) -> Generator[None, None, None]:
        tree, meta_page = self._tree, self._meta.page
        if tree.depth > _DEPTH_MAX:
            raise BadPageError(meta_page, f"a tree of {tree.depth} levels")
        if tree.root != _NO_PAGE:
            yield from self._page(tree.root, tree.depth, b"", None)
        elif tree.depth:
            raise BadPageError(meta_page, "a tree without a root")
        found = (*self._counts.values(), self._entries)
        if found != (tree.branches, tree.leaves, tree.overflows, tree.entries):
            raise BadPageError(meta_page, "counts that are not those of the tree")
        if position is not None and (self._position or 0) < position:
            what = f"ids up to position {self._position or 0}, the checkpoint is at {position}"
            raise BadPageError(meta_page, what)

    def _read(self, number: int, count: int = 1) -> bytes:
        if not 2 <= number <= self._meta.last_page + 1 - count:
            raise BadPageError(self._meta.page, f"a pointer to page {number}")
        raw = self._file.pread(count * PAGE_SIZE, number * PAGE_SIZE)
        if _PAGE.unpack_from(raw)[0] != number:
            raise BadPageError(number, "a page with another's number")
        self.pages += range(number, number + count)
        if len(self.pages) > self._meta.last_page:
            raise BadPageError(number, "more pages in the tree than in the file")
        return raw

    def _page(
        self, number: int, level: int, low: bytes, high: bytes | None
    ) -> Generator[None, None, None]:
        """A page whose keys lie in [low, high); `level` is 1 at the leaves."""
        raw = self._read(number)
        _, _, flags, lower, upper = _PAGE.unpack_from(raw)
        kind = _LEAF if level == 1 else _BRANCH
        if flags != kind or lower % 2 or not _PAGE.size <= lower <= upper <= PAGE_SIZE:
            raise BadPageError(number, "not a page of this level")
        self._counts[kind] += 1
        nodes = list(self._nodes(number, raw, lower, upper, kind))
        if kind == _LEAF:
            for key, data in nodes:
                self._order(number, key, low, high)
                self._entry(number, key, data)
            yield
            return
        if len(nodes) < 2:
            raise BadPageError(number, "a branch that does not branch")
        # The first separator of a branch is never compared: it stands for `low`.
        lows = [low, *(key for key, _ in nodes[1:])]
        highs: list[bytes | None] = [*lows[1:], high]
        children = [int.from_bytes(data, "little") for _, data in nodes]
        for child, first, last in zip(children, lows, highs, strict=True):
            if last is not None and self._rank(first) >= self._rank(last):
                raise BadPageError(number, "separators that do not ascend")
            yield from self._page(child, level - 1, first, last)

    def _nodes(
        self, number: int, raw: bytes, lower: int, upper: int, kind: int
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, data) of each node; of a branch, data is the child's number."""
        count = (lower - _PAGE.size) // 2
        taken = 0
        for at in struct.unpack_from(f"<{count}H", raw, _PAGE.size):
            if not upper <= at <= PAGE_SIZE - _NODE.size or at % 2:
                raise BadPageError(number, "a node outside its page")
            low, high, flags, key_size = _NODE.unpack_from(raw, at)
            body = at + _NODE.size
            key = raw[body : body + key_size]
            end = body + key_size
            if kind == _BRANCH:
                data = struct.pack("<HHH", low, high, flags)
            else:
                size = low | high << 16
                if flags == _BIG_DATA:
                    (first,) = struct.unpack_from("<Q", raw[: end + 8].ljust(end + 8), end)
                    data, end = self._overflow(first, size), end + 8
                elif flags == 0:
                    data, end = raw[end : end + size], end + size
                else:
                    raise BadPageError(number, f"a node with flags {flags}")
            if end > PAGE_SIZE:
                raise BadPageError(number, "a node outside its page")
            taken += end - at + (end - at) % 2
            yield key, data
        if taken != PAGE_SIZE - upper:
            raise BadPageError(number, "nodes that do not fill their place")

    def _overflow(self, number: int, size: int) -> bytes:
        count = -(-(size + _PAGE.size) // PAGE_SIZE)
        raw = self._read(number, count)
        _, _, flags, low, high = _PAGE.unpack_from(raw)
        if flags != _OVERFLOW or low | high << 16 != count:
            raise BadPageError(number, "not the first of its overflow pages")
        self._counts[_OVERFLOW] += count
        return raw[_PAGE.size : _PAGE.size + size]

    def _rank(self, key: bytes) -> tuple[int, bytes]:
        """Keys of the free tree are numbers, others compare as bytes."""
        return (int.from_bytes(key, "little"), b"") if self._is_free else (0, key)

    def _order(self, number: int, key: bytes, low: bytes, high: bytes | None) -> None:
        rank = self._rank(key)
        last = self._last_key
        if (
            rank < self._rank(low)
            or (high is not None and rank >= self._rank(high))
            or (last is not None and rank <= self._rank(last))
        ):
            raise BadPageError(number, "keys that do not ascend")
        self._last_key = key

    def _entry(self, number: int, key: bytes, data: bytes) -> None:
        self._entries += 1
        if self._take is not None:
            self._take(key, data)
            return
        if self._is_free:
            self._free_pages(number, key, data)
            return
        ref = decode_ref(key, data)
        if ref is None or (key != POSITION_KEY and len(key) != _KEY_SIZE):
            raise BadPageError(number, f"the value of {key.hex()} is not the one written")
        if key == POSITION_KEY:
            self._position = ref

    def _free_pages(self, number: int, key: bytes, data: bytes) -> None:
        """A list of the pages that a transaction freed: their count, then they, descending."""
        words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        if len(key) != 8 or not words:
            raise BadPageError(number, "not a list of free pages")
        count, pages = words[0], words[1:]
        if count > len(pages) or int.from_bytes(key, "little") > self._meta.transaction:
            raise BadPageError(number, "not a list of free pages")
        self.freed += pages[:count]
        if any(not 2 <= page <= self._meta.last_page for page in pages[:count]):
            raise BadPageError(number, "a free page outside the file")
