"""Rules D and E where no order of calls helps: an answer and an open lease that exclude each other.

The receive began before the cancel or reschedule and was answered after it, or its lease was open
all the while; a truthful broker would have said `too_late`.
"""

from collections.abc import Callable

import pytest

from delaylog.broker.history import CheckReport

Judge = Callable[..., CheckReport]

SEND = "0-2 send a due=100\n"

CASES = {
    "a waiting receive gets what was cancelled": (
        "50-300 deliver a now=300\n200-210 cancel a",
        "D",
    ),
    "cancelled while it was leased": ("100-101 deliver a now=100\n200-210 cancel a", "D"),
    "with force it may be": ("100-101 deliver a now=100\n200-210 cancel a force=true", ""),
    "an unknown cancel says nothing": ("100-101 deliver a now=100\n200-210 cancel? a", ""),
    "after a nack": (
        "100-101 deliver a now=100 lease=L\n102-103 nack a lease=L\n200-210 cancel a",
        "",
    ),
    "beside an unknown nack": (
        "100-101 deliver a now=100 lease=L\n205-215 nack? a lease=L\n200-210 cancel a",
        "",
    ),
    "before its nack": (
        "100-101 deliver a now=100 lease=L\n200-210 cancel a\n211-215 nack a lease=L",
        "D",
    ),
    "after the lease": ("100-101 deliver a now=100\n1100-1110 cancel a", ""),
    "inside an extended lease": (
        "100-101 deliver a now=100 lease=L\n"
        "900-901 extend a lease=L lease_ms=1000\n"
        "1100-1110 cancel a",
        "D",
    ),
    "after a kill": ("100-101 deliver a now=100\n150 kill\n200-210 cancel a", ""),
    "leased again": (
        "100-101 deliver a now=100 lease=L\n1500-1510 deliver a now=1500 lease=M\n"
        "1520-1530 cancel a",
        "D",
    ),
    "done in a group, too late in another": (
        "100-101 deliver a now=100 group=g\n200-210 cancel a",
        "",
    ),
    "done in the very group": ("100-101 deliver a now=100 group=g\n200-210 cancel a group=g", "D"),
    "sent again, so it may be another message": (
        "100-101 deliver a now=100\n102-103 send a due=500\n200-210 cancel a",
        "",
    ),
    "a waiting receive gets what was moved away": (
        "50-300 deliver a now=150\n120-130 reschedule a due=900",
        "E",
    ),
    "or gets it at the time it was moved to": (
        "50-300 deliver a now=150\n120-130 reschedule a due=140",
        "",
    ),
    "moved again by an unknown reschedule": (
        "50-300 deliver a now=150\n120-130 reschedule a due=900\n131-140 reschedule? a due=150",
        "",
    ),
    "moved while it was leased": (
        "100-101 deliver a now=100\n120-130 reschedule a due=900",
        "E",
    ),
    "moved between two leases": (
        "100-101 deliver a now=100 lease=L\n102-103 nack a lease=L\n"
        "120-130 reschedule a due=900\n900-901 deliver a now=900 lease=M",
        "",
    ),
    "by the client's clock where the broker's is not told": (
        "50-300 deliver a\n120-130 reschedule a due=900",
        "E",
    ),
}


@pytest.mark.parametrize(("rest", "broken"), CASES.values(), ids=CASES.keys())
def test_answers_and_open_leases(judge: Judge, rest: str, broken: str) -> None:
    assert "".join(judge(SEND + rest, rules=frozenset("DE")).broken) == broken
