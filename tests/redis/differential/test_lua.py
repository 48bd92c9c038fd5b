"""Hand-written scripts and libraries get the same bytes from redis-server and from us.

The texts are in `lua/`, with `---` between them. A script gets one key and one argument, in either
protocol; a library is loaded, and its function `f` is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.redis.differential.resp import Argv
from tests.redis.differential.runner import Pair

FOLDER: Final = Path(__file__).parent / "lua"


def texts(name: str) -> list[bytes]:
    """The texts of a file."""
    return (FOLDER / name).read_bytes().removesuffix(b"\n").split(b"\n---\n")


@pytest.mark.parametrize("resp", [b"2", b"3"])
def test_scripts(pair: Pair, resp: bytes) -> None:
    scripts = texts("scripts.txt")
    assert len(scripts) >= 400
    pair.run([(b"HELLO", resp), *((b"EVAL", each, b"1", b"key", b"argument") for each in scripts)])


def test_libraries(pair: Pair) -> None:
    program: list[Argv] = []
    for library in texts("libraries.txt"):
        program += [(b"FUNCTION", b"FLUSH"), (b"FUNCTION", b"LOAD", library)]
        program.append((b"FCALL", b"f", b"1", b"a", b"b"))
    pair.run(program)
