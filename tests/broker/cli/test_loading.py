"""What the command loads: nothing that its verb has no use for, since every start waits for it.

A process of its own loads each, as this one has loaded everything.
"""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from delaylog.broker.cli.main import MODULES, REMOTE
from tests.programs import run_program

CLIENT = "delaylog.client"
NETWORK = ("aiohttp", "asyncio", "ssl")
ASKING = [f"delaylog.broker.cli.{module}" for module in sorted(set(REMOTE.values()))]


@pytest.mark.parametrize(
    ("modules", "needless"),
    [
        (["delaylog.broker.cli"], (CLIENT, "delaylog.broker.host.serve", *NETWORK)),
        (["delaylog.broker.host.serve"], (CLIENT,)),
        (["delaylog.broker.cli.dump.files"], (CLIENT, *NETWORK)),
        (ASKING, ("delaylog.broker.host.serve",)),
    ],
    ids=["cli", "serve", "dump", "verbs that ask a broker"],
)
def test_a_verb_loads_what_it_needs(modules: list[str], needless: tuple[str, ...]) -> None:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = run_program(sys.executable, "-P", "-c", program, check=True)
    loaded = done.stdout.split()
    assert set(modules) <= set(loaded)
    assert [name for name in needless if name in loaded] == []


@pytest.mark.parametrize("verb", sorted(MODULES))
def test_a_verb_is_where_it_is_looked_for(verb: str) -> None:
    module = import_module(f"delaylog.broker.cli.{MODULES[verb]}")
    assert callable(getattr(module, f"{verb}_command"))
