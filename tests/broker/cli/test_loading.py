"""What the command loads: nothing that its verb has no use for, since every start waits for it.

A process of its own loads each, as this one has loaded everything.
"""

from __future__ import annotations

import sys

import pytest

from delaylog.broker.cli.verbs import VERBS
from delaylog.broker.leaves import FOLDERS
from tests.programs import run_program

CLIENT = "delaylog.client"
NETWORK = ("aiohttp", "asyncio", "ssl")
NUMBERS = ("numpy", "orjson", "msgpack")
SPARK = ("pyspark", "pyarrow", "pandas")
CALLING = [
    f"delaylog.broker.cli.{each}" for each in sorted({v.module for v in VERBS.values() if v.calls})
]


@pytest.mark.parametrize(
    ("modules", "needless"),
    [
        (["delaylog.broker.process.serve"], (CLIENT,)),
        (["delaylog.broker.cli.settings"], (CLIENT, "delaylog.broker.process.serve", *NETWORK)),
        (["delaylog.broker.cli.dump"], (CLIENT, *NETWORK)),
        (["delaylog.broker.cli.folders"], (CLIENT, *NETWORK)),
        (["delaylog.broker.cli.doctor.verb"], (CLIENT, *NETWORK, *NUMBERS)),
        (CALLING, ("delaylog.broker.process.serve", "rich")),
        (["delaylog.broker.cli.programs", "delaylog.broker.process.serve"], SPARK),
    ],
    ids=["serve", "config", "dump", "folders", "doctor", "verbs that call a broker", "spark"],
)
def test_a_verb_loads_what_it_needs(modules: list[str], needless: tuple[str, ...]) -> None:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = run_program(sys.executable, "-P", "-c", program, check=True)
    loaded = done.stdout.split()
    assert set(modules) <= set(loaded)
    assert [name for name in needless if name in loaded] == []


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["completion", "--help"]])
def test_a_help_loads_the_parser_only(words: list[str]) -> None:
    program = (
        "import sys; from delaylog.broker.cli import main\n"
        f"try: main({words})\n"
        "except SystemExit: print('loaded', *sys.modules)"
    )
    done = run_program(sys.executable, "-P", "-c", program, check=True)
    loaded = done.stdout.splitlines()[-1].split()[1:]
    assert [
        name for name in (*NETWORK, *NUMBERS, CLIENT, "logging", "shtab") if name in loaded
    ] == []
    broker = "delaylog.broker"
    ours = {name for name in loaded if name.startswith(f"{broker}.")}
    names = ("main", "parser", "failures", "values", "verbs", "completion")
    parts = {f"{broker}.cli.{name}" for name in names}
    leaves = {f"{broker}.{folder}" for folder in FOLDERS}
    leaves |= {f"{folder}.leaf" for folder in leaves}
    parts |= {f"{broker}.{name}" for name in ("cli", "host", "host.rows", "leaves")}
    parts |= {f"{broker}.{name}" for name in ("process", "process.leaves")}
    assert ours <= parts | leaves


@pytest.mark.parametrize("name", sorted(VERBS))
def test_a_verb_is_where_it_is_looked_for(name: str) -> None:
    assert callable(VERBS[name].function("command"))
    if VERBS[name].parses:
        assert callable(VERBS[name].function("arguments"))
