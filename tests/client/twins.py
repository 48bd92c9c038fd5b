"""Twins: modules of the client that are written once, for asyncio, and made for threads from that.

`make twins` writes them; `test_twins` fails when somebody changed one without the other. Only
what differs by `await` is made so: where threads and tasks do different things, each has its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "client"

TWINS: Final = {
    "async_control.py": "control_calls.py",
    "async_topics.py": "topic_calls.py",
    "async_link.py": "link.py",
    "broker_calls.py": "sync_broker_calls.py",
    "plain_client.py": "plain_sync_client.py",
}
"""What is written, and what is made of it."""

RULES: Final = (
    (r"\basync def\b", "def"),
    (r"\basync (for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bmerged_async\b", "merged"),
    (r"\basync_transport\b", "sync_transport"),
    (r"\bAsyncTransport\b", "SyncTransport"),
    (r"\basync_link\b", "link"),
    (r"\bbroker_calls\b", "sync_broker_calls"),
    (r"\bBrokerCalls\b", "SyncBrokerCalls"),
    (r"\bPlainClient\b", "PlainSyncClient"),
    (r"\ban asyncio client\b", "a client with threads"),
    (r"\basyncio programs\b", "programs with threads"),
    (r"\bAsync(?=[A-Z])", ""),
)
"""In this order; words of a module's text as well as its code."""


def made_of(source: Path) -> str:
    """The twin of a module: its text, with imports and lines as ruff lays them out."""
    text = source.read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    head, _, rest = text.partition('\n"""\n')
    text = f'{head}\n\nMade from {source.name} by `make twins`: change that one.\n"""\n{rest}'
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        made = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", source, "-"],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = made.stdout
    return text


def main() -> None:
    """Write all of them."""
    for source, twin in TWINS.items():
        (FOLDER / twin).write_text(made_of(FOLDER / source))


if __name__ == "__main__":
    main()
