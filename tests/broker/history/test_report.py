"""The verdict in words and as JSON: pinned for one broken history."""

from collections.abc import Callable

import orjson

from delaylog.broker.history import CheckReport, report_json, report_object, report_text

Judge = Callable[..., CheckReport]

BROKEN = """
1000-1002   send a due=1100 body=x
1000-1002   send b due=1100
1003-1004   cancel? c
1050-1101   deliver a now=1099 lease=L body=x
1103        kill
1110-1111   deliver a now=1110 lease=M body=x
1112-1113   ack a lease=M
5000        end
"""


def test_the_text(judge: Judge) -> None:
    assert report_text(judge(BROKEN, rules=frozenset("ABCI"))) == (
        "history  8 calls and marks of 3 ids, 1000 ms to 1113 ms\n"
        "  ack        1 ok\n"
        "  cancel     1 unknown\n"
        "  deliver    2 ok\n"
        "  send       2 ok\n"
        "  marks      1 end, 1 kill\n"
        "\n"
        "      checked  violations\n"
        "A           2           1  every acknowledged send is delivered, cancelled or expired by"
        " its due time + bound\n"
        "B           2           1  nothing is delivered before its due time\n"
        "C           2           -  duplicates only after a nack, an expired lease, a kill or a"
        " failover; none after an ack\n"
        "I           1           -  lateness (measured, not judged)\n"
        "\n"
        "sends       2 acknowledged, 1 acked, 1 delivered, 1 lost\n"
        "duplicates  1 kill\n"
        "  the oldest was made 2 ms before its fault\n"
        "lateness    disturbed, ms: count 1, p50 1, p90 1, p99 1, p99.9 1, max 1\n"
        "\n"
        "A: 'b' at 1100 ms: sent at 1002 and due at 1100, but not delivered by 5000\n"
        "\n"
        "B: 'a' at 1101 ms: delivered at 1099, 1 ms before it was due at 1100\n"
        "\n"
        "violated: A, B\n"
    )


def test_a_history_that_holds_says_so_last(judge: Judge) -> None:
    text = report_text(judge("1767225600000-1767225600002 send a due=1767225600100"))
    assert text.startswith("history  1 calls and marks of 1 ids, 2026-01-01T00:00:00.000Z to ")
    assert "there is no end mark" in text
    assert text.endswith("\nholds\n")


def test_more_violations_than_examples(judge: Judge) -> None:
    text = report_text(judge("\n".join(f"0-1 deliver m{n} now=0" for n in range(25))))
    assert text.count("J: 'm") == 20
    assert "   … and 5 more\n" in text


def test_times_that_no_calendar_has(judge: Judge) -> None:
    far = 1 << 60
    assert f"{far} ms" in report_text(judge(f"{far}-{far} send a due={far}"))


def test_the_json_says_the_same(judge: Judge) -> None:
    report = judge(BROKEN)
    said = orjson.loads(report_json(report))
    assert said == orjson.loads(orjson.dumps(report_object(report)))
    assert (said["holds"], said["broken"]) == (False, ["A", "B"])
    assert said["rules"]["B"]["violations"] == 1
    assert said["rules"]["B"]["examples"] == [
        {
            "rule": "B",
            "id": "a",
            "t_ms": 1101,
            "text": "delivered at 1099, 1 ms before it was due at 1100",
        }
    ]
    assert said["settings"]["bound_ms"] == 1_000
    assert said["settings"]["rules"] == list("ABCDEFGHIJK")
    assert said["calls"]["send"] == {"ok": 2}
    assert said["fates"]["lost"] == 1
    assert said["duplicates"] == {"nack": 0, "lease": 0, "kill": 1, "failover": 0}
    assert said["lateness"]["disturbed"]["max_ms"] == 1
    assert (said["first_ms"], said["end_ms"], said["has_end_mark"]) == (1000, 5000, True)
