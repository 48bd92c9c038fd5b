"""Signatures, verified by the reference library of Standard Webhooks."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from delaylog.broker.rules.push_signatures import (
    make_secret,
    make_signers,
    parse_secret,
    shown,
    signature_headers,
)

OLD, NEW, OTHER = (make_secret(bytes([n]) * 32) for n in (1, 2, 3))


@given(body=st.text(max_size=200), size=st.integers(24, 64))
def test_the_reference_library_accepts_a_signature(body: str, size: int) -> None:
    secret = make_secret(b"\xfe" * size)
    made = signature_headers(make_signers([secret]), "~01ab", int(time.time()), body.encode())
    Webhook(secret).verify(body, dict(made), json_parse=False)


def test_while_secrets_rotate_both_verify_and_no_third_one() -> None:
    signers = make_signers([NEW, OLD])
    made = dict(signature_headers(signers, "~01ab", int(time.time()), b"{}"))
    for secret in (NEW, OLD):
        Webhook(secret).verify("{}", made)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify("{}", made)


@pytest.mark.parametrize("part", ["webhook-id", "webhook-timestamp", "body"])
def test_a_changed_part_does_not_verify(part: str) -> None:
    now_s = int(time.time())
    made = dict(signature_headers(make_signers([NEW]), "~01ab", now_s, b"1"))
    body = "2" if part == "body" else "1"
    made |= {
        "webhook-id": {"webhook-id": "~01ac"},
        "webhook-timestamp": {part: str(now_s + 1)},
    }.get(part, {})
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(body, made)


def test_the_known_example_of_the_library() -> None:
    """The bytes are pinned by a vector that the reference library's tests publish."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # pragma: allowlist secret
    body = b'{"test": 2432232314}'
    made = signature_headers(
        make_signers([secret]), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body
    )
    assert made[2] == ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")


def test_without_secrets_there_is_an_id_and_a_time() -> None:
    assert signature_headers([], "~1", 5, b"") == [("webhook-id", "~1"), ("webhook-timestamp", "5")]


def test_an_id_with_a_full_stop_could_be_split_in_two_ways() -> None:
    with pytest.raises(AssertionError):
        signature_headers([], "a.b", 5, b"")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        "open sesame",
        base64.b64encode(b"x" * 32).decode(),
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        "whsec_" + "!" * 40,
        "whpk_" + base64.b64encode(b"x" * 32).decode(),
    ],
)
def test_what_is_no_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes") as caught:
        parse_secret(text)
    assert not text.removeprefix("whsec_") or text not in str(caught.value)


def test_padding_may_be_absent() -> None:
    text = make_secret(b"k" * 25)
    assert text.endswith("=")
    assert parse_secret(text.rstrip("=")) == parse_secret(text) == b"k" * 25


def test_what_is_shown_tells_secrets_apart_and_contains_none() -> None:
    assert shown(OLD) != shown(NEW)
    assert len(shown(OLD)) == len("sha256:") + 16
