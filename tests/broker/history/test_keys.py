"""Rules F and G: what holds between the messages of one key."""

from collections.abc import Callable

import pytest

from delaylog.broker.history import CheckReport

Judge = Callable[..., CheckReport]

ONE_OPEN_LEASE = {
    "one after the other": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        22-30   ack a lease=L
        23-40   deliver b now=35 lease=M
        """,
        "",
    ),
    "both in one answer": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        20-21   deliver b now=20 lease=M
        """,
        "F",
    ),
    "the second while the first is open": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        22-23   deliver b now=22 lease=M
        24-25   ack a lease=L
        """,
        "F",
    ),
    "an ack that was on its way": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        22-99   ack? a lease=L
        22-23   deliver b now=22 lease=M
        """,
        "",
    ),
    "a refused ack: the lease was gone": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        22-23   ack! a lease=L
        24-25   deliver b now=24 lease=M
        """,
        "",
    ),
    "another lease's ack": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        22-23   ack! a lease=K
        24-25   deliver b now=24 lease=M
        """,
        "F",
    ),
    "the first one's lease ran out": (
        """
        0-1       send a due=10 key=k
        2-3       send b due=20 key=k
        20-21     deliver a now=20 lease=L
        1020-1021 deliver b now=1020 lease=M
        """,
        "",
    ),
    "not if it was extended": (
        """
        0-1       send a due=10 key=k
        2-3       send b due=20 key=k
        20-21     deliver a now=20 lease=L
        500-501   extend a lease=L lease_ms=1000
        1020-1021 deliver b now=1020 lease=M
        """,
        "F",
    ),
    "a kill lost the lease": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        25      kill
        32-33   deliver b now=32 lease=M
        """,
        "",
    ),
    "the first was cancelled by force": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L
        22-23   cancel a force=true
        24-25   deliver b now=24 lease=M
        """,
        "",
    ),
    "cancelled in another group": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        10-11   cancel a group=h
        20-21   deliver a now=20 lease=L group=g
        22-23   deliver b now=22 lease=M group=g
        """,
        "F",
    ),
    "acked in another group": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L group=g
        22-23   ack a lease=K group=h
        24-25   deliver b now=24 lease=M group=g
        """,
        "F",
    ),
    "another key": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=j
        20-21   deliver a now=20 lease=L
        22-23   deliver b now=22 lease=M
        """,
        "",
    ),
    "another group": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        20-21   deliver a now=20 lease=L group=g
        22-23   deliver b now=22 lease=M group=h
        """,
        "",
    ),
    "a repeat of the same message is no affair of keys": (
        """
        0-1     send a due=10 key=k
        20-21   deliver a now=20 lease=L
        22-23   deliver a now=22 lease=M
        """,
        "",
    ),
    "the key told by the delivery alone": (
        """
        0-1     send a due=10
        2-3     send b due=20
        20-21   deliver a now=20 lease=L key=k
        22-23   deliver b now=22 lease=M key=k
        """,
        "F",
    ),
}

ORDER = {
    "by due time": (
        """
        0-1     send a due=20 key=k
        2-3     send b due=10 key=k
        30-31   deliver b now=30 lease=L
        32-33   ack b lease=L
        34-35   deliver a now=34 lease=M
        """,
        "",
    ),
    "against due time": (
        """
        0-1     send a due=20 key=k
        2-3     send b due=10 key=k
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        """,
        "G",
    ),
    "against due time, but sent too late to be first": (
        """
        0-1     send a due=20 key=k
        30-31   send b due=10 key=k
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        """,
        "",
    ),
    "due earlier, but answered when the other was ready: either order": (
        """
        0-1     send a due=10 key=k
        9-12    send b due=9 key=k
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        """,
        "",
    ),
    "the same the other way round": (
        """
        0-1     send a due=10 key=k
        9-12    send b due=9 key=k
        30-31   deliver b now=30 lease=L
        32-33   ack b lease=L
        34-35   deliver a now=34 lease=M
        """,
        "",
    ),
    "answered in the millisecond in which the other became ready": (
        """
        0-1     send a due=10 key=k
        9-10    send b due=9 key=k
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        """,
        "",
    ),
    "answered just before the other was ready": (
        """
        0-1     send a due=10 key=k
        8-9     send b due=8 key=k
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        """,
        "G",
    ),
    "both due at once, one after the other": (
        """
        5-6     send b due=5 key=k
        7-8     send a due=7 key=k
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        """,
        "G",
    ),
    "a late one beside one that was passed over": (
        """
        0-1     send a due=10 key=k
        2-3     send c due=5 key=k
        9-12    send b due=9 key=k
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        36-37   ack b lease=M
        38-39   deliver c now=38 lease=N
        """,
        "G",
    ),
    "the retry of one that was there in time": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=9 key=k
        30-31   deliver b now=30 lease=L
        32-33   nack b lease=L
        34-35   deliver a now=34 lease=M
        36-37   ack a lease=M
        38-39   deliver b now=38 lease=N
        """,
        "G",
    ),
    "by arrival where due times are equal": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=10 key=k
        30-31   deliver b now=30 lease=L
        32-33   ack b lease=L
        34-35   deliver a now=34 lease=M
        """,
        "G",
    ),
    "sent at once: either order": (
        """
        0-2     send a due=10 key=k
        2-3     send b due=10 key=k
        30-31   deliver b now=30 lease=L
        32-33   ack b lease=L
        34-35   deliver a now=34 lease=M
        """,
        "",
    ),
    "the higher priority first where due times are equal": (
        """
        0-1     send a due=10 key=k priority=1
        2-3     send b due=10 key=k priority=2
        30-31   deliver b now=30 lease=L
        32-33   ack b lease=L
        34-35   deliver a now=34 lease=M
        """,
        "",
    ),
    "receives that overlap: either order": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        30-39   deliver b now=38 lease=L
        31-35   deliver a now=31 lease=M
        36-37   ack a lease=M
        """,
        "",
    ),
    "a receive that had waited since before both sends": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        0-31    deliver b now=30 lease=L
        32-33   ack b lease=L
        34-35   deliver a now=34 lease=M
        """,
        "G",
    ),
    "the retry of the first comes before the second": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        30-31   deliver a now=30 lease=L
        32-33   nack a lease=L
        34-35   deliver b now=34 lease=M
        36-37   ack b lease=M
        38-39   deliver a now=38 lease=N
        """,
        "G",
    ),
    "what was moved has no certain place": (
        """
        0-1     send a due=20 key=k
        2-3     send b due=10 key=k
        4-5     reschedule b due=30
        30-31   deliver a now=30 lease=L
        32-33   ack a lease=L
        34-35   deliver b now=34 lease=M
        """,
        "",
    ),
    "what died and was replayed has none either": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=20 key=k
        30-31   deliver a now=30 lease=L
        32-33   nack a lease=L
        33-34   dead a
        35-36   deliver b now=35 lease=M
        37-38   ack b lease=M
        39-40   deliver a now=39 lease=N
        """,
        "",
    ),
    "one behind another that overlaps is still seen": (
        """
        0-1     send a due=10 key=k
        2-3     send b due=11 key=k
        4-5     send c due=20 key=k
        30-39   deliver c now=38 lease=L
        32-33   deliver a now=32 lease=M
        34-35   ack a lease=M
        40-41   ack c lease=L
        42-43   deliver b now=42 lease=N
        """,
        "G",
    ),
}

CASES = {f"F: {name}": case for name, case in ONE_OPEN_LEASE.items()}
CASES |= {f"G: {name}": case for name, case in ORDER.items()}


@pytest.mark.parametrize(("name", "text", "broken"), [(k, *v) for k, v in CASES.items()])
def test_messages_of_one_key(judge: Judge, name: str, text: str, broken: str) -> None:
    assert "".join(judge(text, rules=frozenset(name[0])).broken) == broken


def test_a_broker_that_ignores_keys_is_judged_quickly(judge: Judge) -> None:
    """Ten thousand leases of one key open at once: each is reported, none against all others."""
    text = "".join(
        f"{n}-{n} send m{n} due={n} key=k\n20000-20001 deliver m{n} now=20000 lease_ms=60000\n"
        for n in range(10_000)
    )
    report = judge(text, rules=frozenset("FG"))
    assert report.rules["F"].violations == 9_999
    assert len(report.rules["F"].examples) == 20
