"""Each rule of the checker by whole histories, and the rules that each of them breaks.

The histories are in `cases/`, in the form of `conftest.py`. A section is one history:

    ## TITLE -> RULES; repeat CAUSE; fate FATE

RULES are the letters of the rules that the history breaks, or `holds`. `repeat` is the cause that
is counted for a repeated delivery, `fate` the fate that is counted for the one message; both may be
`none`. A line `rules: CH` says which rules judge the sections below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from delaylog.broker.history import RULES, CheckReport

Judge = Callable[..., CheckReport]

FOLDER: Final = Path(__file__).parent / "cases"
FATES: Final = ("delivered", "cancelled", "expired", "dead", "unseen", "not_due", "lost")


@dataclass(frozen=True, slots=True)
class Case:
    """A history, and the verdict on it."""

    name: str
    rules: frozenset[str]
    broken: str
    counted: dict[str, str]
    lines: list[str] = field(default_factory=list)


def read_cases(path: Path) -> Iterator[Case]:
    """The sections of a file."""
    rules, case = frozenset(RULES), None
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            if case is not None:
                yield case
            title, _, verdict = line[3:].rpartition(" -> ")
            broken, *counted = verdict.split("; ")
            counts = dict(each.split(" ") for each in counted)
            name = f"{path.stem}: {title}"
            case = Case(name, rules, "" if broken == "holds" else broken, counts)
        elif line.startswith("rules: "):
            wanted = line.removeprefix("rules: ")
            rules = frozenset(RULES if wanted == "all" else wanted)
        elif line and not line.startswith("# "):
            assert case is not None, line
            case.lines.append(line)
    assert case is not None, path
    yield case


CASES: Final = [case for path in sorted(FOLDER.glob("*.txt")) for case in read_cases(path)]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_history_breaks_exactly_these_rules(judge: Judge, case: Case) -> None:
    report = judge("\n".join(case.lines), rules=case.rules)
    assert "".join(report.broken) == case.broken
    if cause := case.counted.get("repeat"):
        counted: dict[str, int] = {name: n for name, n in report.duplicates.items() if n}
        assert counted == ({} if cause == "none" else {cause: 1})
    if fate := case.counted.get("fate"):
        fates = {name for name in FATES if getattr(report.fates, name)}
        assert fates == ({fate} - {"none"})
        assert report.fates.acknowledged == len(fates)


def test_titles_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 190


def test_a_violation_names_the_message_the_time_and_the_contradiction(judge: Judge) -> None:
    report = judge("0-2 send a due=100\n50-101 deliver a now=97")
    (violation,) = report.rules["B"].examples
    assert (violation.rule, violation.id, violation.t_ms) == ("B", "a", 101)
    assert violation.text == "delivered at 97, 3 ms before it was due at 100"


def test_a_lease_of_unknown_length_has_that_of_the_settings(judge: Judge) -> None:
    text = "0-0 send a due=0\n5-6 deliver a now=5\n300-301 deliver a now=300"
    assert judge(text, lease_ms=290).holds
    assert judge(text, lease_ms=300).broken == ["C"]


def test_the_age_of_a_repeat_at_a_kill_is_measured_and_can_be_bounded(judge: Judge) -> None:
    text = "0-2 send a due=100\n100-101 deliver a now=100\n181 kill\n300-301 deliver a now=300"
    report = judge(text)
    assert report.holds
    assert report.repeated_span_ms_max == 80
    assert judge(text, repeat_bound_ms=80).holds
    assert judge(text, repeat_bound_ms=79).broken == ["C"]


def test_acked_messages_are_counted_apart(judge: Judge) -> None:
    sent = "".join(f"0-2 send {name} due=100\n" for name in "abc")
    delivered = "".join(f"100-101 deliver {name} now=100 lease=L{name}\n" for name in "abc")
    acked = "102-103 ack a lease=La\n102-103 ack? b lease=Lb\n102-103 ack! c lease=Lc"
    report = judge(sent + delivered + acked)
    assert (report.fates.delivered, report.fates.acked) == (3, 1)


def test_a_rule_that_was_never_tried_says_so(judge: Judge) -> None:
    report = judge("0-2 send a due=9000\n5000 end")
    assert report.holds
    assert report.rules["A"].checked == 0


def test_an_id_used_over_and_over_is_judged_in_linear_time(judge: Judge) -> None:
    """Twenty thousand lives of one id: quadratic work here would take minutes."""
    rounds = 20_000
    report = judge(
        "\n".join(
            f"{t}-{t + 1} send a due={t + 2}\n"
            f"{t + 2}-{t + 3} deliver a now={t + 2} lease=L{t}\n"
            f"{t + 4}-{t + 5} ack a lease=L{t}"
            for t in range(0, rounds * 10, 10)
        )
    )
    assert report.holds
    assert report.rules["B"].checked == rounds


def test_a_broker_that_ignores_keys_is_judged_quickly(judge: Judge) -> None:
    """Ten thousand leases of one key open at once: each is reported, none against all others."""
    text = "".join(
        f"{n}-{n} send m{n} due={n} key=k\n20000-20001 deliver m{n} now=20000 lease_ms=60000\n"
        for n in range(10_000)
    )
    report = judge(text, rules=frozenset("FG"))
    assert report.rules["F"].violations == 9_999
    assert len(report.rules["F"].examples) == 20
