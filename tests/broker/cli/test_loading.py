"""What the command loads: nothing that its verb has no use for, since every start waits for it.

A process of its own loads each, as this one has loaded everything.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from delaylog.broker.cli.main import MODULES, REMOTE

CLIENT = "delaylog.client"
NETWORK = ("aiohttp", "asyncio", "ssl")


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("delaylog.broker.cli", (CLIENT, "delaylog.broker.host.serve", *NETWORK)),
        ("delaylog.broker.host.serve", (CLIENT,)),
        ("delaylog.broker.cli.dump", (CLIENT, *NETWORK)),
        *(
            (f"delaylog.broker.cli.{module}", ("delaylog.broker.host.serve",))
            for module in sorted(set(REMOTE.values()))
        ),
    ],
)
def test_a_verb_loads_what_it_needs(module: str, needless: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert module in loaded
    assert [name for name in needless if name in loaded] == []


@pytest.mark.parametrize("verb", sorted(MODULES))
def test_a_verb_is_where_it_is_looked_for(verb: str) -> None:
    module = import_module(f"delaylog.broker.cli.{MODULES[verb]}")
    assert callable(getattr(module, f"{verb}_command"))
