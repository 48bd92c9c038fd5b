"""For all tests: how long an example of Hypothesis takes says something of the machine only.

And bytecode is kept, in this process and in those that tests start, also where the environment
says otherwise. Without it each of some thousand brokers and commands compiles every module of ours
before it begins, which doubles the time until it is there.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

from tests.longest_first import rank_of

settings.register_profile("delaylog", deadline=None)
settings.load_profile("delaylog")

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first; a file's tests stay together, and all else where it was."""
    items.sort(key=lambda item: rank_of(item.nodeid))
