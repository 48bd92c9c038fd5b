"""Lines: their exact bytes, the chain, and values that a client chose."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.host.audit.lines import (
    FACTS_MAX,
    FIRST_CHAIN,
    LINE_BYTES_MAX,
    TEXT_MAX,
    AuditLine,
    decode_line,
    encode_line,
    next_chain,
    printable,
    split_line,
    time_ms,
    time_text,
)
from tests.broker.host.audit.audit_world import NOW_MS, a_line
from tests.effort import tries

KNOWN = (
    b'{"n":7,"time":"2027-01-15T08:00:00.000Z","node":2,"principal":"alice","address":"10.0.0.7",'
    b'"face":"http","call":"putTopic","right":"admin","namespace":null,"topic":"reminders",'
    b'"group":null,"count":null,"outcome":"done","request_id":"r1","facts":{"retries_max":5},'
    b'"chain":"19c5"}\n'
)


def test_the_bytes_of_a_known_line() -> None:
    line = a_line()
    line.n, line.node = 7, 2
    raw, chain = encode_line(line, FIRST_CHAIN)
    assert raw == KNOWN.replace(b"19c5", chain.encode())
    body, found = split_line(raw[:-1])
    assert found == chain == next_chain(FIRST_CHAIN, body)
    assert chain == "e3af44d52fb06513c50aab9da7f1d4da9cfab779638285183ff3dec05d2d2af3"
    assert decode_line(body) == line


def test_times() -> None:
    assert time_text(NOW_MS + 7) == "2027-01-15T08:00:00.007Z"
    assert time_ms(time_text(NOW_MS + 999)) == NOW_MS + 999


@settings(max_examples=tries(200))
@given(st.text(max_size=400), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_no_value_breaks_or_disguises_a_line(text: str, facts: dict[str, str | int | None]) -> None:
    """Whatever a client sends, the line is one printable line that decodes to itself."""
    line = AuditLine(
        n=1, time=time_text(NOW_MS), principal=text, call=text, topic=text, facts=facts
    )
    raw, _ = encode_line(line, FIRST_CHAIN)
    assert raw.endswith(b"\n")
    assert raw.decode()[:-1].isprintable()
    assert decode_line(split_line(raw[:-1])[0]) == line


def test_values_are_bounded() -> None:
    wide = "\N{GRINNING FACE}" * 1_000
    many = {f"{k}{wide}": wide for k in range(100)}
    line = AuditLine(principal=wide, address=wide, call=wide, namespace=wide, facts=many)
    line.topic = line.group = line.request_id = line.right = line.principal
    raw, _ = encode_line(line, FIRST_CHAIN)
    assert len(line.facts) == FACTS_MAX
    assert len(line.call) == TEXT_MAX
    assert len(raw) <= LINE_BYTES_MAX
    assert AuditLine(facts={"big": 1 << 70}).facts == {"big": str(1 << 70)}


def test_control_characters_are_escaped() -> None:
    assert printable("a\nb\x1b[2J\u2028\u202e\ud800") == r"a\nb\x1b[2J\u2028\u202e\ud800"
    assert printable("naïve ☃") == "naïve ☃"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        KNOWN[:-2],
        KNOWN[:-1].replace(b"19c5", b"A" * 64),
        KNOWN[:-1].replace(b"19c5", b"a" * 63),
        KNOWN[:-1].replace(b"19c5", b"a" * 64).replace(b'"n":7', b'"n":"7"'),
        KNOWN[:-1].replace(b"19c5", b"a" * 64).replace(b'"n":7,', b""),
        KNOWN[:-1].replace(b"19c5", b"a" * 64).replace(b'"time":"2', b'"time":"x'),
        KNOWN[:-1].replace(b"19c5", b"a" * 64).replace(b'{"retries_max":5}', b"5"),
        b"[1]}" + KNOWN[KNOWN.index(b',"chain') : -1].replace(b"19c5", b"a" * 64),
    ],
)
def test_what_is_not_a_line(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_line(split_line(raw)[0])


def test_unknown_members_are_read_over() -> None:
    """A later release may add fields."""
    line, chain = decode_line(b'{"later":1,' + KNOWN[1 : KNOWN.index(b',"chain')] + b"}"), "a" * 64
    assert line.n == 7, chain


def test_the_documentation_lists_every_field() -> None:
    page = " ".join(Path("docs/FORMATS.md").read_text().split())
    for each in fields(AuditLine):
        assert f"- `{each.name}`: {each.metadata['what']} - `" in page
