"""Numbers of native verbs that are read as a column: like one by one, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.resp.native_words import plain_numbers


@given(st.lists(st.integers(0, 10**18 - 1) | st.integers(0, 99), min_size=1, max_size=20))
def test_what_is_written_plainly_is_read(numbers: list[int]) -> None:
    column = plain_numbers([b"%d" % number for number in numbers])
    assert column is not None
    assert column.tolist() == numbers


@pytest.mark.parametrize(
    "text", [b"", b"-1", b"+1", b"01", b"00", b" 1", b"1\0", b"@1", b"1.0", b"9" * 19, b"\xb2"]
)
@pytest.mark.parametrize("other", [b"5", b"55", b"12345"])
def test_what_is_not_is_left_to_others(text: bytes, other: bytes) -> None:
    assert plain_numbers([text]) is None
    assert plain_numbers([other, text]) is None
    assert plain_numbers([text, other]) is None
