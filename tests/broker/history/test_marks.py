"""Windows around marks, to the millisecond, and against a plain scan."""

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.history.events import FOREVER
from delaylog.broker.history.life import Marks, Windows
from delaylog.broker.history.model import Mark

TIMES = st.integers(0, 60)
SPANS = st.tuples(TIMES, TIMES).map(sorted)


@given(st.lists(SPANS), SPANS)
def test_windows_meet_as_a_scan_of_all_says(spans: list[list[int]], asked: list[int]) -> None:
    windows = Windows((first, last, f"{first}-{last}") for first, last in spans)
    meeting = {f"{f}-{la}" for f, la in spans if f <= asked[1] and la >= asked[0]}
    assert windows.meets(*asked) == bool(meeting)
    name = windows.meeting(*asked)
    assert name in meeting if meeting else name is None


def marks(*given: Mark) -> Marks:
    return Marks(given, slack_ms=10, settle_ms=100)


def test_a_kill_reaches_its_slack_on_both_sides() -> None:
    window = marks(Mark("kill", 500, 600))
    assert window.lease_loss(0, 489) is None
    assert window.lease_loss(0, 490) == "kill"
    assert window.lease_loss(610, 900) == "kill"
    assert window.lease_loss(611, 900) is None
    assert not window.clock_stepped(0, 1000)


def test_a_planned_failover_disturbs_but_loses_nothing() -> None:
    window = marks(Mark("failover", 500, 500, planned=True))
    assert window.lease_loss(0, 1000) is None
    assert window.disturbed(610, 900)
    assert not window.disturbed(611, 900)


def test_a_clock_step_is_no_loss() -> None:
    window = marks(Mark("clock", 500, 500))
    assert window.clock_stepped(510, 900)
    assert not window.clock_stepped(511, 900)
    assert window.lease_loss(0, 1000) is None
    assert window.disturbed(0, 490)


def test_the_earliest_end_and_the_first_announcement_count() -> None:
    window = marks(
        Mark("end", 900, 900),
        Mark("end", 800, 800),
        Mark("group", 7, 7, group="g"),
        Mark("group", 5, 5, group="g"),
    )
    assert window.end_ms == 800
    assert window.groups == {"g": 5}
    assert window.counts == {"end": 2, "group": 2}
    assert marks().end_ms == FOREVER


def test_how_far_before_its_fault_a_delivery_was_made() -> None:
    window = marks(Mark("kill", 500, 500), Mark("kill", 700, 700))
    assert window.repeated_span_ms(450, 900) == 50
    assert window.repeated_span_ms(505, 600) == 0  # Inside the slack, after the blow.
    assert window.repeated_span_ms(690, 710) == 10
    assert window.repeated_span_ms(800, 900) == 0
