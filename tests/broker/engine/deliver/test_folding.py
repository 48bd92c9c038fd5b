"""Reasons are folded by what varies between messages, and never by the class of the error."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.deliver.failure_reasons import LOOKED_AT, fold


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("ValueError: cannot parse 10004", "ValueError: cannot parse #"),
        ("ValueError: cannot parse -3.5e-07", "ValueError: cannot parse #"),
        ("KeyError: 'user-17'", "KeyError: 'user-#'"),
        ("order 10004: no such customer", "order #: no such customer"),
        ("10004 is no customer", "# is no customer"),
        ("timeout after 1,500.25 ms", "timeout after # ms"),
        ("connect to 10.0.0.7:8080 failed", "connect to # failed"),
        ("no file 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "no file #"),
        ("no file 3F2504E0-4F89-11D3-9A0C-0305E82C3301", "no file #"),
        ("<Order object at 0x7f3a9c>", "<Order object at #>"),
        ("message ~3ce5500100000003 is gone", "message ~# is gone"),
        ("commit cc6280d8 is unknown", "commit # is unknown"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV is no cart", "# is no cart"),
        ("late since 2026-11-28T21:16:12.123Z", "late since #-#-#T#Z"),
        ("deadbeef decade facade", "deadbeef decade facade"),
        ("Zeile ٤٢ fehlt", "Zeile # fehlt"),
        # Classes.
        ("E1: boom", "E1: boom"),
        ("E2: boom", "E2: boom"),
        ("ORA-00001: row 17", "ORA-00001: row #"),
        ("S3Error: 403", "S3Error: #"),
        ("urllib3.exceptions.MaxRetryError: 5 tries", "urllib3.exceptions.MaxRetryError: # tries"),
        ("java.net.Http2Exception: stream 7", "java.net.Http2Exception: stream #"),
        ("ActiveRecord::RecordNotFound: id=5", "ActiveRecord::RecordNotFound: id=#"),
        (r"App\Errors\Code42: 5", r"App\Errors\Code42: #"),
        ("Utf8Error", "Utf8Error"),
        ("", ""),
    ],
)
def test_kinds(reason: str, kind: str) -> None:
    folded = fold(reason)
    assert folded.text == kind
    assert reason.startswith(folded.prefix)
    assert kind.startswith(folded.prefix)


@given(st.text(string.ascii_letters + string.digits + " .:-'#", max_size=300))
def test_prefixes_begin_every_reason_of_a_kind(reason: str) -> None:
    folded = fold(reason)
    assert reason.startswith(folded.prefix)
    assert folded.text.startswith(folded.prefix)
    assert fold(reason) == folded


@given(
    st.from_regex(r"[A-Z][A-Za-z0-9]{0,20}", fullmatch=True),
    st.from_regex(r"[A-Z][A-Za-z0-9]{0,20}", fullmatch=True),
    st.text(max_size=30),
)
def test_two_classes_are_two_kinds(one: str, other: str, text: str) -> None:
    if one != other:
        assert fold(f"{one}: {text}").text != fold(f"{other}: {text}").text


@pytest.mark.parametrize("unit", ["a", "f", "1", "A.", "1:", "1111-", "A::", "0x", "-1 ", "a1"])
def test_no_reason_takes_long(unit: str) -> None:
    """A consumer may write anything: the time is that of the first characters."""
    reason = unit * 1_024
    best = min(_seconds(reason) for _ in range(5))
    assert best < 0.002
    assert len(fold(reason).text) <= LOOKED_AT + 1


def _seconds(reason: str) -> float:
    begun = time.perf_counter()
    fold(reason)
    return time.perf_counter() - begun
