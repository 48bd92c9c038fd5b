"""Every call of the table has a right and a handler, and the pages name its parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, get_args

import pytest

from delaylog.broker.calls.operations import HANDLERS
from delaylog.broker.camellia.face import CALLS as CAMELLIA
from delaylog.broker.camellia.face import PLAIN
from delaylog.broker.cli.verbs import VERBS
from delaylog.broker.engine.late.timeline import CAUSES
from delaylog.broker.web.openapi import PAGES
from delaylog.contract.calls.call import ApiCall, Right
from delaylog.contract.calls.shapes import SETTINGS
from delaylog.contract.calls.table import ALL, BY_NAME
from delaylog.contract.members import Shape

PAGE: Final = (Path(__file__).parents[2] / "docs" / "HTTP.md").read_text()


def test_the_causes_of_late_messages_are_listed_in_their_order() -> None:
    """Of several at one time the first of the page's table counts."""
    rows = PAGE[PAGE.index("\n| cause |") :].partition("\n\n")[0].splitlines()[3:]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])] == [*CAUSES]


def test_every_call_and_page_has_a_right() -> None:
    """None where nothing is needed."""
    rights = [call.right for call in (*ALL, *CAMELLIA.values())]
    rights += [right for _, right, _ in PLAIN.values() if right is not None]
    rights += [right for _, right, *_ in PAGES.values() if right is not None]
    assert {*rights} <= {*get_args(Right)}
    assert PAGES["/metrics"][1] == "metrics"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_is_shown(verb: str) -> None:
    pages = Path(__file__).parents[2].joinpath("docs").glob("*.md")
    shown = any(f"delaylog {verb}" in page.read_text() for page in pages)
    assert shown, f"no page of docs/ has `delaylog {verb}`"


def test_names_are_unique_and_every_handler_has_its_call() -> None:
    assert len(BY_NAME) == len(ALL)
    assert HANDLERS.keys() == BY_NAME.keys()


@pytest.mark.parametrize("call", ALL, ids=lambda call: call.name)
def test_the_page_names_every_parameter(call: ApiCall) -> None:
    members = list(call.query)
    shape = None if call.takes is None else call.takes.shape
    if isinstance(shape, Shape):
        members += shape.members
    elif shape == "Settings":
        members += SETTINGS.members
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))
    missing = [each.name for each in members if each.name not in words]
    assert not missing, "docs/HTTP.md names each parameter and member"
