"""The hand-written sequences: redis-server answers as recorded, and so do we.

The record is what counts: it is compared without a redis-server too. Should the reference differ
from it, a file was edited without `record.py`, or another version is installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.redis.differential.endpoints import Endpoint, SocketEndpoint
from tests.redis.differential.transcript import FOLDER, differences, sections

FILES = sorted(FOLDER.glob("*.txt"))

LEFT = (
    # Numbers leave Lua as Python has them, whose whole ones have no -0.
    "Numbers on their way to redis.call: EVAL \"return redis.call('echo', -0.0)\" 0\n"
    '  ours:      "0"\n  reference: "-0"',
    # Clients of today send it, and would be told of an error.
    "HELLO: CLIENT SETINFO LIB-NAME x\n  ours:      +OK\n"
    "  reference: -ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.",
)
"""Where we differ knowingly, and in nothing else."""


def check(endpoint: Endpoint, path: Path, left: tuple[str, ...] = ()) -> None:
    every = [text for section in sections(path) for text in differences(endpoint, section)]
    found = [text for text in every if text not in left]
    assert not found, f"{len(found)} differences\n" + "\n".join(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_reference_answers_as_recorded(reference: SocketEndpoint, path: Path) -> None:
    check(reference, path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_we_answer_as_recorded(ours: Endpoint, path: Path) -> None:
    check(ours, path, left=LEFT)


def test_every_line_is_recorded() -> None:
    """A line without a reply waits, and what it waits for stands below another line."""
    waits = ("BL", "BR", "BZ", "XREAD")
    silent = [
        f"{path.stem}: {line.text}"
        for path in FILES
        for section in sections(path)
        for line in section.lines
        if not (
            line.said or line.sleep_ms or line.argv[0].startswith(tuple(map(str.encode, waits)))
        )
    ]
    assert not silent
    assert sum(len(s.lines) for path in FILES for s in sections(path)) > 1500
