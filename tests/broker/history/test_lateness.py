"""Rule I: quantiles against a sorted list, and which deliveries are measured."""

from collections.abc import Callable
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.history import CheckReport
from delaylog.broker.history.report import QUANTILES, Lateness

Judge = Callable[..., CheckReport]


@given(st.lists(st.integers(-10_000, 10**9), min_size=1))
def test_quantiles_are_those_of_the_sorted_values(values: list[int]) -> None:
    late = Lateness(values)
    ordered = sorted(values)
    for share in QUANTILES:
        exact = ordered[ceil(share * len(ordered)) - 1]
        assert exact - abs(exact) / 2048 - 1 <= late.quantile(share) <= exact
    assert late.count == len(values)
    assert late.max_ms == max(values)


def test_nothing_measured() -> None:
    assert Lateness().summary() == {
        "count": 0, "p50_ms": 0, "p90_ms": 0, "p99_ms": 0, "p99.9_ms": 0, "max_ms": 0,
    }  # fmt: skip


def test_memory_is_bounded_however_late() -> None:
    late = Lateness(range(0, 10_000_000, 7))
    assert len(late._counts) < 30_000


def test_first_deliveries_are_measured_to_the_answer_and_to_the_receipt(judge: Judge) -> None:
    report = judge(
        """
        0-2       send a due=100
        50-105    deliver a now=103 lease=L attempt=1
        106-107   nack a lease=L
        500-501   deliver a now=500 attempt=2
        0-2       send b due=100
        0-2       send c due=100
        3-4       reschedule c due=200
        200-207   deliver c now=201
        0-2       send d due=100
        3-4       reschedule? d due=200
        200-207   deliver d now=201
        """
    )
    receipt, broker = report.lateness["receipt"], report.lateness["broker"]
    assert (receipt.count, receipt.quantile(0.5), receipt.max_ms) == (2, 5, 7)
    assert (broker.quantile(0.5), broker.max_ms) == (1, 3)
    assert report.lateness["disturbed"].count == 0
    assert report.rules["I"].checked == 2


def test_lateness_around_a_fault_is_kept_apart(judge: Judge) -> None:
    text = "0-2 send a due=100\n200-905 deliver a now=900\n{} kill"
    for kill_ms, is_disturbed in ((500, True), (915, True), (916, False)):
        report = judge(text.format(kill_ms))
        assert report.lateness["disturbed"].count == is_disturbed
        assert report.lateness["receipt"].count != is_disturbed
    report = judge("1000-1002 send a due=1510\n1500-1515 deliver a now=1511\n500 kill")
    assert report.lateness["disturbed"].count == 1, "within the bound after the kill"
