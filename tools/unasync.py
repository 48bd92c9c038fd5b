"""Generate the modules for threads from the modules for asyncio: `make twins`, or `--check`.

`client/_async/` is the source, and each module of `client/_sync/` is generated from the module of
the same name. The tool replaces words, in code and in text, and ruff formats the result; this works
where threads and tasks do the same thing. What they do differently is written by hand on both sides
under the same names (`BY_HAND`; package `__init__` files too):

    concurrency      locks, sleeps, events, background calls
    transport        exchanges with aiohttp or sockets
    send_calls       `send` and `send_many`: tasks gather messages by turns of the loop, threads
                     send directly
    streaming        a subscription of tasks reads a WebSocket; one of threads polls
    workers/shift    runs handlers: tasks can be cancelled at a time limit, threads cannot

Outside the two folders only the modules in `ALONE` are generated. `sending/async_sender` and
`sending/thread_sender`, `broker/embedded/async_broker` and `broker/embedded/broker` have little in
common, tasks in the one and threads in the other: these pairs are written by hand.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = Path("client/_async")
MADE: Final = Path("client/_sync")
BY_HAND: Final = frozenset(
    {
        "__init__.py",
        "concurrency.py",
        "send_calls.py",
        "streams.py",
        "transport.py",
        "workers/__init__.py",
        "workers/shift.py",
    }
)
"""Names of modules that are written by hand in both folders."""

ALONE: Final = {
    "broker/embedded/async_broker_calls.py": "broker/embedded/broker_calls.py",
    # Copies: `pyspark_delaylog` runs without `delaylog`.
    "client/wire/credentials.py": "client/spark/credentials.py",
    "client/wire/endpoints.py": "client/spark/endpoints.py",
    "client/wire/leader_route.py": "client/spark/leader_route.py",
    "src/delaylog/secret_files.py": "client/spark/secret_files.py",
}
"""Modules outside the two folders: source to generated module."""

RULES: Final = (
    (r"\basync def\b", "def"),
    (r"\basync (for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\b_async\b", "_sync"),
    (r"\basync_(?=sender\b)", "thread_"),
    (r"\basync_(?=[a-z])", ""),
    (r"\bAsync(?=(Sender|Sending|Shift|Worker)\b)", "Thread"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bCoroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\b(a|A)n Async(?=[A-Z])", r"\1 "),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\ban asyncio client\b", "a client with threads"),
    (r"\basyncio programs\b", "programs with threads"),
    (r"\bone task\b", "one thread"),
)
"""Applied in this order."""


def twins() -> dict[Path, Path]:
    """All generated modules and their sources."""
    made = {Path(twin): Path(source) for source, twin in ALONE.items()}
    for path in sorted((ROOT / SOURCE).rglob("*.py")):
        name = path.relative_to(ROOT / SOURCE)
        if str(name) not in BY_HAND:
            made[MADE / name] = SOURCE / name
    return made


def made_of(source: Path) -> str:
    """The text of a module's twin, formatted by ruff."""
    text = (ROOT / source).read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    if ALONE.get(str(source), "").startswith("client/spark/"):
        text = re.sub(
            r"from delaylog\.(client\.wire\.|(?=secret_files))", "from pyspark_delaylog.", text
        )
    head, quotes, rest = text.partition('"""\n')
    said = f"Made from {source} by `make twins`: change that one."
    text = f"{head.rstrip()}\n\n{said}\n{quotes}{rest}"
    fixes = ["check", "--select", "F401,I,UP028", "--fix", "--unsafe-fixes"]
    for command in (fixes, ["format"]):
        name = str(source)
        run = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", name, "-"]
        text = subprocess.run(
            run, cwd=ROOT, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def unlike() -> list[Path]:
    """Twins that differ from what is generated, and modules in `MADE` that have no source."""
    made = twins()
    wrong = [
        twin
        for twin, source in made.items()
        if not (ROOT / twin).exists() or (ROOT / twin).read_text() != made_of(source)
    ]
    for path in sorted((ROOT / MADE).rglob("*.py")):
        twin = path.relative_to(ROOT)
        if twin not in made and str(twin.relative_to(MADE)) not in BY_HAND:
            wrong.append(twin)
    return wrong


def main() -> None:
    """Write all twins, or with `--check` print those that differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if one differs")
    if parser.parse_args().check:
        wrong = unlike()
        print(*wrong, sep="\n", end="\n" if wrong else "")
        sys.exit(bool(wrong))
    for twin, source in twins().items():
        (ROOT / twin).write_text(made_of(source))


if __name__ == "__main__":
    main()
