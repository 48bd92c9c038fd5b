"""Rules B, C (after an ack) and J: what each delivery can stem from, as tables.

Every case is a whole history and the letters of the rules that it breaks; none for one that holds.
Cancels and reschedules have a file of their own.
"""

from collections.abc import Callable

import pytest

from delaylog.broker.history import CheckReport

Judge = Callable[..., CheckReport]

NEVER_EARLY = {
    "at its very time": (
        """
        0-2     send a due=100
        50-101  deliver a now=100
        """,
        "",
    ),
    "a millisecond early": (
        """
        0-2     send a due=100
        50-101  deliver a now=99
        """,
        "B",
    ),
    "the broker's clock decides, not the client's": (
        """
        0-2     send a due=100
        50-60   deliver a now=100
        """,
        "",
    ),
    "without the broker's clock the client's receipt stands in": (
        """
        0-2     send a due=100
        50-99   deliver a
        """,
        "B",
    ),
    "an unknown send's due time is a least one": (
        """
        0-2     send? a due=100
        50-101  deliver a now=99
        """,
        "B",
    ),
    "an unknown send without a due time says nothing": (
        """
        0-2     send? a
        50-101  deliver a now=99
        """,
        "",
    ),
    "a second attempt is never early either": (
        """
        0-2     send a due=100
        50-101  deliver a now=100 lease=L attempt=1
        102-103 nack a lease=L
        104-105 deliver a now=99 lease=M attempt=2
        """,
        "B",
    ),
    "a nack with an answered time moves it": (
        """
        0-2     send a due=100
        50-101  deliver a now=100 lease=L attempt=1
        102-103 nack a lease=L due=500
        104-499 deliver a now=499 lease=M attempt=2
        """,
        "B",
    ),
    "an unknown nack may have moved it, or not": (
        """
        0-2     send a due=100
        50-101  deliver a now=100 lease=L attempt=1
        102-103 nack? a lease=L due=500
        104-499 deliver a now=499 lease=M attempt=2
        """,
        "",
    ),
    "a new message of an old id has a time of its own": (
        """
        0-2     send a due=100
        50-101  deliver a now=100 lease=L
        102-103 ack a lease=L
        104-105 send a due=500
        106-400 deliver a now=400 lease=M
        """,
        "B",
    ),
    "a resend without a due time says nothing": (
        """
        0-2     send a due=500
        3-4     send? a
        106-400 deliver a now=400 lease=M
        """,
        "",
    ),
    "an unknown resend may have replaced a later time": (
        """
        0-2     send a due=500
        3-4     send? a due=100
        106-400 deliver a now=400 lease=M
        """,
        "",
    ),
}

AFTER_AN_ACK = {
    "begun before the answer": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        1000-1200 ack a lease=L
        1200-1300 deliver a now=1200 lease=M
        """,
        "",
    ),
    "begun after the answer": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        1000-1200 ack a lease=L
        1201-1300 deliver a now=1250 lease=M
        """,
        "C",
    ),
    "neither an expired lease nor a kill excuses it": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        102-103   ack a lease=L
        200       kill
        3000-3001 deliver a now=3000 lease=M
        """,
        "C",
    ),
    "an unknown ack may not have happened": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        102-103   ack? a lease=L
        3000-3001 deliver a now=3000 lease=M
        """,
        "",
    ),
    "a refused ack settled nothing": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        102-103   ack! a lease=L
        3000-3001 deliver a now=3000 lease=M
        """,
        "",
    ),
    "another group's ack": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L group=g
        102-103   ack a lease=L group=g
        3000-3001 deliver a now=3000 lease=M group=h
        """,
        "",
    ),
    "an ack that names a lease but no group": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L group=g
        60-101    deliver a now=100 lease=M group=h
        102-103   ack a lease=L
        3000-3001 deliver a now=3000 lease=N group=g
        3000-3001 deliver a now=3000 lease=O group=h
        """,
        "C",
    ),
    "one resend allows one more message": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        102-103   ack a lease=L
        104-105   send a due=200
        150-201   deliver a now=200 lease=M
        202-203   ack a lease=M
        """,
        "",
    ),
    "but not two": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        102-103   ack a lease=L
        104-105   send a due=200
        150-201   deliver a now=200 lease=M
        202-203   ack a lease=M
        3000-3001 deliver a now=3000 lease=N
        """,
        "C",
    ),
    "an ack repeated for one lease ends one message": (
        """
        0-2       send a due=100
        50-101    deliver a now=100 lease=L
        102-103   ack a lease=L
        104-105   send a due=200
        106-107   ack a lease=L
        150-201   deliver a now=200 lease=M
        """,
        "",
    ),
    "a kept send makes none": (
        """
        0-2       send a due=100 result=created
        3-4       send a due=100 result=kept
        50-101    deliver a now=100 lease=L
        102-103   ack a lease=L
        3000-3001 deliver a now=3000 lease=N
        """,
        "C",
    ),
    "sends that met one message all end with it": (
        """
        0-2       send a due=100
        3-4       send a due=100
        5-6       send a due=100
        50-101    deliver a now=100 lease=L
        102-103   ack a lease=L
        3000-3001 deliver a now=3000 lease=N
        """,
        "C",
    ),
    "a successor sent while it was leased": (
        """
        0-2       send a due=100 result=created
        50-101    deliver a now=100 lease=L
        102-103   send a due=105 result=created
        104-105   ack a lease=L
        106-107   deliver a now=106 lease=N
        """,
        "",
    ),
    "a successor, where acks go by bare id": (
        """
        0-2       send a due=100
        50-101    deliver a now=100
        102-103   send a due=105
        104-105   ack a
        106-107   deliver a now=106
        """,
        "",
    ),
    "and none more than that": (
        """
        0-2       send a due=100
        50-101    deliver a now=100
        102-103   send a due=105
        104-105   ack a
        106-107   deliver a now=106
        108-109   ack a
        3000-3001 deliver a now=3000
        """,
        "C",
    ),
    "an ack of what nobody saw delivered ends but one": (
        """
        0-2       send a due=100
        3-4       send a due=100
        104-105   ack a
        106-107   deliver a now=106
        """,
        "",
    ),
    "an ack before the send ended something else": (
        """
        0-1       ack a lease=K
        3-4       send a due=100
        5-6       send a due=100
        106-107   deliver a now=106
        """,
        "",
    ),
    "a receive that had waited since before the send": (
        """
        10-12     send a due=100
        0-101     deliver a now=100 lease=L
        102-103   ack a lease=L
        200-202   send a due=210
        104-211   deliver a now=210 lease=M
        212-213   ack a lease=M
        3000-3001 deliver a now=3000 lease=N
        """,
        "C",
    ),
}

NOTHING_FROM_NOWHERE = {
    "the body that was sent": (
        """
        0-2       send a due=100 body=x
        100-101   deliver a now=100 body=x
        """,
        "",
    ),
    "another body": (
        """
        0-2       send a due=100 body=x
        100-101   deliver a now=100 body=y
        """,
        "J",
    ),
    "no hash recorded": (
        """
        0-2       send a due=100
        100-101   deliver a now=100 body=y
        """,
        "",
    ),
    "an unknown send may have happened": (
        """
        0-2       send? a due=100 body=x
        100-101   deliver a now=100 body=x
        """,
        "",
    ),
    "a refused one did not": (
        """
        0-2       send! a due=100 body=x
        100-101   deliver a now=100 body=x
        """,
        "J",
    ),
    "never sent": (
        """
        100-101   deliver a now=100 body=x
        """,
        "J",
    ),
    "delivered before its send began": (
        """
        200-201   send a due=100 body=x
        100-101   deliver a now=100 body=x
        """,
        "J",
    ),
    "delivered before all of its sends began": (
        """
        200-201   send a due=100 body=x
        202-203   send a due=100 body=x
        100-101   deliver a now=100 body=x
        """,
        "J",
    ),
    "a send that only met a message stands for the one that made it": (
        """
        0-2       send a due=100 body=x result=kept
        100-101   deliver a now=100 body=y
        """,
        "",
    ),
    "either body of a resend": (
        """
        0-2       send a due=100 body=x
        3-4       send? a due=100 body=y
        100-101   deliver a now=100 body=y
        """,
        "",
    ),
    "no body of a resend": (
        """
        0-2       send a due=100 body=x
        3-4       send? a due=100 body=y
        100-101   deliver a now=100 body=z
        """,
        "J",
    ),
    "the body of a send that met a living message": (
        """
        0-2       send a due=100 body=x
        3-4       send a due=100 body=y result=kept
        100-101   deliver a now=100 body=y
        """,
        "J",
    ),
    "a lost answer that hid the id": (
        """
        0-2       send? body=x
        100-101   deliver ~1 now=100 body=x
        """,
        "",
    ),
    "one lost answer accounts for one message": (
        """
        0-2       send? body=x
        100-101   deliver ~1 now=100 body=x
        100-101   deliver ~2 now=100 body=x
        """,
        "J",
    ),
    "a lost answer to another body": (
        """
        0-2       send? body=x
        100-101   deliver ~1 now=100 body=y
        """,
        "J",
    ),
    "a lost answer after the delivery": (
        """
        200-202   send? body=x
        100-101   deliver ~1 now=100 body=x
        """,
        "J",
    ),
    "a lost answer without any hash": (
        """
        0-2       send?
        100-101   deliver ~1 now=100 body=y
        """,
        "",
    ),
    "a delivery without a hash meets any lost answer": (
        """
        0-2       send? body=x
        100-101   deliver ~1 now=100 group=g
        100-101   deliver ~1 now=100 group=h
        """,
        "",
    ),
}

CASES = {
    f"{title}: {name}": case
    for title, table in {
        "early": NEVER_EARLY,
        "ack": AFTER_AN_ACK,
        "nowhere": NOTHING_FROM_NOWHERE,
    }.items()
    for name, case in table.items()
}


@pytest.mark.parametrize(("text", "broken"), CASES.values(), ids=CASES.keys())
def test_each_history_breaks_exactly_these_rules(judge: Judge, text: str, broken: str) -> None:
    assert "".join(judge(text).broken) == broken


def test_a_violation_names_the_message_the_time_and_the_contradiction(judge: Judge) -> None:
    report = judge("0-2 send a due=100\n50-101 deliver a now=97")
    (violation,) = report.rules["B"].examples
    assert (violation.rule, violation.id, violation.t_ms) == ("B", "a", 101)
    assert violation.text == "delivered at 97, 3 ms before it was due at 100"


def test_an_id_used_over_and_over_is_judged_in_linear_time(judge: Judge) -> None:
    """Twenty thousand lives of one id: quadratic work here would take minutes."""
    rounds = 20_000
    text = "\n".join(
        f"{t}-{t + 1} send a due={t + 2}\n"
        f"{t + 2}-{t + 3} deliver a now={t + 2} lease=L{t}\n"
        f"{t + 4}-{t + 5} ack a lease=L{t}"
        for t in range(0, rounds * 10, 10)
    )
    report = judge(text)
    assert report.holds
    assert report.rules["B"].checked == rounds
