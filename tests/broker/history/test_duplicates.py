"""Rules C and H: every repeated delivery needs a reason; each table row is one."""

from collections.abc import Callable

import pytest

from delaylog.broker.history import CheckReport

Judge = Callable[..., CheckReport]

FIRST = """
0-2         send a due=100
100-101     deliver a now=100 lease=L lease_ms=1000
"""

# What follows FIRST, the rules broken, and the cause counted.
REPEATS = {
    "inside the lease": ("110-111 deliver a now=110 lease=M", "C", None),
    "a moment before it ends": ("1090-1091 deliver a now=1090 lease=M", "C", None),
    "when it ends": ("1099-1101 deliver a now=1100 lease=M", "", "lease"),
    "by the client's clock alone": ("1100-1101 deliver a lease=M", "", "lease"),
    "by the client's clock, too soon": ("1000-1001 deliver a lease=M", "C", None),
    "after a nack": ("102-103 nack a lease=L\n110-111 deliver a now=110 lease=M", "", "nack"),
    "after a nack by bare id": ("102-103 nack a\n110-111 deliver a now=110 lease=M", "", "nack"),
    "after an unknown nack": ("102-103 nack? a lease=L\n110-111 deliver a now=110", "", "nack"),
    "after an unknown nack by bare id from long before": (
        "3-4 nack? a\n110-111 deliver a now=110 lease=M",
        "",
        "nack",
    ),
    "after a refused nack": ("102-103 nack! a lease=L\n110-111 deliver a now=110", "C", None),
    "after another lease's nack": ("102-103 nack a lease=K\n110-111 deliver a now=110", "C", None),
    "before its nack": ("110-111 deliver a now=110 lease=M\n112-113 nack a lease=L", "C", None),
    "after an unknown ack": ("102-103 ack? a lease=L\n110-111 deliver a now=110", "C", None),
    "given back by extending by nothing": (
        "102-103 extend a lease=L lease_ms=0\n110-111 deliver a now=110 lease=M",
        "",
        "nack",
    ),
    "an extended lease": (
        "900-901 extend a lease=L lease_ms=1000 now=900\n1200-1201 deliver a now=1200 lease=M",
        "C",
        None,
    ),
    "an extended lease that ended": (
        "900-901 extend a lease=L lease_ms=1000 now=900\n1899-1901 deliver a now=1900 lease=M",
        "",
        "lease",
    ),
    "an unknown extension may not have happened": (
        "900-901 extend? a lease=L lease_ms=1000\n1200-1201 deliver a now=1200 lease=M",
        "",
        "lease",
    ),
    "across a kill": ("105 kill\n110-111 deliver a now=110 lease=M", "", "kill"),
    "across a failover": ("105 failover\n110-111 deliver a now=110 lease=M", "", "failover"),
    "a planned failover loses nothing": (
        "105 failover planned=true\n110-111 deliver a now=110 lease=M",
        "C",
        None,
    ),
    "a stepped clock excuses nothing": (
        "105 clock\n110-111 deliver a now=9000 lease=M",
        "C",
        None,
    ),
    "after a step the client's clock tells the lease": (
        "105 clock\n1100-1101 deliver a now=50000 lease=M",
        "",
        "lease",
    ),
    "a kill that ended just before": ("90 kill\n110-111 deliver a now=110", "", "kill"),
    "a kill that ended too long before": ("89 kill\n110-111 deliver a now=110", "C", None),
    "a kill just after": ("121 kill\n110-111 deliver a now=110", "", "kill"),
    "a kill too long after": ("122 kill\n110-111 deliver a now=110", "C", None),
    "a long failover that began before": (
        "20 failover until=95\n110-111 deliver a now=110",
        "",
        "failover",
    ),
    "to another group": ("110-111 deliver a now=110 group=g", "", None),
    "of another message": ("3-4 send b due=100\n110-111 deliver b now=110", "", None),
}


@pytest.mark.parametrize(("rest", "broken", "cause"), REPEATS.values(), ids=REPEATS.keys())
def test_a_repeated_delivery_needs_a_reason(
    judge: Judge, rest: str, broken: str, cause: str | None
) -> None:
    report = judge(FIRST + rest, rules=frozenset("CH"))
    assert "".join(report.broken) == broken
    counted = {name: count for name, count in report.duplicates.items() if count}
    assert counted == ({cause: 1} if cause else {})


@pytest.mark.parametrize(
    ("first", "second", "broken"),
    [
        ("0-2000 deliver a now=1500", "1-100 deliver a now=400", ""),  # Answered out of order.
        ("0-2000 deliver a now=1300", "1-100 deliver a now=400", "C"),
        ("0-2000 deliver a", "1-100 deliver a", ""),  # No clock: either order may be the true one.
        ("0-600 deliver a", "1-100 deliver a", "C"),
        ("0-100 deliver a", "101-600 deliver a", "C"),
        ("0-1450 deliver a", "500-1400 deliver a", ""),
        ("0-600 deliver a now=600", "601-700 deliver a now=1597 lease_ms=5", "C"),
        ("0-600 deliver a lease_until=1600", "601-1700 deliver a now=1700", ""),
    ],
)
def test_calls_that_overlap_are_put_in_the_brokers_order(
    judge: Judge, first: str, second: str, broken: str
) -> None:
    text = f"0-0 send a due=0\n{first}\n{second}"
    assert "".join(judge(text).broken) == broken


def test_a_record_without_a_lease_falls_back_to_the_given_one(judge: Judge) -> None:
    text = "0-0 send a due=0\n5-6 deliver a now=5\n300-301 deliver a now=300"
    assert judge(text, lease_ms=290).holds
    assert judge(text, lease_ms=300).broken == ["C"]


def test_how_far_back_a_kill_reached_is_measured_and_can_be_bounded(judge: Judge) -> None:
    text = FIRST + "181 kill\n300-301 deliver a now=300 lease=M"
    report = judge(text)
    assert report.holds
    assert report.repeated_span_ms_max == 80
    assert judge(text, repeat_bound_ms=80).holds
    assert judge(text, repeat_bound_ms=79).broken == ["C"]


ONE_LIVING = {
    "created once": ("0-2 send a due=100 result=created", ""),
    "created twice": (
        """
        0-2     send a due=100 result=created
        3-4     send a due=100 result=created
        """,
        "H",
    ),
    "created and kept": (
        """
        0-2     send a due=100 result=created
        3-4     send a due=100 result=kept
        """,
        "",
    ),
    "created and unknown": (
        """
        0-2     send a due=100 result=created
        3-4     send? a due=100
        """,
        "",
    ),
    "an unknown cancel may have ended the first": (
        """
        0-2     send a due=100 result=created
        3-4     cancel? a
        5-6     send a due=100 result=created
        """,
        "",
    ),
    "a cancel before the first did not": (
        """
        0-1     cancel a
        2-3     send a due=100 result=created
        5-6     send a due=100 result=created
        """,
        "H",
    ),
    "its expiry ended the first": (
        """
        0-2     send a due=100 result=created expires=200
        203-204 send a due=300 result=created
        """,
        "",
    ),
    "not yet": (
        """
        0-2     send a due=100 result=created expires=1205
        203-204 send a due=300 result=created
        """,
        "H",
    ),
    "nobody knows, once the clock was stepped": (
        """
        0-2     send a due=100 result=created expires=1205
        100     clock
        203-204 send a due=300 result=created
        """,
        "",
    ),
    "a receive whose answer was lost may have leased the first": (
        """
        0-2     send a due=1 result=created
        3-4     deliver?
        5-6     send a due=300 result=created
        """,
        "",
    ),
    "a receive of that id whose answer was lost": (
        """
        0-2     send a due=1 result=created
        3-4     deliver? a
        5-6     send a due=300 result=created
        """,
        "",
    ),
    "a successor beside a leased one": (
        """
        0-2     send a due=100 result=created
        100-101 deliver a now=100 lease=L
        102-103 send a due=100 result=created
        """,
        "",
    ),
    "which is not handed out before the leased one is settled": (
        """
        0-2     send a due=100 result=created
        100-101 deliver a now=100 lease=L
        102-103 send a due=100 result=created
        104-105 deliver a now=104 lease=M
        """,
        "H",
    ),
    "nor does a settled earlier message excuse two leases": (
        """
        0-2     send a due=10
        10-11   deliver a now=10 lease=K
        12-13   ack a lease=K
        20-22   send a due=100
        100-101 deliver a now=100 lease=L
        104-105 deliver a now=104 lease=M
        """,
        "H",
    ),
    "an unknown ack may have settled it": (
        """
        0-2     send a due=100
        100-101 deliver a now=100 lease=L
        102-103 send a due=100
        104-105 ack? a lease=L
        106-107 deliver a now=106 lease=M
        """,
        "",
    ),
}


@pytest.mark.parametrize(("text", "broken"), ONE_LIVING.values(), ids=ONE_LIVING.keys())
def test_an_id_names_at_most_one_living_message(judge: Judge, text: str, broken: str) -> None:
    assert "".join(judge(text).broken) == broken
