"""How long sends are repeated: pauses grow, a broker's wish is the least, and it has an end."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.client import AnswerLost, BadRequest, DiskFull, NotReached
from delaylog.client.errors import ApiError, api_error
from delaylog.client.wire.patience import FIRST_PAUSE_S, PAUSE_MAX_S, Patience


class HandClock:
    """Seconds that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_pauses_double_up_to_a_bound_and_end() -> None:
    clock, pauses = HandClock(), list[float]()
    patience = Patience(30.0, clock, Random(1))

    def be_patient() -> None:
        for _ in range(1_000):
            pauses.append(patience.pause_s(NotReached("away")))
            clock.now_s += pauses[-1]

    with pytest.raises(NotReached):
        be_patient()
    assert 29.0 - PAUSE_MAX_S < sum(pauses) <= 30.0
    for number, pause_s in enumerate(pauses):
        most = min(FIRST_PAUSE_S * 2**number, PAUSE_MAX_S)
        assert most / 2 <= pause_s <= most


def test_a_quota_is_waited_for_as_long_as_the_broker_says() -> None:
    patience = Patience(30.0, HandClock(), Random(1))
    assert patience.pause_s(api_error(429, {"code": "quota"}, 7.0)) == 7.0
    with pytest.raises(ApiError):
        patience.pause_s(api_error(429, {"code": "quota"}, 31.0))


def test_another_leader_comes_before_the_second_that_a_node_asks_for() -> None:
    patience = Patience(30.0, HandClock(), Random(1))
    assert patience.pause_s(api_error(503, {"code": "not_ready"}, 1.0)) <= FIRST_PAUSE_S
    assert patience.pause_s(AnswerLost("gone")) <= 2 * FIRST_PAUSE_S


@pytest.mark.parametrize("code", ["bad_request", "disk_full"])
def test_what_time_does_not_cure_is_raised_at_once(code: str) -> None:
    patience = Patience(30.0, HandClock(), Random(1))
    with pytest.raises((BadRequest, DiskFull)):
        patience.pause_s(api_error(400, {"code": code}))


def test_what_may_have_been_done_once_is_told_as_that() -> None:
    """A refusal behind a lost answer may be of the repeat; a quota or a full disk clears it up."""
    for doubt in (AnswerLost("gone"), api_error(503, {"code": "not_ready"}), api_error(502, {})):
        patience = Patience(30.0, HandClock(), Random(1))
        patience.pause_s(doubt)
        with pytest.raises(AnswerLost, match="an earlier try had no answer") as caught:
            patience.pause_s(api_error(400, {"code": "bad_request"}))
        assert isinstance(caught.value.__cause__, BadRequest)
        patience.pause_s(doubt)
        with pytest.raises(DiskFull):
            patience.pause_s(api_error(507, {"code": "disk_full"}))


def test_the_error_of_a_proxy_is_borne_and_told_as_an_answer_that_was_lost() -> None:
    clock = HandClock()
    patience = Patience(30.0, clock, Random(1))
    patience.pause_s(api_error(502, {}))
    clock.now_s += 31.0
    with pytest.raises(AnswerLost):
        patience.pause_s(api_error(502, {}))


def test_nobody_reached_after_a_lost_answer_is_no_certainty() -> None:
    clock = HandClock()
    patience = Patience(30.0, clock, Random(1))
    patience.pause_s(AnswerLost("gone"))
    clock.now_s += 31.0
    with pytest.raises(AnswerLost):
        patience.pause_s(NotReached("away"))
