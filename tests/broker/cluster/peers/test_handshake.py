"""The handshake: both sides agree, and nobody without the secret gets through.

Method: both pure sides face each other; then each byte that goes over is altered, and what one side
said is sent back to it or used elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from delaylog.broker.cluster.peers import handshake
from delaylog.broker.cluster.peers.handshake import (
    CHALLENGE_SIZE,
    PROOF_SIZE,
    Handshake,
    HandshakeError,
    Identity,
    Levels,
    Refused,
    Session,
    Side,
)
from delaylog.storage.log.frames import FIRST_LEVEL

CLUSTER = b"0123456789abcdef"
KEY = bytes(range(32))
NODES = frozenset({0, 1, 2})
DIALLER = Identity(0, CLUSTER, lambda: (KEY,), NODES)
LISTENER = Identity(2, CLUSTER, lambda: (KEY,), NODES)


def sides(
    dialler: Identity = DIALLER, listener: Identity = LISTENER, nonce: bytes = b"d" * 32
) -> tuple[Handshake, Handshake]:
    return Handshake(dialler, Side.DIALS, nonce), Handshake(listener, Side.LISTENS, b"l" * 32)


def shake(
    dialler: Handshake, listener: Handshake, *, target: int = 2, flip: int | None = None
) -> tuple[Session, Session]:
    """The whole of it; `flip` = which byte of all that goes over is altered on its way."""
    passed = 0

    def over(data: bytes) -> bytes:
        nonlocal passed
        at = -1 if flip is None else flip - passed
        passed += len(data)
        if 0 <= at < len(data):
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        return data

    answer = listener.meet(over(dialler.challenge(target)))
    listener.check(over(dialler.answer(over(answer))))
    return dialler.session(), listener.session()


@contextmanager
def refused(reason: Refused, text: str | None = None) -> Iterator[None]:
    """One side closes, for this reason."""
    with pytest.raises(HandshakeError, match=text) as caught:
        yield
    assert caught.value.reason is reason


def test_both_agree() -> None:
    """Each knows who is there, and each direction has a key of its own."""
    one, other = shake(*sides())
    assert (one.peer, other.peer) == (2, 0)
    assert one.send_key == other.receive_key
    assert one.receive_key == other.send_key
    assert one.send_key != one.receive_key
    assert KEY not in (one.send_key, one.receive_key)


def test_each_connection_has_its_own_keys() -> None:
    """One nonce of the two is enough."""
    first, _ = shake(*sides())
    second, _ = shake(*sides(nonce=b"e" * 32))
    assert len({first.send_key, first.receive_key, second.send_key, second.receive_key}) == 4


def levelled(identity: Identity, known: int, reached: int = FIRST_LEVEL) -> Identity:
    return replace(identity, levels=lambda: Levels(known, reached))


def test_each_announces_the_feature_levels_that_it_knows() -> None:
    """Known bytes at the end of the nonce, which the proofs cover."""
    dialler, listener = sides(levelled(DIALLER, 6, 5), levelled(LISTENER, 5, 5))
    assert dialler.challenge(2)[-8:].hex() == b"DLlevl".hex() + "0605"
    shake(dialler, listener)
    assert listener.peer_levels == Levels(6, 5)
    assert dialler.peer_levels == Levels(5, 5)


@pytest.mark.parametrize("known", [FIRST_LEVEL, FIRST_LEVEL + 1])
def test_a_node_that_does_not_know_the_level_of_the_log_is_refused_by_name(known: int) -> None:
    """By either side, whichever of them has the log."""
    older = (levelled(DIALLER, known), levelled(LISTENER, 6, 6))
    with refused(Refused.VERSION, r"runs an older delaylog.*at 6"):
        shake(*sides(*older))
    newer = (levelled(DIALLER, 6, 6), levelled(LISTENER, known))
    with pytest.raises(HandshakeError, match=r"runs a newer delaylog.*feature level 6"):
        shake(*sides(*newer))


def test_a_node_that_announces_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As release 0.1.0 does."""
    monkeypatch.setattr(handshake, "announce", lambda nonce, levels: nonce)
    with refused(Refused.VERSION, r"runs an older delaylog"):
        shake(*sides())


def test_known_bytes() -> None:
    """A change of the layout is deliberate."""
    dialler, listener = sides(levelled(DIALLER, 4), levelled(LISTENER, 4))
    challenge = dialler.challenge(2)
    assert challenge.hex() == (
        "444c5052 01 01 0000 0200 0000 00000000".replace(" ", "")
        + CLUSTER.hex()
        + "64" * 24
        + "444c6c65766c0404"
    )
    answer = listener.meet(challenge)
    assert answer[:32].hex() == (
        "444c5052 01 02 0200 0000 0000 00000000".replace(" ", "") + CLUSTER.hex()
    )
    assert len(answer) == CHALLENGE_SIZE + PROOF_SIZE
    assert answer[CHALLENGE_SIZE:].hex() == (
        "088ad8f5141ad70758ce42945ea38ea857a5b71067c4333c9948d50a16ecbffd"
    )
    assert dialler.answer(answer).hex() == (
        "21d333cba2735c53d86c66adaf428d8d1f9b5f7e9c1e1ea25c681902b5925b6a"
    )
    assert dialler.session().send_key.hex() == (
        "e624e9cbefdba7c45e97152ff5ed68f6aca737f743603358e0812cd96897a4d2"
    )


@pytest.mark.parametrize("flip", range(2 * CHALLENGE_SIZE + 2 * PROOF_SIZE))
def test_altered_byte(flip: int) -> None:
    """Whichever byte is altered, somebody closes."""
    with pytest.raises(HandshakeError):
        shake(*sides(), flip=flip)


A, B = bytes([1]) * 32, bytes([2]) * 32


@pytest.mark.parametrize(
    ("one", "other"),
    # The steps of an exchange, in which two nodes are in one step or in two that follow.
    [((A,), (A, B)), ((A, B), (A, B)), ((A, B), (B, A)), ((B, A), (B, A)), ((B, A), (B,))],
)
@pytest.mark.parametrize("turned", [False, True])
def test_an_exchange_of_keys(
    one: tuple[bytes, ...], other: tuple[bytes, ...], *, turned: bool
) -> None:
    dials, listens = (other, one) if turned else (one, other)
    two = sides(replace(DIALLER, keys=lambda: dials), replace(LISTENER, keys=lambda: listens))
    first, second = shake(*two)
    assert first.send_key == second.receive_key


@pytest.mark.parametrize(("dials", "listens"), [((A,), (B,)), ((A,), (B, A)), ((B,), (A, B))])
def test_a_skipped_step_is_refused(dials: tuple[bytes, ...], listens: tuple[bytes, ...]) -> None:
    """The dialler does not know the key that the listener uses."""
    two = sides(replace(DIALLER, keys=lambda: dials), replace(LISTENER, keys=lambda: listens))
    with refused(Refused.KEY):
        shake(*two)


def test_wrong_key() -> None:
    """The listener proves itself first, so it is the dialler that sees it."""
    with refused(Refused.KEY, "node 2 does not know the secret"):
        shake(*sides(listener=replace(LISTENER, keys=lambda: (bytes(32),))))


def test_listener_checks_too() -> None:
    """A dialler that makes something up."""
    dialler, listener = sides()
    listener.meet(dialler.challenge(2))
    for proof in (bytes(32), b"", b"x" * 31):
        with refused(Refused.KEY):
            listener.check(proof)


def test_own_proof_sent_back() -> None:
    """What the listener proved with is no proof of a dialler."""
    dialler, listener = sides()
    proof = listener.meet(dialler.challenge(2))[CHALLENGE_SIZE:]
    with refused(Refused.KEY):
        listener.check(proof)


def test_own_challenge_sent_back() -> None:
    """A dialler does not take itself for the listener, whatever stands behind."""
    dialler, _ = sides()
    with refused(Refused.GARBAGE):
        dialler.answer(dialler.challenge(2) + bytes(PROOF_SIZE))


def test_answers_of_another_connection() -> None:
    """A listener made to prove something for one connection proves nothing on another."""
    first, listener = sides()
    answer = listener.meet(first.challenge(2))
    second, _ = sides(nonce=b"e" * 32)
    second.challenge(2)
    with refused(Refused.KEY):
        second.answer(answer)


def test_relayed_through_the_dialled() -> None:
    """A node in the middle gets a proof from the one it dials, but not for its own connection."""
    middle = Handshake(replace(DIALLER, node=1), Side.LISTENS, b"m" * 32)
    dialler, listener = sides()
    challenge = dialler.challenge(2)
    answer = listener.meet(challenge)
    with refused(Refused.NODE):
        middle.meet(challenge)
    other = Handshake(DIALLER, Side.DIALS, b"d" * 32)
    other.challenge(1)
    with refused(Refused.NODE):
        other.answer(answer)


@pytest.mark.parametrize(
    ("dialler", "target", "reason", "text"),
    [
        (replace(DIALLER, cluster_id=b"x" * 16), 2, Refused.CLUSTER, "another cluster"),
        (DIALLER, 1, Refused.NODE, "looks for node 1"),
        (
            Identity(5, CLUSTER, lambda: (KEY,), frozenset({5})),
            2,
            Refused.NODE,
            "there is no node 5",
        ),
        (
            Identity(2, CLUSTER, lambda: (KEY,), NODES),
            2,
            Refused.NODE,
            "another process runs as node 2",
        ),
        (Identity(3, CLUSTER, lambda: (KEY,), NODES), 2, Refused.WAY, "has to be dialled"),
    ],
)
def test_who_does_not_belong(dialler: Identity, target: int, reason: Refused, text: str) -> None:
    """Another cluster, another target, an unknown node, itself, one that has to be dialled."""
    listener = replace(LISTENER, members=NODES | {3})
    one, other = sides(dialler, listener)
    with refused(reason, text):
        other.meet(one.challenge(target))


@pytest.mark.parametrize(
    ("at", "reason"),
    [(0, Refused.GARBAGE), (4, Refused.VERSION), (10, Refused.GARBAGE), (12, Refused.GARBAGE)],
)
def test_reasons_of_bad_fields(at: int, reason: Refused) -> None:
    dialler, listener = sides()
    data = bytearray(dialler.challenge(2))
    data[at] ^= 2
    with refused(reason):
        listener.meet(bytes(data))


def test_nothing_tells_the_key() -> None:
    """Not even a log of these values."""
    one, _ = shake(*sides())
    assert repr(DIALLER) == "Identity(node=0)"
    assert repr(one) == "Session(peer=2)"
