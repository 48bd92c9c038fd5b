"""Rules D and E: what each delivery after a cancel or reschedule can stem from, as tables.

Every case is a whole history and the letters of the rules that it breaks; none for one that holds.
"""

from collections.abc import Callable

import pytest

from delaylog.broker.history import CheckReport

Judge = Callable[..., CheckReport]

AFTER_A_CANCEL = {
    "none delivered": (
        """
        0-2       send a due=100
        3-5       cancel a
        9000      end
        """,
        "",
    ),
    "begun in the millisecond of the answer": (
        """
        0-2       send a due=4
        3-5       cancel a force=true
        5-6       deliver a now=5
        """,
        "",
    ),
    "begun after the answer": (
        """
        0-2       send a due=4
        3-5       cancel a
        6-7       deliver a now=6
        """,
        "D",
    ),
    "an unknown cancel may not have happened": (
        """
        0-2       send a due=4
        3-5       cancel? a
        6-7       deliver a now=6
        """,
        "",
    ),
    "one that was too late": (
        """
        0-2       send a due=4
        3-5       cancel! a
        6-7       deliver a now=6
        """,
        "",
    ),
    "cancelled in one group": (
        """
        0-2       send a due=4
        3-5       cancel a group=g
        6-7       deliver a now=6 group=h
        """,
        "",
    ),
    "delivered in that group": (
        """
        0-2       send a due=4
        3-5       cancel a group=g
        6-7       deliver a now=6 group=g
        """,
        "D",
    ),
    "sent again": (
        """
        0-2       send a due=4
        3-5       cancel a
        6-7       send a due=8
        8-9       deliver a now=8
        """,
        "",
    ),
    "sent again and cancelled again": (
        """
        0-2       send a due=4
        3-5       cancel a
        6-7       send a due=8
        8-9       cancel a
        10-11     deliver a now=10
        """,
        "D",
    ),
    "a cancel of nothing ends no later message": (
        """
        0-1       cancel a
        3-4       send a due=8
        8-9       deliver a now=8
        """,
        "",
    ),
}

AFTER_A_RESCHEDULE = {
    "later, and delivered then": (
        """
        0-2       send a due=100
        3-5       reschedule a due=500
        400-501   deliver a now=500 due=500 attempt=1
        """,
        "",
    ),
    "later, but delivered at the old time": (
        """
        0-2       send a due=100
        3-5       reschedule a due=500
        100-101   deliver a now=100
        """,
        "BE",
    ),
    "sooner, and delivered then": (
        """
        0-2       send a due=500
        3-5       reschedule a due=100
        100-101   deliver a now=100
        """,
        "",
    ),
    "before either time": (
        """
        0-2       send a due=200
        3-5       reschedule a due=500
        100-101   deliver a now=100
        """,
        "B",
    ),
    "unknown: both times are possible": (
        """
        0-2       send a due=100
        3-5       reschedule? a due=500
        100-101   deliver a now=100
        """,
        "",
    ),
    "unknown and then acknowledged: the unknown one may come last": (
        """
        0-2       send a due=100
        3-5       reschedule? a due=150
        6-7       reschedule a due=500
        140-151   deliver a now=150
        """,
        "",
    ),
    "but nothing is due before all of them": (
        """
        0-2       send a due=100
        3-5       reschedule? a due=150
        6-7       reschedule a due=500
        100-149   deliver a now=149
        """,
        "BE",
    ),
    "refused: the old time holds": (
        """
        0-2       send a due=100
        3-5       reschedule! a due=500
        100-101   deliver a now=100
        """,
        "",
    ),
    "two that overlap may come in either order": (
        """
        0-2       send a due=100
        3-6       reschedule a due=500
        6-7       reschedule a due=200
        190-201   deliver a now=200
        """,
        "",
    ),
    "of two in order the second holds": (
        """
        0-2       send a due=100
        3-5       reschedule a due=200
        6-7       reschedule a due=500
        190-201   deliver a now=200
        """,
        "BE",
    ),
    "delivered under a time that no longer held": (
        """
        0-2       send a due=500
        3-5       reschedule a due=200
        500-501   deliver a now=500 due=500 attempt=1
        """,
        "E",
    ),
    "a retry may state a later time": (
        """
        0-2       send a due=500
        3-5       reschedule a due=200
        200-201   deliver a now=200 due=200 attempt=1 lease=L
        202-203   nack a lease=L
        500-501   deliver a now=500 due=450 attempt=2 lease=M
        """,
        "",
    ),
    "in one group only": (
        """
        0-2       send a due=100
        3-5       reschedule a due=500 group=g
        100-101   deliver a now=100 group=h
        """,
        "",
    ),
    "replaced by a send": (
        """
        0-2       send a due=100
        3-5       send a due=500 result=replaced
        100-101   deliver a now=100
        """,
        "B",
    ),
}

CASES = {
    f"{title}: {name}": case
    for title, table in {
        "cancel": AFTER_A_CANCEL,
        "reschedule": AFTER_A_RESCHEDULE,
    }.items()
    for name, case in table.items()
}


@pytest.mark.parametrize(("text", "broken"), CASES.values(), ids=CASES.keys())
def test_each_history_breaks_exactly_these_rules(judge: Judge, text: str, broken: str) -> None:
    assert "".join(judge(text).broken) == broken
