"""Tokens: a form that scanners find, and a checksum that tells them from look-alikes."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.access.token_form import digest_of, is_token, make_token

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


@given(st.binary(min_size=32, max_size=32))
def test_a_token_is_recognised(secret: bytes) -> None:
    token = make_token(secret)
    assert re.fullmatch(r"dlt_[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}", token)
    assert is_token(token)
    assert digest_of(token) == sha256(token.encode()).digest()


@given(st.binary(min_size=32, max_size=32), st.integers(4, 52), st.sampled_from(LETTERS))
def test_one_wrong_letter_is_noticed(secret: bytes, at: int, letter: str) -> None:
    token = make_token(secret)
    other = token[:at] + letter + token[at + 1 :]
    assert is_token(other) == (other == token)


def test_all_random_bytes_count() -> None:
    tokens = {make_token(bytes(at) + b"\1" + bytes(31 - at)) for at in range(32)}
    assert len(tokens) == 32


@pytest.mark.parametrize("size", [0, 31, 33])
def test_too_few_random_bytes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        make_token(bytes(size))


@pytest.mark.parametrize("text", ["", "dlt_", "dlt_" + "A" * 49, "ghp_" + "A" * 49, "x" * 1_000])
def test_other_texts_are_no_tokens(text: str) -> None:
    assert not is_token(text)
