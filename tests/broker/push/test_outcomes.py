"""What answers and faults mean, as a table."""

from __future__ import annotations

import ssl
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.push.outcomes import (
    RETRY_AFTER_MS_MAX,
    Outcome,
    Verdict,
    fault,
    judge,
    retry_after_ms,
)
from delaylog.contract.calls.shapes import REASON_BYTES_MAX

NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize(
    ("status", "headers", "verdict", "unwell"),
    [
        (200, {}, Verdict.ACKED, False),
        (204, {}, Verdict.ACKED, False),
        (299, {"webhook-delivery": "abort-message"}, Verdict.ACKED, False),
        (101, {}, Verdict.FAILED, True),
        (301, {}, Verdict.FAILED, True),
        (308, {}, Verdict.FAILED, True),
        (400, {}, Verdict.FAILED, False),
        (401, {}, Verdict.FAILED, True),
        (404, {}, Verdict.FAILED, True),
        (410, {}, Verdict.GONE, False),
        (410, {"webhook-delivery": "abort-message"}, Verdict.REFUSED, False),
        (413, {}, Verdict.FAILED, False),
        (422, {"webhook-delivery": " Abort-Message "}, Verdict.REFUSED, False),
        (422, {"webhook-delivery": "retry"}, Verdict.FAILED, False),
        (429, {}, Verdict.THROTTLED, False),
        (500, {}, Verdict.FAILED, True),
        (502, {}, Verdict.THROTTLED, True),
        (503, {}, Verdict.THROTTLED, True),
        (504, {}, Verdict.THROTTLED, True),
        (999, {}, Verdict.FAILED, True),
    ],
)
def test_statuses(status: int, headers: dict[str, str], verdict: Verdict, unwell: bool) -> None:
    made = judge(status, headers, b"", NOW_MS)
    assert (made.verdict, made.unwell) == (verdict, unwell)
    assert made.reason.startswith("" if verdict is Verdict.ACKED else f"answer {status}")


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        ("0", 0),
        (" 7 ", 7_000),
        ("3600", 3_600_000),
        ("99999999", RETRY_AFTER_MS_MAX),
        ("9" * 100_000, RETRY_AFTER_MS_MAX),
        (formatdate(NOW_MS / 1_000 + 90, usegmt=True), 90_000),
        (formatdate(NOW_MS / 1_000 - 90, usegmt=True), 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_MS_MAX),
        ("Fri, 31 Dec 9999 23:59:59 -9999", None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
    ],
)
def test_retry_after(text: str, wait_ms: int | None) -> None:
    assert retry_after_ms(text, NOW_MS) == wait_ms
    made = judge(503, {"retry-after": text}, b"", NOW_MS)
    assert made.retry_after_ms == wait_ms
    # The message of another answer keeps its backoff, and its target does not pause.
    for status in (302, 400, 410, 413, 500):
        assert judge(status, {"retry-after": text}, b"", NOW_MS).retry_after_ms is None


@given(st.text(max_size=60))
def test_no_retry_after_is_an_error_or_out_of_bounds(text: str) -> None:
    wait_ms = retry_after_ms(text, NOW_MS)
    assert wait_ms is None or 0 <= wait_ms <= RETRY_AFTER_MS_MAX


def test_a_reason_has_the_beginning_of_the_answer_in_one_printable_line() -> None:
    made = judge(500, {}, b"oh\r\n  no\x00\x1b[31m \xff" + b"x" * 5_000, NOW_MS)
    assert made.reason.startswith("answer 500 Internal Server Error: oh no [31m \ufffdxxx")
    assert len(made.reason.encode()) < 400
    assert judge(302, {}, b"", NOW_MS).reason == "answer 302 Found (redirects are not followed)"


def test_faults_name_their_cause() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = refused
    assert fault(wrapped, 5).reason == "no answer: Connection refused (ECONNREFUSED)"
    assert fault(TimeoutError(), 1_500).reason == "no answer within 1500 ms"
    assert fault(ValueError(), 5).reason == "no answer: ValueError"
    invalid = ssl.SSLCertVerificationError(1, "x")
    invalid.verify_message = "self-signed certificate"
    made = fault(invalid, 5)
    assert made.reason == "no answer: the certificate is not valid: self-signed certificate"
    assert made == Outcome(Verdict.FAILED, made.reason, None, unwell=True)


def test_a_reason_has_at_most_a_kibibyte_of_valid_text() -> None:
    made = fault(ValueError("ü" * 5_000), 5).reason
    assert REASON_BYTES_MAX - 1 <= len(made.encode()) <= REASON_BYTES_MAX
