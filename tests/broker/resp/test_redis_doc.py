"""docs/REDIS.md and the README say what happens: every session and program in them is run.

A session is a fenced block `redis-cli`: commands behind `> `, and what is shown then. A program is
one of `python` that connects to port 6379; its prints say in a comment what they print. Ids,
receipts and times are others each time: one in the document stands for what came in its place.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.broker.resp.conftest import RespBroker
from tests.programs import run_program
from tests.redis_reference import reference_programs

_ROOT = Path(__file__).parents[3]
_DOCUMENTS = (_ROOT / "docs" / "REDIS.md", _ROOT / "README.md")
_FENCE = re.compile(r"^```(redis-cli|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PASSING = re.compile(r"~[0-9a-f]{16}\b|\b[0-9a-f]{32}\b|\b[0-9]{13}\b")
_PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)


def _blocks(language: str) -> list[Any]:
    blocks = []
    for path in _DOCUMENTS:
        text = path.read_text()
        for found in _FENCE.finditer(text):
            if found[1] == language and (language == "redis-cli" or "port=6379" in found[2]):
                line = text.count("\n", 0, found.start()) + 1
                blocks.append(pytest.param(found[2], id=f"{path.name}:{line}"))
    return blocks


class Session:
    """A document's commands, each typed into redis-cli."""

    def __init__(self, port: int) -> None:
        self._program = reference_programs() / "redis-cli", "-p", port, "--no-raw"
        self._came: dict[str, str] = {}
        """What stands in the document -> what came in its place."""

    def run(self, line: str) -> str:
        """Run a command line; returns what is shown."""
        return run_program(*self._program, input=f"{self._now(line)}\n", check=True).stdout.rstrip()

    def check(self, line: str, expected: str) -> None:
        """Run a command line that shows this, but for ids, receipts and times."""
        actual = self.run(line)
        assert _PASSING.sub("*", actual) == _PASSING.sub("*", expected), line
        for there, here in zip(_PASSING.findall(expected), _PASSING.findall(actual), strict=True):
            if there not in line:
                assert self._came.setdefault(there, here) == here, (line, there)

    def _now(self, line: str) -> str:
        return _PASSING.sub(lambda found: self._came.get(found[0], found[0]), line)


@pytest.mark.parametrize("session", _blocks("redis-cli"))
def test_sessions_show_what_they_say(resp_broker: RespBroker, session: str) -> None:
    _make_empty(resp_broker)
    client = Session(resp_broker.resp_port)
    for step in session.removeprefix("> ").split("\n> "):
        line, _, expected = step.rstrip("\n").partition("\n")
        client.check(line, expected)


@pytest.mark.parametrize("program", _blocks("python"))
def test_programs_print_what_they_say(resp_broker: RespBroker, program: str) -> None:
    pytest.importorskip("redis")
    _make_empty(resp_broker)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program.replace("6379", str(resp_broker.resp_port)), {})
    assert printed.getvalue().splitlines() == _PRINTED.findall(program)


def _make_empty(broker: RespBroker) -> None:
    """No keys, no topics: each block begins anew."""
    client = Session(broker.resp_port)
    assert client.run("FLUSHALL") == client.run("FUNCTION FLUSH") == "OK"
    for topic in broker.call("GET", "/v1/topics").json["topics"]:
        answer = broker.call("DELETE", f"/v1/topics/{topic['topic']}?force=true")
        assert answer.status in (200, 204), answer.body
