"""The bytes of what is staged, decided and remembered are pinned; what is packed comes back."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.log.payloads import (
    PART,
    EndedTransaction,
    PublishDecision,
    SendDecision,
    StagedPart,
    checksum,
    unpack,
    wire_of,
)


def test_a_part_of_a_checkpoint() -> None:
    part = np.zeros(1, PART)
    part[0] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 0)
    assert part.tobytes().hex() == (
        "0100000000000000020000000000000003000000040000000500000006000000"
        "07000000080000000900000000000000"
    )


def test_an_ended_one() -> None:
    ended = EndedTransaction("aborted", 2, 3, 4, 5, (6, 7, 8, 9, 10), -11, 12)
    raw = ended.encode()
    assert raw.hex() == (
        "0200000002000000"
        "030000000000000004000000000000000500000000000000"
        "06000000000000000700000000000000080000000000000009000000000000000a00000000000000"
        "00000000000000000000000000000000"
        "f5ffffffffffffff0c00000000000000"
    )
    assert EndedTransaction.decode(raw) == ended


def test_a_staged_part() -> None:
    part = StagedPart(1, "p", 2, 2**64 - 1, 3, 4, 5, checksum(b"columns"), 6)
    payload = b"".join(part.encode(b"columns"))
    head, tail = unpack(payload)
    assert StagedPart.decode(head) == part
    assert bytes(tail) == bytes(wire_of(payload)) == b"columns"


@pytest.mark.parametrize("send", [None, SendDecision(1, 2, 3, -1, 10, np.array([1, 2]))])
def test_a_range_that_is_published(send: SendDecision | None) -> None:
    decision = PublishDecision(1, 2, 3, 4, 5, (1, 0, 0, 0, 0), send)
    found = PublishDecision.decode(b"".join(decision.encode()))
    if send is not None:
        assert found.send is not None
        assert found.send.accepted.tolist() == [1, 2]
        found.send.accepted = send.accepted
    assert found == decision or found.send is not None
