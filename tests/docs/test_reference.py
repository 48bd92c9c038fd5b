"""SDK.md names what there is: each public name, argument, keyword, hook and exception."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import delaylog
from delaylog import client
from delaylog.client.calls import schedules, targets
from delaylog.client.calls.schedules import RangeKeywords, ScheduleKeywords, UpdateScheduleKeywords
from delaylog.client.calls.targets import TargetKeywords
from delaylog.client.errors import CLASSES
from delaylog.client.hooks import Hooks
from delaylog.contract.calls.schedules import BACKFILL, PUT_SCHEDULE
from delaylog.contract.calls.targets import UPDATE_TARGET
from delaylog.contract.error_codes import CODES
from tests.client.test_surface import takes

DOCS: Final = Path(__file__).parents[2] / "docs"
REFERENCE: Final = (DOCS / "SDK.md").read_text()
PROSE: Final = re.sub(r"^```.*?^```", "", REFERENCE, flags=re.MULTILINE | re.DOTALL)
NAMED: Final = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", PROSE))))
"""Each word that stands in code marks somewhere, examples left aside."""

KEYWORDS: Final = REFERENCE.partition("#### Keywords of schedules and push targets\n")[2].partition(
    "<!-- run"
)[0]
WITHOUT_CLASS: Final = {
    *("internal", "method", "timeout", "misdirected"),
    *("target_too_long", "head_too_large", "not_implemented", "version"),
}
"""Error codes that an SDK never meets, or cannot do anything about."""


def public_methods(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")]


def arguments(function: Callable[..., Any]) -> list[str]:
    method = function.__init__ if isinstance(function, type) else function
    return [name for name in takes(method) if name not in ("args", "kwargs")]


@pytest.mark.parametrize("kind", [client.Client, client.AsyncClient])
def test_every_method_is_named(kind: type) -> None:
    assert [name for name in public_methods(kind) if name not in NAMED] == []


@pytest.mark.parametrize(
    "function",
    [
        client.Client,
        client.Client.send,
        client.Client.receive,
        client.Client.consumer,
        delaylog.open,
    ],
    ids=lambda function: function.__qualname__,
)
def test_every_argument_is_named(function: Callable[..., Any]) -> None:
    assert [name for name in arguments(function) if name not in NAMED] == []


def test_every_public_name_is_named() -> None:
    assert [name for name in client.__all__ if name not in NAMED] == []


def test_every_exception_stands_with_its_code() -> None:
    rows = [line for line in REFERENCE.splitlines() if line.startswith("- `")]
    for code, kind in CLASSES.items():
        assert any(f"`{kind.__name__}`" in row and f"`{code}`" in row for row in rows), code


def test_every_hook_is_named() -> None:
    assert [name for name in public_methods(Hooks) if name not in NAMED] == []


def test_the_sdk_has_a_class_for_each_code() -> None:
    assert {*CLASSES} == {*CODES} - WITHOUT_CLASS


@pytest.mark.parametrize("word", ["ERR", "TOOLARGE", "CONFLICT", "TOOLATE", "UNKNOWN", "DISKFULL"])
def test_redis_lists_words_of_the_table(word: str) -> None:
    assert word in {each.word for each in CODES.values()}
    assert f"`{word}`" in (DOCS / "REDIS.md").read_text()


def test_the_table_has_all_keywords_and_no_other() -> None:
    """From the declarations of the calls."""
    declared = {
        name
        for each in (ScheduleKeywords, UpdateScheduleKeywords, RangeKeywords, TargetKeywords)
        for name in each.__annotations__
    }
    for call in (schedules.backfill_schedule, targets.put_target, targets.update_target):
        declared |= inspect.signature(call).parameters.keys() - {
            "places",
            "topic",
            "group",
            "schedule",
        }
    rows = "\n".join(
        line for line in KEYWORDS.partition("<!-- run")[0].splitlines() if line.startswith("| ")
    )
    rows = rows.replace("`ZoneInfo`", "").replace("`update_target`", "")
    assert set(re.findall(r"`(\w+)`", rows)) == declared - {"said", "limits"}


def test_each_member_has_a_keyword() -> None:
    """A member of the table of fields that the SDK forgets fails here; durations lose `_ms`."""
    shapes = (
        (PUT_SCHEDULE, {*UpdateScheduleKeywords.__annotations__, "body_base64"}),
        (BACKFILL, {*RangeKeywords.__annotations__, "rate"}),
        (UPDATE_TARGET, {*TargetKeywords.__annotations__, "url", "push", "rotate"}),
    )
    for shape, keywords in shapes:
        renamed = {name: name.removesuffix("_ms") for name in shape.names - keywords}
        renamed["timeout_ms"] = "push_timeout"
        assert {renamed.get(name, name) for name in shape.names} <= keywords
