"""A message of a text and a time is checked by few comparisons: with the outcome of the checks of
all members.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.calls import shapes
from delaylog.broker.calls.answers import Problem
from delaylog.broker.engine.limits import Limits
from delaylog.contract.members import MemberError
from delaylog.contract.message_fields import DELIVER_AT_MS
from delaylog.contract.times import TIME_MS_MAX

NOW_MS = 1_800_000_000_000
LIMITS = Limits(body_bytes_max=20, horizon_ms=1_000)
NEAR_EDGES = [
    edge + step
    for edge in (0, DELIVER_AT_MS.first_ms, NOW_MS, NOW_MS + LIMITS.horizon_ms, TIME_MS_MAX)
    for step in (-1, 0, 1)
]
TIMES = st.sampled_from([*NEAR_EDGES, True, None, 1.5, "1800000000000", 10**30])
BODIES = st.one_of(
    st.text(max_size=25),
    st.sampled_from(
        ["", "x" * 20, "x" * 21, "é" * 10, "é" * 11, "\ud800", b"raw", None, 5, [], {}]
    ),
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"body": BODIES, "deliver_at_ms": TIMES}),
    st.fixed_dictionaries({"body": BODIES, "delay_ms": TIMES}),
    st.fixed_dictionaries({"body": BODIES}),
    st.fixed_dictionaries({"body": BODIES, "deliver_at_ms": TIMES, "key": st.just("k")}),
    st.fixed_dictionaries({"body": BODIES, "deliver_at_ms": TIMES, "other": st.just(1)}),
    st.sampled_from([[], None, "text", ["body", "deliver_at_ms"]]),
)


def outcome(members: Any) -> object:
    """The message, or what is wrong with it."""
    try:
        return shapes.parse_message(members, limits=LIMITS, now_ms=NOW_MS, item=3)
    except (Problem, MemberError) as error:
        return type(error), str(error)


@given(members=MESSAGES)
def test_both_checks_agree(members: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_plain_message", lambda *_: None)
        general = outcome(members)
    assert outcome(members) == general


def test_common_messages_take_the_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MESSAGE", None)
    for due_ms in (DELIVER_AT_MS.first_ms, NOW_MS, NOW_MS + LIMITS.horizon_ms):
        members = {"body": "é", "deliver_at_ms": due_ms}
        sent = shapes.parse_message(members, limits=LIMITS, now_ms=NOW_MS)
        assert (sent.body, sent.due_ms, sent.relative) == ("é".encode(), due_ms, False)
