"""Turns constants of the product for a run: in their own module, and where they were imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import getsource
from types import ModuleType
from typing import Any, Final

from tests.simulation.plan import KNOBS, Knob, name_of

_BY_NAME: Final = {name_of(knob): knob for knob in KNOBS}


@cache
def _places(name: str) -> tuple[ModuleType, ...]:
    """The modules that have a constant: its own, and those that import it."""
    knob = _BY_NAME[name]
    found = [knob.module]
    listed = rf"(?:\([^)]*|[^(\n]*)\b{knob.name}\b"
    pattern = re.compile(rf"^from {re.escape(knob.module.__name__)} import {listed}", re.MULTILINE)
    for module in [*sys.modules.values()]:
        path = getattr(module, "__name__", "")
        if (
            path.startswith("delaylog.")
            and hasattr(module, knob.name)
            and module is not knob.module
        ):
            if pattern.search(getsource(module)):
                found.append(module)
    return tuple(found)


@contextmanager
def turned(knobs: Mapping[str, Any]) -> Iterator[None]:
    """Within, the constants have these values."""
    before: list[tuple[ModuleType, str, Any]] = []
    try:
        for name, value in knobs.items():
            knob: Knob = _BY_NAME[name]
            for module in _places(name):
                before.append((module, knob.name, getattr(module, knob.name)))
                setattr(module, knob.name, value)
        yield
    finally:
        for module, attribute, value in reversed(before):
            setattr(module, attribute, value)
