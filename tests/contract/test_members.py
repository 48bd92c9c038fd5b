"""Whole numbers in every notation of JSON, and times in other units than milliseconds."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.send.due_times import wrong_time
from delaylog.contract.calls.shapes import SETTINGS
from delaylog.contract.members import (
    Int,
    IntOrText,
    MemberError,
    MemberTypeError,
    OneOf,
    QueryInt,
    whole_of,
)
from delaylog.contract.message_fields import BY_OPTION, from_text, pack_fields
from delaylog.contract.times import DelayMs, TimeMs, time_fault

COUNT = Int("count", "", -(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1500", 1500),
        ("1500.0", 1500),
        ("1.5e3", 1500),
        ("15E+2", 1500),
        ("-0.0", 0),
        ("0.0", 0),
        ("-7.000", -7),
        ("9007199254740992.0", 2**53),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_a_number_without_a_fraction_is_an_integer(text: str, number: int) -> None:
    found = COUNT.check(json.loads(text))
    assert (found, type(found)) == (number, int)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1500.5, "must be an integer, not a number with a fraction"),
        (math.nan, "must be an integer"),
        (math.inf, "must be an integer"),
        (True, "must be an integer, not true or false"),
        ("1500", "must be an integer, not text"),
        (9007199254740994.0, "is not exact: write it without point and exponent"),
        (1e18, "is not exact"),
        (2.0**63, "must lie from -9223372036854775808 to 9223372036854775807"),
        (-1e300, "must lie from"),
    ],
)
def test_other_numbers_are_refused(value: Any, words: str) -> None:
    with pytest.raises(MemberError, match=words):
        COUNT.check(value)


def test_each_kind_of_member_takes_them() -> None:
    assert IntOrText("to", "", 0, 9).check(2.0) == 2
    assert OneOf("code", "", (1, 2)).check(2.0) == 2
    assert QueryInt("limit", "", 0, 100).take({"limit": "10.0"}) == 10
    assert TimeMs("at_ms", "").check(1.8e12) == 1_800_000_000_000
    assert DelayMs("delay_ms", "", high=9).check(-0.0) == 0
    for text in ("10.5", "1e1", "10.", ".0", "1_0", "-"):
        with pytest.raises(MemberError, match="must be an integer"):
            QueryInt("limit", "", 0, 100).take({"limit": text})


def test_nested_members_take_them() -> None:
    settings = SETTINGS.take({"lease_ms": 5e3, "backoff": {"first_ms": 1500.0}})
    assert (settings["lease_ms"], settings["backoff"]["first_ms"]) == (5_000, 1_500)
    backoff = BY_OPTION[b"BACKOFF"]
    assert pack_fields({"backoff": from_text(backoff, "1500.0")}) == pack_fields(
        {"backoff": {"first_ms": 1_500}}
    )
    assert pack_fields({"priority": 5.0, "ttl_ms": 1e3}) == {"priority": 5, "ttl_ms": 1_000}


@pytest.mark.parametrize("value", [None, [], {}, b"1", "1", True, 0.1])
def test_nothing_else_is_whole(value: Any) -> None:
    assert whole_of(value) is None
    with pytest.raises(MemberTypeError):
        TimeMs("at_ms", "").check(value)


def test_a_column_and_a_number_are_judged_alike() -> None:
    first = 10**12
    for value in (0, 1, -1, first - 1, first, 10**15 - 1, 10**15, 10**18 - 1, 10**18, 2**63 - 1):
        fault = time_fault(value)
        assert wrong_time(value) == (None if fault is None else (0, fault))
        column = np.array([first, 0, value], np.int64)
        assert wrong_time(column) == (None if fault is None else (2, fault))
