"""Durations of limits in words, wherever a refusal names one."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.limits import Limits
from delaylog.contract.calls import shapes
from delaylog.contract.members import MemberError, in_words, ms_in_words
from delaylog.contract.message_fields import DELAY_MS, pack_fields


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 milliseconds"),
        (1, "1 millisecond"),
        (1_000, "1 second"),
        (90_000, "1.5 minutes"),
        (86_400_000, "1 day"),
        (7 * 86_400_000, "7 days"),
        (Limits().horizon_ms, "10 years"),
        (2**62, "146,135,511.5 years"),
    ],
)
def test_durations(ms: int, words: str) -> None:
    assert in_words(ms) == words
    assert ms_in_words(ms) == f"{ms} ms ({words})"


@pytest.mark.parametrize("member", [shapes.BACK_MS, DELAY_MS], ids=lambda each: each.name)
def test_a_bound_that_nobody_reads_is_told_in_words(member: Any) -> None:
    with pytest.raises(MemberError, match=r"316224000000 (ms )?\(10 years\)"):
        member.check(2**60, Limits())


def test_a_short_bound_is_a_number() -> None:
    with pytest.raises(MemberError, match="to 60000, not 60001"):
        shapes.WAIT_MS.check(60_001, Limits())


def test_an_unknown_field_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match="no field 'eta'; it has id"):
        pack_fields({"eta": 1})
