"""The checker as a whole: what it hears, what it counts, what it imports and what it costs."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from delaylog.broker import history
from delaylog.broker.history import Call, CheckReport, CheckSettings, HistoryChecker, Mark
from delaylog.broker.history.events import EventStore, TooManyGroups
from delaylog.broker.history.model import MARKS, OPS, PLURALS, RESULTS, ScheduleCall

Judge = Callable[..., CheckReport]


def test_an_empty_history_holds_and_proves_nothing() -> None:
    report = HistoryChecker().finish()
    assert report.holds
    assert report.items == report.ids == report.first_ms == report.end_ms == 0
    assert not any(findings.checked for findings in report.rules.values())


def test_calls_are_counted_by_outcome(judge: Judge) -> None:
    report = judge(
        """
        0-2     send a due=100
        0-2     send! b due=100
        0-2     send? c due=100
        100-101 deliver a now=100
        500     clock
        600     end
        """
    )
    assert report.calls == {
        "deliver": {"ok": 1},
        "send": {"ok": 1, "refused": 1, "unknown": 1},
    }
    assert report.marks == {"clock": 1, "end": 1}
    assert (report.items, report.ids) == (6, 2)
    assert (report.first_ms, report.last_ms, report.end_ms) == (0, 101, 600)


def test_items_may_be_fed_one_by_one_and_out_of_order() -> None:
    checker = HistoryChecker(CheckSettings(bound_ms=10))
    checker.add(Mark("end", 900, 900))
    checker.add(Call(100, 101, "deliver", True, "a", now=99))
    checker.add(Call(0, 2, "send", True, "a", due=100))
    assert checker.finish().broken == ["B"]


def test_a_rule_that_was_not_asked_for_is_not_answered(judge: Judge) -> None:
    report = judge("0-2 send a due=100\n50-101 deliver a now=97", rules=frozenset("AC"))
    assert report.holds
    assert list(report.rules) == ["A", "C"]


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="slack_ms is negative"):
        CheckSettings(slack_ms=-1)
    with pytest.raises(ValueError, match="no such rule: L"):
        CheckSettings(rules=frozenset("AL"))


def test_more_groups_than_an_event_has_room_for() -> None:
    store = EventStore()
    for number in range(65_535):
        store.add(Call(0, 1, "deliver", True, "a", group=str(number)))
    with pytest.raises(TooManyGroups):
        store.add(Call(0, 1, "deliver", True, "a", group="one more"))


def test_a_message_costs_72_bytes_a_call_besides_its_id() -> None:
    store = EventStore()
    for index in range(3):
        store.add(Call(index, index, "deliver", True, "a", key="k", lease="L", body="b"))
    assert sys.getsizeof(store.events["a"]) == sys.getsizeof(b"") + 3 * 72


def test_it_imports_nothing_else_of_the_project() -> None:
    """So that other queues can be checked with it, without a broker installed or running."""
    allowed = {*sys.stdlib_module_names, "orjson"}
    of_command_line = {"leaf.py", "verb.py"}
    for path in Path(history.__file__).parent.glob("*.py"):
        if path.name in of_command_line:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                names = [node.module or ""]
            for name in names:
                is_own = name.startswith("delaylog.broker.history.")
                assert is_own or name.partition(".")[0] in allowed, (path, name)


def test_the_documentation_names_every_word_of_the_format() -> None:
    text = (Path(__file__).parents[3] / "docs" / "HISTORY.md").read_text()
    words = {*Call._fields, *PLURALS.values(), *OPS, *MARKS, *RESULTS, *Mark._fields} - {"kind"}
    words |= set(ScheduleCall._fields)
    assert {word for word in words if f"`{word}`" not in text} == set()
    assert all(f"- **{rule}, " in text for rule in history.RULES)


def test_the_public_names() -> None:
    assert history.__all__ == [
        "RULES", "Call", "CheckReport", "CheckSettings", "HistoryChecker", "HistoryError",
        "HistoryRecorder", "Mark", "Violation", "body_hash", "check_files",
        "open_history", "parse_line", "parse_rules", "read_items", "report_json", "report_object",
        "report_text", "run_check",
    ]  # fmt: skip
    assert all(hasattr(history, name) for name in history.__all__)
