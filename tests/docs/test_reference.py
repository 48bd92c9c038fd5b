"""The reference names what there is: every public name, argument, hook and exception of the SDK."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import delaylog
from delaylog import client
from delaylog.client.errors import CLASSES
from delaylog.client.hooks import Hooks
from tests.client.test_surface import takes

REFERENCE: Final = (Path(__file__).parents[2] / "docs" / "SDK.md").read_text()
PROSE: Final = re.sub(r"^```.*?^```", "", REFERENCE, flags=re.MULTILINE | re.DOTALL)
NAMED: Final = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", PROSE))))
"""Each word that stands in code marks somewhere, examples left aside."""


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
