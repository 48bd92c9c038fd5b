"""Modules of the page by themselves, in the browser: JSON with all digits, rights, times."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.access.grants import OF_BROKER, RIGHTS, Permissions, parse_grant
from tests.broker.conftest import Broker

RIGHT_NAMES = sorted(RIGHTS)
NAMES = ("orders", "orders.eu", "mails", "a.b")
SPACES = ("default", "billing")
GROUPS = (None, "default", "mail")
PATTERNS = ("*", "orders", "orders.*", "*.eu", "a.b", "a?b", "o*s*u")


def run(window: Any, module: str, code: str, given: Any) -> Any:
    """What a function of the page's module answers, `it` being the module."""
    window.page.goto(f"{window.url}/ui/")
    script = f"async given => {{ const it = await import('/ui/{module}'); return {code}; }}"
    return window.page.evaluate(script, given)


def a_grant(random: Random) -> str:
    """A grant as a person may write it."""
    words = random.sample([*RIGHT_NAMES, "viewer", "operator", "admin", "producer"], 2)
    if random.random() < 0.3:
        return ",".join(words)
    words = [each for each in words if each not in OF_BROKER] or ["read"]
    place = random.choice(PATTERNS)
    if random.random() < 0.5:
        place = f"{random.choice((*SPACES, '*'))}/{place}"
    group = f":{random.choice(('*', 'mail', 'm*'))}" if random.random() < 0.4 else ""
    return f"{','.join(words)}:{place}{group}"


def test_the_page_decides_on_rights_as_the_broker_does(broker: Broker, look: Any) -> None:
    """Purpose: no button that would be refused, none missing. Method: random grants and calls, each
    decided by both; the page gets the grants as the API writes them."""
    random = Random(7)
    cases, wanted = [], []
    for _ in range(300):
        may = Permissions(
            [parse_grant(a_grant(random), stored=True) for _ in range(random.randint(1, 3))]
            if random.random() < 0.95
            else [parse_grant("admin")]
        )
        right, group = random.choice(RIGHT_NAMES), random.choice(GROUPS)
        key = random.choice(SPACES), random.choice(NAMES)
        cases.append([[str(each) for each in may.grants], right, *key, group])
        wanted.append([may.may(right, key, group), may.may_somewhere(right)])
    code = (
        "given.map(([grants, right, ns, topic, group]) => { const s = new it.Session({grants, csrf:"
        " null}); return [s.may(right, ns, topic, group), s.maySomewhere(right)]; })"
    )
    found = run(look(broker.url), "core/session.js", code, cases)
    wrong = [case for case, one, other in zip(cases, found, wanted, strict=True) if one != other]
    assert wrong == []
    assert 30 < sum(each for each, _ in wanted) < 270


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993",
        "-9223372036854775808",
        '{"due_to":9223372036854775807,"a":[1,2.5,null,true,"x"]}',
        '{"deep":{"n":[18446744073709551615]}}',
        r'{"a\":1234567890123456":"1234567890123456789","n":1234567890123456789}',
    ],
)
def test_no_digit_is_lost(broker: Broker, look: Any, text: str) -> None:
    assert run(look(broker.url), "core/json.js", "it.write(it.parse(given))", text) == text


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a":1e400,"a":1.10,"b":[]}', '{\n  "a": 1e400,\n  "a": 1.10,\n  "b": []\n}'),
        ('["{,}", {}]', '[\n  "{,}",\n  {}\n]'),
        ('"\\u00e9\\""', '"\\u00e9\\""'),
        ("{", None),
        ("", None),
    ],
)
def test_json_is_indented_and_nothing_else(
    broker: Broker, look: Any, text: str, lines: str | None
) -> None:
    found = run(look(broker.url), "core/json.js", "it.pretty(given)", text)
    assert found == lines
    if lines is not None:
        assert json.loads(found) == json.loads(text)


def test_times_as_people_write_them(broker: Broker, look: Any) -> None:
    """In the viewer's zone, Berlin; in UTC if they say so."""
    written = {
        "2026-07-01 12:00": 1_782_900_000_000,
        "2026-12-01T12:00:00.5": 1_796_122_800_500,
        "2026-12-01 12:00Z": 1_796_126_400_000,
        "1796126400000": 1_796_126_400_000,
        "2026-07-01": 1_782_856_800_000,
        "": None,
    }
    code = "given.map(each => it.parseTime(each))"
    found = run(look(broker.url), "core/time.js", code, list(written))
    assert dict(zip(written, found, strict=True)) == written
    refused = "given.filter(each => { try { it.parseTime(each); } catch { return true; } })"
    # Browsers read them as days of 2001, which would be due at once.
    odd = ["5", "-1", "in 5", "tomorrow 9", "90s", "2026-13-01", "2026-07-01 noon"]
    assert run(look(broker.url), "core/time.js", refused, odd) == odd
    steps = "(it.noteNow(1000000, true), given.map(each => it.parseTime(each) - 1000000))"
    asked = ["now", "+90s", "-2h", "+1.5d", "+5min", "+5m", "+7ms"]
    wanted = [0, 90_000, -7_200_000, 129_600_000, 300_000, 300_000, 7]
    assert run(look(broker.url), "core/time.js", steps, asked) == wanted
    lengths = "given.map(each => it.length(each))"
    shown = run(
        look(broker.url), "core/time.js", lengths, [0, 7, 1_250, 61_000, 90 * 60_000, 86_400_000]
    )
    assert shown == ["0 ms", "7 ms", "1 s 250 ms", "1 min", "1 h 30 min", "1 d"]


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ("999999999999999", "No message matches"),
        ("9007199254740993", "due_to 9007199254740993 looks like microseconds"),
        ("9999999999999999", "due_to 9999999999999999 looks like microseconds"),
        ("9223372036854775807", "due_to 9223372036854775807 looks like nanoseconds"),
    ],
)
def test_a_time_keeps_all_digits(
    broker: Broker, look: Any, topic: str, digits: str, expected: str
) -> None:
    """Beyond 2^53 too: in the module, in the call that a filter makes, and in its refusal."""
    window = look(broker.url)
    window.refused = {400}
    assert run(window, "core/time.js", "`${it.parseTime(given)}`", digits) == digits
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window.at(f"/topics/default/{topic}/messages").fill(Due_before=digits)
    with window.page.expect_request(lambda request: f"due_to={digits}" in request.url):
        window.press("Filter")
    window.sees(expected)


@pytest.mark.parametrize("digits", ["99999999999999999999", "0123456789012"])
def test_a_number_that_is_no_time_is_refused(
    broker: Broker, look: Any, topic: str, digits: str
) -> None:
    """With the text and what to write, before a call is made."""
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window = look(broker.url).at(f"/topics/default/{topic}/messages").fill(Due_from=digits)
    window.press("Filter").sees(f"{digits} is no time: write 2026-11-26 09:00, +90s, -2h, or now")
