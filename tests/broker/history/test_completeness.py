"""Rule A: what is owed by the end, every way out of the debt, and the fates as counted."""

from collections.abc import Callable

import pytest

from delaylog.broker.history import CheckReport

Judge = Callable[..., CheckReport]

# A history under a bound of 1,000 ms, the fate counted, and whether A is broken.
CASES = {
    "delivered": ("0-2 send a due=100\n100-101 deliver a now=100\n5000 end", "delivered", False),
    "lost": ("0-2 send a due=100\n1101 end", "lost", True),
    "its bound ends with the history": ("0-2 send a due=100\n1100 end", "not_due", False),
    "not due": ("0-2 send a due=9000\n5000 end", "not_due", False),
    "of two ends the earlier": ("0-2 send a due=100\n1100 end\n9000 end", "not_due", False),
    "without an end the last answer is it": (
        "0-2 send a due=100\n1100-1101 ack! b",
        "lost",
        True,
    ),
    "unknown": ("0-2 send? a due=100\n5000 end", None, False),
    "refused": ("0-2 send! a due=100\n5000 end", None, False),
    "a due time in the past counts from the answer": (
        "900-902 send a due=100\n1902 end",
        "not_due",
        False,
    ),
    "no due time recorded": ("0-2 send a\n1003 end", "lost", True),
    "cancelled": ("0-2 send a due=100\n3-4 cancel a\n5000 end", "cancelled", False),
    "perhaps cancelled": ("0-2 send a due=100\n3-4 cancel? a\n5000 end", "cancelled", False),
    "not cancelled": ("0-2 send a due=100\n3-4 cancel! a\n5000 end", "lost", True),
    "expired": ("0-2 send a due=100 expires=200\n5000 end", "expired", False),
    "not yet expired": ("0-2 send a due=100 expires=6000\n5000 end", "lost", True),
    "dead": ("0-2 send a due=100\n300-301 dead a\n5000 end", "dead", False),
    "perhaps taken": ("0-2 send a due=100\n300-301 deliver? a\n5000 end", "unseen", False),
    "a receive that lost its answer and its ids is no way out": (
        "0-2 send a due=100\n300-301 deliver?\n5000 end",
        "lost",
        True,
    ),
    "moved past the end": (
        "0-2 send a due=100\n3-4 reschedule a due=4500\n5000 end",
        "not_due",
        False,
    ),
    "moved nobody knows where": (
        "0-2 send a due=100\n3-4 reschedule? a\n5000 end",
        "not_due",
        False,
    ),
    "perhaps moved past the end": (
        "0-2 send a due=100\n3-4 reschedule? a due=4500\n5000 end",
        "not_due",
        False,
    ),
    "moved, and lost": ("0-2 send a due=9000\n3-4 reschedule a due=50\n5000 end", "not_due", False),
    "moved to now, delivered": (
        "0-2 send a due=9000\n3-4 reschedule a due=50\n60-61 deliver a now=60\n5000 end",
        "delivered",
        False,
    ),
    "its expiry moves with it": (
        "0-2 send a due=9000 expires=9500\n3-4 reschedule a due=50\n5000 end",
        "expired",
        False,
    ),
    "a reschedule's own expiry": (
        "0-2 send a due=100\n3-4 reschedule a due=50 expires=60\n5000 end",
        "expired",
        False,
    ),
    "a new message of an old id is lost": (
        """
        0-2     send a due=100
        100-101 deliver a now=100 lease=L
        102-103 ack a lease=L
        200-202 send a due=300
        5000    end
        """,
        "lost",
        True,
    ),
    "a resend may have met the delivered one": (
        """
        0-2     send a due=100
        100-101 deliver a now=100 lease=L
        200-202 send a due=300
        300-301 ack a lease=L
        5000    end
        """,
        "delivered",
        False,
    ),
    "unless it says that it made one": (
        """
        0-2     send a due=100
        100-101 deliver a now=100 lease=L
        200-202 send a due=300 result=created
        300-301 ack a lease=L
        5000    end
        """,
        "lost",
        True,
    ),
    "replaced past the end": (
        "0-2 send a due=100\n3-4 send a due=4500 result=replaced\n5000 end",
        "not_due",
        False,
    ),
    "perhaps replaced by one that expires": (
        "0-2 send a due=100\n3-4 send? a due=100 expires=300\n5000 end",
        "expired",
        False,
    ),
}


@pytest.mark.parametrize(("text", "fate", "is_broken"), CASES.values(), ids=CASES.keys())
def test_what_is_owed_and_what_settles_it(
    judge: Judge, text: str, fate: str | None, is_broken: bool
) -> None:
    report = judge(text)
    assert report.broken == (["A"] if is_broken else [])
    fates = ("delivered", "cancelled", "expired", "dead", "unseen", "not_due", "lost")
    counted = {name for name in fates if getattr(report.fates, name)}
    assert counted == ({fate} if fate else set())
    assert report.fates.acknowledged == len(counted)


def test_acked_messages_are_counted_apart(judge: Judge) -> None:
    report = judge(
        """
        0-2     send a due=100
        0-2     send b due=100
        0-2     send c due=100
        100-101 deliver a now=100 lease=L
        100-101 deliver b now=100 lease=M
        100-101 deliver c now=100 lease=N
        102-103 ack a lease=L
        102-103 ack? b lease=M
        102-103 ack! c lease=N
        """
    )
    assert (report.fates.delivered, report.fates.acked) == (3, 1)


@pytest.mark.parametrize(
    ("rest", "broken"),
    [
        ("100-101 deliver a now=100 group=g", []),
        ("100-101 deliver a now=100 group=h", ["A"]),
        ("100-101 deliver a now=100 group=h\n50-51 cancel? a group=g", []),
    ],
)
def test_an_announced_group_must_see_what_was_sent_since(
    judge: Judge, rest: str, broken: list[str]
) -> None:
    text = f"10 group group=g\n300 group group=later\n20-22 send a due=100\n5000 end\n{rest}"
    assert judge(text).broken == broken


def test_a_rule_that_was_never_tried_says_so(judge: Judge) -> None:
    report = judge("0-2 send a due=9000\n5000 end")
    assert report.holds
    assert report.rules["A"].checked == 0
