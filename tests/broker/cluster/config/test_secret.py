"""The secret: both ways to write it, what is refused, and keys derived as RFC 5869 says.

Method: known bytes; a table of bad ones. No error may repeat what it was given.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from delaylog.broker.cluster.config import (
    ClusterSecret,
    KeyUse,
    derive_key,
    parse_secrets,
    read_secrets,
)
from delaylog.replication.errors import ClusterError

GOOD = bytes(range(7, 7 + 33))


OTHER = bytes(range(200, 240))
LONG = bytes(range(96))
ODD = bytes([0xFB, 0xEF, 0xFF] * 4) + bytes(range(30))


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        (GOOD.hex(), (GOOD,)),
        (GOOD.hex().upper(), (GOOD,)),
        (f"  {GOOD.hex()[:20]}\n{GOOD.hex()[20:]}\n", (GOOD,)),
        (base64.b64encode(GOOD).decode(), (GOOD,)),
        (base64.urlsafe_b64encode(GOOD).decode().rstrip("="), (GOOD,)),
        (base64.urlsafe_b64encode(ODD).decode(), (ODD,)),
        (base64.b64encode(ODD).decode(), (ODD,)),
        (f"{GOOD.hex()}\n{OTHER.hex()}\n", (GOOD, OTHER)),
        (f"{OTHER.hex()}\r\n\r\n{GOOD.hex()}", (OTHER, GOOD)),
        (f"{base64.b64encode(GOOD).decode()}\n{OTHER.hex()}", (GOOD, OTHER)),
        # One secret that a program has wrapped.
        (f"{GOOD.hex()[:60]}\n{GOOD.hex()[60:]}", (GOOD,)),
        (base64.encodebytes(LONG[:60]).decode(), (LONG[:60],)),
    ],
)
def test_ways_to_write_it(text: str, secrets: tuple[bytes, ...]) -> None:
    """Hex or base64, of either alphabet, wherever lines break. Two lines are two secrets; one that
    was wrapped is one.
    """
    assert parse_secrets(text, "here") == secrets


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; make one with"),
        (" \n", "is empty"),
        (GOOD[:31].hex(), "has 31 bytes, it needs 32; make one with"),
        (base64.b64encode(GOOD[:31]).decode(), "has 31 bytes"),
        ("correct horse battery staple!", "neither hex nor base64"),
        ("00" * 32, "is not random"),
        (base64.b64encode(b"x" * 40).decode(), "is not random"),
        ("raftos sample secret key", "published sample of raftos"),
        (b"raftos sample secret key".hex(), "published sample of raftos"),
        (
            base64.b64encode(b"raftos sample secret key, longer").decode(),
            "published sample of raftos",
        ),
        (b"raftos sample salt".hex(), "published sample of raftos"),
        # A start must not take another key than before by itself.
        ("\n".join([GOOD.hex(), OTHER.hex(), LONG.hex()]), "3 secrets; it may have 2"),
        (f"{base64.b64encode(LONG[:48]).decode()}\n{OTHER.hex()}", "write one secret in one line"),
        (f"{GOOD.hex()}\n{'00' * 32}", "not random"),
        (f"{GOOD.hex()}\n{OTHER.hex()[:40]}", "another one is too short"),
        (f"{OTHER.hex()[:40]}\n{GOOD.hex()}", "another one is too short"),
        (f"\ufeff{GOOD.hex()}\n{OTHER.hex()}", "another one is too short"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    """The error says where, why and what to do, and not what was given."""
    with pytest.raises(ClusterError, match=says) as caught:
        parse_secrets(text, "here")
    assert str(caught.value).startswith("here: ")
    assert not text.strip() or text.strip() not in str(caught.value)


def test_files(tmp_path: Path) -> None:
    """The owner's file, which the owner may be unable to change; no folder, no big file.

    tests/test_secret_files.py has all modes that are refused.
    """
    path = tmp_path / "secret"
    path.write_text(GOOD.hex())
    for mode in (0o600, 0o400, 0o700, 0o440, 0o640):
        path.chmod(mode)
        assert read_secrets(path) == (GOOD,)
    path.chmod(0o644)
    with pytest.raises(ClusterError, match=r"others than its owner .*mode 644\); run: chmod 600"):
        read_secrets(path)
    with pytest.raises(ClusterError, match="cannot read"):
        read_secrets(tmp_path / "none")
    os.mkfifo(tmp_path / "fifo", 0o600)
    for other in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(ClusterError, match="is not a regular file"):
            read_secrets(other)
    path.chmod(0o600)
    path.write_text("ab" * 4096)
    with pytest.raises(ClusterError, match="too large"):
        read_secrets(path)
    path.write_bytes(b"\xff\xfe" * 40)
    with pytest.raises(ClusterError, match="neither hex nor base64"):
        read_secrets(path)


def test_known_keys() -> None:
    """Two nodes of different versions must derive the same."""
    keys = {use: derive_key(GOOD, b"c" * 16, use).hex() for use in KeyUse}
    assert keys == {
        KeyUse.PEERS: "a57b11c0fdb6dee2cedcad03722a997dc1a4d39e94ad458fb22c34132528cb68",
        KeyUse.ELECTION: "5d4ea54f221162bd757a722033864e1992a67f91410e6fdd2e8d759851db8ad8",
    }
    assert derive_key(GOOD, b"d" * 16, KeyUse.PEERS).hex() != keys[KeyUse.PEERS]


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text(GOOD.hex())
    secret = ClusterSecret(read_secrets(path), path)
    path.write_text(f"{GOOD.hex()}\n{OTHER.hex()}\n")
    assert secret.look() == (GOOD, OTHER)
    assert secret.values == (GOOD,), "not in use yet"
    assert GOOD.hex() not in f"{secret} {secret!r}"
    assert ClusterSecret((GOOD,)).look() == (GOOD,), "a variable stays as it is"
