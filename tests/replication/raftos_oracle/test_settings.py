"""Settings: no weak secret, no cipher but one made from it, timing that fits together, addresses.

Addresses of members are numeric, different, and as many as a cluster may have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.fernet import InvalidToken

from delaylog.replication.errors import ClusterError
from delaylog.replication.raftos_oracle.settings import (
    SAMPLE_SECRET,
    Address,
    Cryptors,
    ElectionTiming,
    Roster,
    make_cryptor,
)
from tests.replication.raftos_oracle.cluster import CLUSTER_ID, SECRET, settings


@pytest.mark.parametrize(
    ("own", "what"),
    [
        ({"secret": b""}, "the secret is missing"),
        ({"secret": SECRET[:31]}, "has 31 bytes, at least 32"),
        ({"secret": b"raftos sample secret key"}, "the published sample"),
        ({"cluster_id": b"short"}, "16 bytes"),
        ({"listen": ("localhost", 1)}, "the address to listen on"),
    ],
)
def test_what_is_refused(own: dict[str, Any], what: str) -> None:
    with pytest.raises(ClusterError, match=what):
        settings(**own)


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(settings())
    assert settings(listen=("0.0.0.0", 7_001)).listen == ("0.0.0.0", 7_001)
    assert SAMPLE_SECRET == b"raftos sample secret key"


def test_the_cipher_is_made_from_the_secret_and_the_cluster() -> None:
    """raftos keeps the cipher of its sample when it is only told another secret."""
    sealed = make_cryptor(SECRET, CLUSTER_ID).encrypt(b"word")
    assert make_cryptor(SECRET, CLUSTER_ID).decrypt(sealed) == b"word"
    others = [(SECRET, bytes(16)), (b"y" * 32, CLUSTER_ID), (SAMPLE_SECRET, b"raftos sample salt")]
    for secret, cluster_id in others:
        with pytest.raises(InvalidToken):
            make_cryptor(secret, cluster_id).decrypt(sealed)


def test_an_exchange_of_the_secret() -> None:
    """The first encrypts and each decrypts, also after the secrets have changed."""
    present = [SECRET]
    mine = Cryptors(settings(secrets=lambda: tuple(present)))
    before = mine.encrypt(b"word")
    present.insert(0, b"y" * 32)
    assert mine.decrypt(before) == b"word"
    sealed = mine.encrypt(b"word")
    assert make_cryptor(b"y" * 32, CLUSTER_ID).decrypt(sealed) == b"word"
    present.remove(SECRET)
    assert mine.decrypt(sealed) == b"word"
    with pytest.raises(InvalidToken):
        mine.decrypt(before)


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_ms": 0},
        {"heartbeat_ms": 100},
        {"step_down_ms": 300},
        {"election_max_ms": 250},
        {"transfer_deadline_ms": 50},
    ],
)
def test_timing_fits_together(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        replace(ElectionTiming(), **wrong)


# --------------------------------------------------------------------------- members


A, B, C = ("10.0.0.1", 7_001), ("10.0.0.2", 7_001), ("127.0.0.1", 65_535)


def test_names_and_indexes() -> None:
    roster = Roster(3, {1: A, 3: B, 7: C})
    assert roster.address == B
    assert roster.others == (1, 7)
    assert roster.id_of(7) == "127.0.0.1:65535"
    assert [roster.index_of(roster.id_of(index)) for index in (1, 3, 7, 9)] == [1, 3, 7, 9]


@pytest.mark.parametrize(
    ("addresses", "what"),
    [
        ({0: A}, "nothing to elect"),
        ({1: A, 2: B, 3: C}, "node 0 is not among"),
        ({0: A, 1: B, 2: B}, "the same UDP address"),
        ({0: A, 1: B, 2: ("localhost", 1)}, "node 2 needs a numeric IPv4 host, not 'localhost'"),
        ({0: A, 1: B, 2: ("::1", 1)}, "numeric"),
        ({0: A, 1: B, 2: ("010.0.0.3", 1)}, "numeric"),
        ({0: A, 1: B, 2: ("0.0.0.0", 1)}, "no single machine's"),
        ({0: A, 1: B, 2: ("224.0.0.1", 1)}, "no single machine's"),
        ({0: A, 1: B, 2: ("255.255.255.255", 1)}, "no single machine's"),
        ({0: A, 1: B, 2: ("10.0.0.3", 0)}, "a port from 1 to 65535, not 0"),
        ({0: A, 1: B, 2: ("10.0.0.3", 65_536)}, "port"),
        ({0: A, 1: B, 2: ("10.0.0.3", True)}, "port"),
    ],
)
def test_what_cannot_work(addresses: dict[int, Address], what: str) -> None:
    with pytest.raises(ClusterError, match=what):
        Roster(0, addresses)
