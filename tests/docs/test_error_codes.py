"""The pages and the SDK say of each error code what its row says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from delaylog.client.errors import CLASSES
from delaylog.contract.error_codes import CODES

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"

WITHOUT_CLASS: Final = {
    *("internal", "method", "timeout", "misdirected"),
    *("target_too_long", "head_too_large", "not_implemented", "version"),
}
"""What an SDK never meets, or cannot do anything about."""


@pytest.mark.parametrize("code", CODES)
def test_http_lists_the_code_with_its_status(code: str) -> None:
    page = (DOCS / "HTTP.md").read_text()
    errors = page[page.index("\n## Errors") : page.index("\n## What is refused")]
    told = re.search(rf"`{code}`[^0-9]*([0-9]{{3}})", errors)
    assert told is not None, f"HTTP.md does not list {code}"
    assert int(told[1]) == CODES[code].status


def test_the_sdk_has_a_class_for_each_code() -> None:
    assert {*CLASSES} == {*CODES} - WITHOUT_CLASS


@pytest.mark.parametrize("word", ["ERR", "TOOLARGE", "CONFLICT", "TOOLATE", "UNKNOWN", "DISKFULL"])
def test_redis_lists_words_of_the_table(word: str) -> None:
    assert word in {each.word for each in CODES.values()}
    assert f"`{word}`" in (DOCS / "REDIS.md").read_text()
