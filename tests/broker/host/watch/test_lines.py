"""Lines: their exact bytes, and values that a client chose."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.host.watch.audit_files import (
    FACTS_MAX,
    TEXT_MAX,
    AuditLine,
    printable,
    time_text,
)
from tests.effort import tries

NOW_MS = 1_800_000_000_000


def test_the_bytes_of_a_known_line() -> None:
    line = AuditLine(
        time=time_text(NOW_MS + 7),
        node=2,
        principal="alice",
        address="10.0.0.7",
        face="http",
        call="putTopic",
        right="admin",
        topic="reminders",
        request_id="r1",
        facts={"retries_max": 5},
    )
    assert line.encode() == (
        b'{"time":"2027-01-15T08:00:00.007Z","node":2,"principal":"alice","address":"10.0.0.7",'
        b'"face":"http","call":"putTopic","right":"admin","namespace":null,"topic":"reminders",'
        b'"group":null,"count":null,"outcome":"done","request_id":"r1","facts":{"retries_max":5}}\n'
    )


@settings(max_examples=tries(200))
@given(st.text(max_size=400), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_no_value_breaks_or_disguises_a_line(text: str, facts: dict[str, str | int | None]) -> None:
    """Whatever a client sends, the line is one printable line of JSON."""
    raw = AuditLine(principal=text, call=text, topic=text, facts=facts).encode()
    assert raw.endswith(b"\n")
    assert raw.decode()[:-1].isprintable()
    assert json.loads(raw)["call"] == printable(text)


def test_values_are_bounded() -> None:
    wide = "\N{GRINNING FACE}" * 1_000
    many: dict[str, str | int] = {f"{k}{wide}": wide for k in range(100)}
    line = json.loads(AuditLine(call=wide, group=wide, facts=many).encode())
    assert len(line["call"]) == len(line["group"]) == TEXT_MAX
    assert len(line["facts"]) == FACTS_MAX
    assert {len(text) for fact in line["facts"].items() for text in fact} == {TEXT_MAX}
    line = json.loads(AuditLine(facts={"big": 1 << 70}).encode())
    assert line["facts"] == {"big": str(1 << 70)}


def test_control_characters_are_escaped() -> None:
    assert printable("a\nb\x1b[2J\u2028\u202e\ud800") == r"a\nb\x1b[2J\u2028\u202e\ud800"
    assert printable("naïve ☃") == "naïve ☃"


def test_the_documentation_lists_every_field() -> None:
    page = Path("docs/FORMATS.md").read_text()
    part = page[page.index("\n## Audit log") : page.index("\n## Cluster")]
    listed = [row.split("`")[1] for row in part.splitlines() if row.startswith("- `")]
    assert listed[: len(fields(AuditLine))] == [each.name for each in fields(AuditLine)]
