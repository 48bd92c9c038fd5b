"""Effects in pieces: their bytes, and what becomes of pieces that are never made whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import pytest

from delaylog.broker.engine.keyspace.keyspace_part import PIECE_SIZE, Pieces, cut, piece_of
from delaylog.storage.errors import CorruptionError

EFFECTS = [[b"SET", b"key", b"value" * 10]]
PACKED: bytes = msgpack.packb(EFFECTS)


def payloads(packed: bytes, most: int) -> list[bytes]:
    return [b"".join(bytes(part) for part in blocks) for blocks in cut(packed, most)]


def take(pieces: Pieces, some: Sequence[bytes], epoch: int = 5) -> list[list[list[bytes]]]:
    return [pieces.take(one, epoch, path="log", position=9) for one in some]


def test_the_bytes() -> None:
    assert payloads(b"abcdefghijklmnop", 16) == [b"abcdefghijklmnop"], "what fits is left alone"
    cuts = payloads(b"abcdefghijklmnopq", 16)
    assert cuts == [
        b"\xc1\0\0\0" + b"\0\0\0\0" + b"\5\0\0\0" + b"abcd",
        b"\xc1\0\0\0" + b"\1\0\0\0" + b"\5\0\0\0" + b"efgh",
        b"\xc1\0\0\0" + b"\2\0\0\0" + b"\5\0\0\0" + b"ijkl",
        b"\xc1\0\0\0" + b"\3\0\0\0" + b"\5\0\0\0" + b"mnop",
        b"\xc1\0\0\0" + b"\4\0\0\0" + b"\5\0\0\0" + b"q",
    ]
    assert [piece_of(one) for one in cuts] == [(index, 5) for index in range(5)]
    assert piece_of(PACKED) is None


@pytest.mark.parametrize("most", [PIECE_SIZE + 1, PIECE_SIZE + 7, len(PACKED) - 1, len(PACKED)])
def test_nothing_counts_before_the_last(most: int) -> None:
    pieces = Pieces()
    cuts = payloads(PACKED, most)
    assert all(len(one) <= most for one in cuts)
    for _ in range(2):
        *before, last = take(pieces, cuts)
        assert before == [[]] * (len(cuts) - 1)
        assert last == EFFECTS
        assert not pieces.begun


def test_what_another_leader_began_is_forgotten() -> None:
    cuts = payloads(PACKED, 30)
    for what in ("an epoch", "a whole one", "pieces"):
        pieces = Pieces()
        take(pieces, cuts[:-1])
        assert pieces.begun
        if what == "an epoch":
            pieces.begin_epoch(5)
            assert pieces.begun, "its own"
            pieces.begin_epoch(6)
            assert not pieces.begun
        elif what == "a whole one":
            assert take(pieces, [PACKED], 6) == [EFFECTS]
        assert take(pieces, cuts, 6)[-1] == EFFECTS


def test_pieces_stand_behind_each_other() -> None:
    first, second, third = payloads(PACKED, PIECE_SIZE + len(PACKED) // 3 + 1)
    for wrong in ([second], [first, third], [first, first], [first, PACKED]):
        with pytest.raises(CorruptionError, match="some are missing in log at 9"):
            take(Pieces(), wrong)
    pieces = Pieces()
    take(pieces, [first])
    with pytest.raises(CorruptionError):
        take(pieces, [second], 6)
